"""The sampler against a definition written a second time in NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from octavo.protocol.columns import pack_i32, unpack_f32, unpack_i32
from octavo.protocol.lifecycle import KVGroup
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.steps import NewRow
from octavo.worker_proc.rows import RowTable
from octavo.worker_proc.sampling import Drawn, Sampler

VOCAB = 300
EOS = 9
Floats = NDArray[np.float64]


class Bench:
    """A sampler, its rows, and logits that are the same for every row."""

    def __init__(self, num_rows: int = 8) -> None:
        self.table = RowTable(num_rows, 256, (KVGroup(64, 16),))
        self.sampler = Sampler(self.table, VOCAB, (EOS,))
        self.logits = torch.from_numpy(np.random.default_rng(3).normal(0, 2, VOCAB).astype(np.float32))

    def add(
        self,
        row: int,
        params: SamplingParams,
        *,
        prompt: list[int] | None = None,
        output: list[int] | None = None,
        seed: int = 0,
        choice: int = 0,
        bad_words: list[list[int]] | None = None,
    ) -> None:
        prompt, output = prompt or [1, 2], output or []
        words = tuple(pack_i32(word) for word in bad_words or [])
        tokens = pack_i32(prompt + output)
        new = NewRow(row, tokens, len(prompt), params, seed, choice, (pack_i32(range(16)),), words)
        self.table.add(new)
        self.sampler.add(new)

    def release(self, row: int) -> None:
        self.table.release([row])
        self.sampler.release(row)

    def draw(self, rows: list[int], logits: torch.Tensor | None = None, shift: int = 0) -> Drawn:
        index = np.array(rows, np.int64)
        logits = self.logits.expand(len(rows), -1) if logits is None else logits
        return self.sampler.sample(logits, index, self.table.num_tokens[index] + shift)

    def many(self, params: SamplingParams, num: int, **fields: object) -> NDArray[np.int64]:
        """Draws of one set of parameters at `num` positions."""
        found = []
        for shift in range(num):
            self.add(0, params, **fields)  # type: ignore[arg-type]
            found.append(self.draw([0], shift=shift).tokens[0])
            self.release(0)
        return np.array(found)


def softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def min_p(logits: Floats, bound: float) -> Floats:
    probs = softmax(logits)
    return np.where(probs >= bound * probs.max(), logits, -np.inf)


def top_k(logits: Floats, k: int) -> Floats:
    return np.where(logits >= np.sort(logits)[-k], logits, -np.inf)


def top_p(logits: Floats, p: float) -> Floats:
    order = np.argsort(-logits)
    probs = softmax(logits)[order]
    kept = np.cumsum(probs) - probs < p
    kept[0] = True
    result = np.full_like(logits, -np.inf)
    result[order[kept]] = logits[order[kept]]
    return result


def repeated(logits: Floats, tokens: list[int], penalty: float) -> Floats:
    result = logits.copy()
    for token in set(tokens):
        result[token] = result[token] / penalty if result[token] > 0 else result[token] * penalty
    return result


def used(logits: Floats, output: list[int], frequency: float, presence: float) -> Floats:
    counts = np.bincount(output, minlength=VOCAB)
    return logits - frequency * counts - presence * (counts > 0)


PROMPT, OUTPUT = [5, 6, 7, 5], [10, 11, 10]
Definition = Callable[[Floats], Floats]
CASES: list[tuple[dict[str, object], Definition]] = [
    ({}, lambda x: x),
    ({"temperature": 0.5}, lambda x: x / 0.5),
    ({"min_p": 0.2}, lambda x: min_p(x, 0.2)),
    ({"top_k": 7}, lambda x: top_k(x, 7)),
    ({"top_p": 0.6}, lambda x: top_p(x, 0.6)),
    ({"temperature": 2.0, "min_p": 0.1, "top_k": 30, "top_p": 0.8},
     lambda x: top_p(top_k(min_p(x / 2, 0.1), 30), 0.8)),
    ({"temperature": 2.0, "min_p": 0.1, "top_k": 30, "top_p": 0.8, "temperature_last": True},
     lambda x: top_p(top_k(min_p(x, 0.1), 30), 0.8) / 2),
    ({"repetition_penalty": 1.7, "top_k": 40}, lambda x: top_k(repeated(x, PROMPT + OUTPUT, 1.7), 40)),
    ({"frequency_penalty": 1.5, "presence_penalty": 0.7, "top_k": 40},
     lambda x: top_k(used(x, OUTPUT, 1.5, 0.7), 40)),
    ({"repetition_penalty": 1.3, "frequency_penalty": -2.0, "presence_penalty": -2.0, "temperature": 0.7},
     lambda x: used(repeated(x, PROMPT + OUTPUT, 1.3), OUTPUT, -2.0, -2.0) / 0.7),
    ({"logit_bias": {20: 5.0, 21: -100.0}, "top_k": 20},
     lambda x: top_k(x + 5.0 * np.eye(VOCAB)[20] - 100.0 * np.eye(VOCAB)[21], 20)),
    ({"allowed_token_ids": [3, 50, 60]},
     lambda x: np.where(np.isin(np.arange(VOCAB), [3, 50, 60]), x, -np.inf)),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "definition"), CASES, ids=lambda value: str(value)[:60])
def test_draws_follow_the_definition(fields: dict[str, object], definition: Definition) -> None:
    bench = Bench()
    num = 1500
    found = np.bincount(
        bench.many(SamplingParams(**fields), num, prompt=PROMPT, output=OUTPUT, seed=7),  # type: ignore[arg-type]
        minlength=VOCAB,
    )
    expected = softmax(definition(bench.logits.double().numpy())) * num
    assert found[expected == 0].sum() == 0, "a removed token was drawn"
    common = expected >= 5
    rest = max(expected[~common].sum(), 1e-9)
    chi_square = ((found - expected)[common] ** 2 / expected[common]).sum()
    chi_square += (found[~common].sum() - rest) ** 2 / rest if rest >= 5 else 0.0
    degrees = common.sum()
    # Mean `degrees`, deviation sqrt(2 * degrees): five deviations are never passed by chance.
    assert chi_square < degrees + 5 * np.sqrt(2 * degrees) + 5


@pytest.mark.parametrize("temperature", [0.0, 1e-40, 1e-12, 1e-5, 1e-3])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_o18_tiny_temperatures_are_greedy(temperature: float, scale: float) -> None:
    bench = Bench()
    bench.logits *= scale
    draws = bench.many(SamplingParams(temperature=temperature), 20)
    assert set(draws.tolist()) == {int(bench.logits.argmax())}


def test_o19_a_top_k_of_all_tokens_is_none() -> None:
    bench = Bench()
    draws = [bench.many(SamplingParams(top_k=k), 40, seed=3).tolist() for k in (9_999_999, 0, -1, VOCAB)]
    assert draws[0] == draws[1] == draws[2] == draws[3]


def test_o20_a_top_p_of_0_is_greedy() -> None:
    bench = Bench()
    assert set(bench.many(SamplingParams(top_p=0.0), 20).tolist()) == {int(bench.logits.argmax())}


@pytest.mark.parametrize(
    ("fields", "wins"),
    [({"presence_penalty": 2.0}, "A"), ({"frequency_penalty": 2.0}, "A"), ({"repetition_penalty": 1.5}, "B")],
)
def test_o21_which_penalties_look_at_the_prompt(fields: dict[str, float], wins: str) -> None:
    a, b = 30, 31
    bench = Bench()
    bench.logits = torch.zeros(VOCAB)
    bench.logits[a], bench.logits[b] = 2.0, 1.9
    bench.add(0, SamplingParams(temperature=0, **fields), prompt=[a, 4])  # type: ignore[arg-type]
    assert bench.draw([0]).tokens.tolist() == [a if wins == "A" else b]


def test_counts_follow_what_was_drawn() -> None:
    bench = Bench()
    bench.logits = torch.zeros(VOCAB)
    bench.logits[40:43] = torch.tensor([2.0, 1.5, 1.0])
    bench.add(0, SamplingParams(temperature=0, presence_penalty=1.9))
    bench.add(1, SamplingParams(temperature=0))
    drawn = []
    for _ in range(4):
        tokens = bench.draw([0, 1]).tokens
        bench.table.append_tokens(np.array([0, 1]), tokens)
        drawn.append(tokens.tolist())
    assert [pair[0] for pair in drawn] == [40, 41, 42, 40]
    assert [pair[1] for pair in drawn] == [40] * 4


def test_o22_a_bias_of_100_forces_a_token() -> None:
    assert set(Bench().many(SamplingParams(logit_bias={77: 100.0}), 20).tolist()) == {77}


MIXED: list[dict[str, object]] = [
    {},
    {"temperature": 0},
    {"top_p": 0.7},
    {"top_k": 5, "temperature": 1.3},
    {"min_p": 0.1, "repetition_penalty": 1.2},
    {"logit_bias": {5: 4.0}, "temperature_last": True, "temperature": 0.6},
    {"allowed_token_ids": [1, 2, 3]},
    {"frequency_penalty": 1.0, "logprobs": 2},
]


def test_o23_neighbours_do_not_change_a_draw() -> None:
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(0, 2, (len(MIXED), VOCAB)).astype(np.float32))

    def draw(rows: list[int]) -> list[int]:
        bench = Bench()
        for row in rows:
            bench.add(row, SamplingParams(**MIXED[row]), seed=row * 11, output=[5, 5])  # type: ignore[arg-type]
        tokens: list[int] = bench.draw(rows, logits[rows], shift=2).tokens.tolist()
        return tokens

    alone = [draw([row])[0] for row in range(len(MIXED))]
    for _ in range(8):
        rows = rng.permutation(len(MIXED))[: rng.integers(2, 9)].tolist()
        assert draw(rows) == [alone[row] for row in rows]


def test_o24_choices_of_one_seed_differ() -> None:
    bench = Bench()
    texts = [bench.many(SamplingParams(), 16, seed=7, choice=choice).tolist() for choice in range(4)]
    assert len({tuple(text) for text in texts}) == 4
    assert texts[2] == bench.many(SamplingParams(), 16, seed=7, choice=2).tolist()


def test_all_64_bits_of_a_seed_count() -> None:
    bench = Bench()
    texts = [bench.many(SamplingParams(), 16, seed=seed).tolist() for seed in (1, 1 + 2**63, 1 + 2**32, -1)]
    assert len({tuple(text) for text in texts}) == 4
    assert texts[3] == bench.many(SamplingParams(), 16, seed=2**64 - 1).tolist()


def test_o26_a_word_of_two_tokens_bans_the_second_behind_the_first() -> None:
    bench = Bench()
    bench.logits = torch.zeros(VOCAB)
    bench.logits[50], bench.logits[51] = 2.0, 1.9
    params = SamplingParams(temperature=0)
    bench.add(0, params, output=[44], bad_words=[[44, 50], [60]])
    bench.add(1, params, output=[45], bad_words=[[44, 50]])
    bench.add(2, params, prompt=[1, 44], bad_words=[[44, 50]])
    assert bench.draw([0, 1, 2]).tokens.tolist() == [51, 50, 50]


@pytest.mark.parametrize(
    ("ignore_eos", "allowed_early"), [(False, [3]), (True, [3, EOS])], ids=["eos", "ignore_eos"]
)
def test_min_tokens_holds_eos_and_stop_tokens_back(ignore_eos: bool, allowed_early: list[int]) -> None:
    bench = Bench()
    bench.logits = torch.full((VOCAB,), -50.0)
    bench.logits[[3, 4, EOS]] = 0.0
    params = SamplingParams(min_tokens=40, max_tokens=99, stop_token_ids=[4], ignore_eos=ignore_eos)
    draws = bench.many(params, 80)
    assert sorted(set(draws[:40].tolist())) == allowed_early
    assert sorted(set(draws[40:].tolist())) == sorted({3, 4, EOS})


def test_o46_a_released_row_leaves_nothing_behind() -> None:
    bench = Bench()
    best = int(bench.logits.argmax())
    strict = SamplingParams(
        temperature=0, repetition_penalty=9.0, logit_bias={best: -100.0}, stop_token_ids=[best],
        min_tokens=9, max_tokens=9, allowed_token_ids=[4, best],
    )  # fmt: skip
    for _ in range(3):
        bench.add(0, strict, prompt=[best], bad_words=[[best]])
        assert bench.draw([0]).tokens.tolist() == [4]
        bench.release(0)
        bench.add(0, SamplingParams(temperature=0), prompt=[best])
        assert bench.draw([0]).tokens.tolist() == [best]
        bench.release(0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_line_without_a_distribution_draws_nothing(value: float, temperature: float) -> None:
    bench = Bench()
    for row in range(3):
        bench.add(row, SamplingParams(temperature=temperature, logprobs=1), seed=row)
    logits = bench.logits.repeat(3, 1)
    good = bench.draw([0, 1, 2], logits).tokens
    logits[1, 17] = value
    drawn = bench.draw([0, 1, 2], logits)
    assert drawn.tokens.tolist() == [good[0], -1, good[2]]
    assert drawn.logprobs is not None
    assert unpack_i32(drawn.logprobs.counts).tolist() == [2, 2]


def test_all_tokens_ruled_out_draws_nothing() -> None:
    bench = Bench()
    bench.add(0, SamplingParams(temperature=0, allowed_token_ids=[4]), bad_words=[[4]])
    assert bench.draw([0]).tokens.tolist() == [-1]


def test_o29_logprobs_are_finite() -> None:
    bench = Bench()
    bench.logits[:] = -torch.inf
    bench.logits[3] = 0.0
    bench.add(0, SamplingParams(temperature=0, logprobs=5))
    columns = bench.draw([0]).logprobs
    assert columns is not None
    values = unpack_f32(columns.values).tolist()
    assert values[:2] == [0.0, 0.0]
    assert all(np.isfinite(values))


@pytest.mark.parametrize("vocab", [1, 100, 256, 257, 512, 1000])
def test_every_size_of_vocabulary_reaches_its_ends(vocab: int) -> None:
    from octavo.kernels import cpu

    for token in {0, vocab // 2, vocab - 1}:
        logits = torch.full((2, vocab), -1e4)
        logits[:, token] = 5.0
        seeds = torch.arange(2)
        assert cpu.draw_greedy(logits).tolist() == [token] * 2
        assert cpu.draw_inverse_cdf(logits, torch.ones(2), seeds, seeds, seeds).tolist() == [token] * 2
