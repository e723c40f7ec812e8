"""A model divided over ranks gives what it gives on one, whatever its heads can be divided by."""

from pathlib import Path

import pytest

from octavo.protocol.errors import UsageError
from octavo.worker_proc.models import read_config
from octavo.worker_proc.models.shards import Shard

from ...support.cpu_runner import make_cpu_runner
from ...support.driver import Driver
from ...support.random_models import make_random_model
from ...support.thread_ranks import ThreadRanks, run_ranks
from .test_architectures import MODELS, config_of, prompt_of

NUM_TOKENS = 30


def tokens_of(folder: Path, size: int, **fields: object) -> list[list[list[int]]]:
    """By rank, the tokens after each of three prompts."""

    def run(rank: int, ranks: ThreadRanks) -> list[list[int]]:
        driver = Driver(
            make_cpu_runner(
                folder, ranks, rank=rank, group_size=size, max_model_len=128, num_blocks=24, **fields
            )
        )
        choices = [driver.add(prompt_of(length)) for length in (1, 17, 50)]
        return driver.generate(choices, NUM_TOKENS, chunk=16)

    return list(run_ranks(size, run))


# 3 KV heads on two ranks; one KV head, which both hold, with 3 query heads.
@pytest.mark.parametrize("shape", ["6x32", "3x24"])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_equal_those_of_one_rank(tmp_path: Path, name: str, shape: str) -> None:
    make_random_model(tmp_path, config_of(name, shape))
    (whole,) = tokens_of(tmp_path, 1)
    assert tokens_of(tmp_path, 2) == [whole] * 2


def test_five_heads_on_three_ranks(tmp_path: Path) -> None:
    make_random_model(tmp_path, config_of("qwen2", "5x16"))
    (whole,) = tokens_of(tmp_path, 1)
    assert tokens_of(tmp_path, 3) == [whole] * 3


def test_more_ranks_than_key_value_heads(tmp_path: Path) -> None:
    """Two of four ranks share a KV head, and the third and fourth have one each."""
    make_random_model(tmp_path, config_of("phi3", "6x32"))
    (whole,) = tokens_of(tmp_path, 1)
    assert tokens_of(tmp_path, 4) == [whole] * 4


def test_dummy_weights_are_those_of_one_rank(tmp_path: Path) -> None:
    make_random_model(tmp_path, config_of("llama", "6x32"))
    (whole,) = tokens_of(tmp_path, 1, load_format="dummy", seed=3)
    assert tokens_of(tmp_path, 2, load_format="dummy", seed=3) == [whole] * 2


def test_each_line_is_held_once(tmp_path: Path) -> None:
    make_random_model(tmp_path, config_of("llama", "6x32"))
    model = read_config(tmp_path)
    for size in (1, 2, 3):
        shards = [Shard(model, rank, size) for rank in range(size)]
        for cuts in zip(*((s.q, s.kv, s.qkv, s.inner, s.gate_up, s.vocab) for s in shards), strict=True):
            lines = [
                line for cut in cuts for start, count in cut.spans for line in range(start, start + count)
            ]
            assert sorted(lines) == list(range(cuts[0].full))


def test_more_ranks_than_heads_are_refused(tmp_path: Path) -> None:
    make_random_model(tmp_path, config_of("llama", "3x24"))
    with pytest.raises(UsageError, match=r"tensor_parallel_size 4 .* query heads of a key-value head is 3"):
        Shard(read_config(tmp_path), 0, 4)
