"""How KV memory is divided between groups of layers, and what a worker says of it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.protocol.errors import OutOfMemoryError
from octavo.worker_proc.kv_groups import divide_memory

from ...support.cpu_runner import make_cpu_runner
from ...support.models import make_ctx_model


def test_groups_get_as_many_blocks_until_one_has_enough() -> None:
    assert divide_memory(1000, [10], [None]) == [100]
    assert divide_memory(1000, [10, 30], [None, None]) == [25, 25]
    assert divide_memory(1000, [10, 30], [None, 20]) == [40, 20]
    assert divide_memory(1000, [10, 30], [None, 26]) == [25, 25]
    assert divide_memory(5, [10, 30], [None, 20]) == [0, 0]


def test_a_lone_group_takes_everything() -> None:
    assert divide_memory(1000, [10], [20]) == [100]


@given(
    st.integers(0, 10_000),
    st.lists(st.tuples(st.integers(1, 50), st.none() | st.integers(1, 200)), min_size=1, max_size=4),
)
def test_what_is_handed_out_is_there_and_little_stays(
    memory: int, groups: list[tuple[int, int | None]]
) -> None:
    sizes, enough = [size for size, _ in groups], [limit for _, limit in groups]
    counts = divide_memory(memory, sizes, enough)
    used = sum(count * size for count, size in zip(counts, sizes, strict=True))
    assert 0 <= memory - used < sum(sizes)


def test_a_model_of_two_kinds_of_layers_has_two_groups(tmp_path: Path) -> None:
    window = {
        "architectures": ["Qwen3ForCausalLM"],
        "use_sliding_window": True,
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention"],
        "head_dim": 16,
    }
    model = make_ctx_model(tmp_path, config=window)

    def groups(**fields: object) -> list[tuple[int, int]]:
        runner = make_cpu_runner(model, load_format="dummy", num_blocks=0, **fields)
        return [(group.window, group.num_blocks) for group in runner.kv_groups]

    # A block of either group takes 16 tokens x 2 x 2 heads x 16 entries x 4 bytes = 4 KiB.
    assert groups(kv_cache_memory_bytes=1 << 20) == [(32, 128), (0, 128)]
    # 2 rows of 3 blocks and two steps of 4, twice.
    few = {"max_num_seqs": 2, "max_num_batched_tokens": 64}
    assert groups(kv_cache_memory_bytes=1 << 20, **few) == [(32, 28), (0, 228)]
    assert groups(kv_cache_memory_bytes=1 << 20, max_model_len=32) == [(0, 128)]
    with pytest.raises(OutOfMemoryError, match="kv-cache-memory-bytes"):
        groups(kv_cache_memory_bytes=5000)
