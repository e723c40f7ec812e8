"""Sampling: each rule against its definition in words, and the draw against the distribution it claims."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kernels import reference
from octavo.kernels.reference import SamplingColumns, TokenRules, make_token_lists

VOCAB = 37
REMOVED = float("-inf")


def make_columns(num_rows=1, **given):
    """Columns for `num_rows` rows, greedy unless a temperature is given; scalars are repeated."""
    dtypes = {
        "seed": torch.int64,
        "choice": torch.int64,
        "top_k": torch.int32,
        "temperature_last": torch.bool,
    }
    given = {"temperature": 0.0, "seed": 0, "choice": 0} | given
    for name, value in given.items():
        if isinstance(value, (int, float, list)):
            values = value if isinstance(value, list) else [value] * num_rows
            given[name] = torch.tensor(values, dtype=dtypes.get(name, torch.float32))
    return SamplingColumns(**given)


def draw_many(logits, count, **parameters):
    """Counts of each token over `count` draws of one row of logits at consecutive positions."""
    lines = logits.expand(count, -1)
    tokens = reference.sample(
        lines, torch.zeros(count, dtype=torch.int64), torch.arange(count), make_columns(1, **parameters)
    )
    return torch.bincount(tokens, minlength=logits.shape[-1])


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, -1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_vectors(counter, key, expected):
    words = reference.philox4x32(torch.tensor([key]), tuple(torch.tensor([c]) for c in counter))
    assert tuple(int(word) for word in words) == expected


def test_uniforms_depend_on_every_bit_of_their_coordinates():
    base = (torch.tensor([1 << 40]), torch.tensor([3]), torch.tensor([1000]))
    first = reference.draw_uniform(*base)
    assert torch.equal(first, reference.draw_uniform(*base))
    for other in [
        (base[0] + 1, base[1], base[2]),
        (base[0] + (1 << 63), base[1], base[2]),
        (base[0], base[1] + 1, base[2]),
        (base[0], base[1], base[2] + 1),
    ]:
        assert not torch.equal(first, reference.draw_uniform(*other))


def test_o18_tiny_temperatures_are_greedy():
    torch.manual_seed(1)
    logits = torch.randn(4, VOCAB).half() * 20
    rows, positions = torch.arange(4), torch.arange(4)
    greedy = reference.sample(logits, rows, positions, make_columns(4))
    assert torch.equal(greedy, logits.argmax(-1))
    for temperature in (1e-3, 1e-5, 1e-12, 1e-40):
        drawn = reference.sample(logits, rows, positions, make_columns(4, temperature=temperature, top_p=0.9))
        assert torch.equal(drawn, greedy), temperature


def test_draws_follow_the_distribution():
    torch.manual_seed(2)
    logits = torch.randn(1, 600) * 2
    logits[0, 255:300] = REMOVED
    count = 20_000
    probs = logits[0].softmax(-1)
    seeds = torch.full((count,), 11)
    choice = torch.zeros(count, dtype=torch.int64)
    lines = logits.expand(count, -1)
    for draw in (reference.draw_inverse_cdf, reference.draw_gumbel):
        tokens = draw(lines, seeds, choice, torch.arange(count))
        seen = torch.bincount(tokens, minlength=600)
        assert seen[255:300].sum() == 0
        often = probs * count > 5
        chi_square = ((seen - probs * count) ** 2 / (probs * count))[often].sum()
        freedom = int(often.sum()) - 1
        assert chi_square < freedom + 5 * math.sqrt(2 * freedom), draw.__name__


def test_a_row_without_a_distribution_gives_no_token():
    logits = torch.zeros(4, VOCAB)
    logits[0] = REMOVED
    logits[1, 5] = math.nan
    logits[2, 5] = math.inf
    rows, positions = torch.arange(4), torch.arange(4)
    for temperature in (0.0, 1.0):
        columns = make_columns(4, temperature=temperature, top_p=0.5, top_k=3, min_p=0.1)
        tokens = reference.sample(logits, rows, positions, columns)
        assert tokens[:3].tolist() == [reference.NO_TOKEN] * 3
        assert 0 <= tokens[3] < VOCAB


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    top_p=st.sampled_from([0.0, 1e-6, 0.1, 0.5, 0.9, 0.999, 1.0]),
    top_k=st.sampled_from([0, -1, 1, 2, 5, VOCAB - 1, VOCAB, 10**7]),
    min_p=st.sampled_from([0.0, 0.01, 0.2, 1.0]),
    vocab=st.sampled_from([1, VOCAB, 3000]),
    flat=st.booleans(),
)
def test_filters_keep_what_their_definition_keeps(seed, top_p, top_k, min_p, vocab, flat):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, vocab, generator=generator) * (0.01 if flat else 3)
    got = logits.clone()
    reference.apply_min_p(got, torch.tensor([min_p]))
    reference.apply_top_k(got, torch.tensor([top_k], dtype=torch.int32))
    reference.apply_top_p(got, torch.tensor([top_p]))

    values, ids = logits[0].double().sort(descending=True)
    probs = values.softmax(-1)
    count = int((probs >= min_p * probs[0] * (1 - 1e-6)).sum())
    if 0 < top_k < vocab:
        count = min(count, top_k)
    if top_p < 1:
        mass = (probs[:count] / probs[:count].sum()).cumsum(-1)
        count = max(1, int((mass - mass.diff(prepend=mass.new_zeros(1)) < top_p - 1e-6).sum()))
    kept = (got[0] > REMOVED).nonzero().squeeze(1)
    # One more or less where float32 sums pass a limit by less than their rounding.
    assert abs(kept.numel() - count) <= (1 if count < vocab else 0) + (2 if flat else 0)
    assert set(kept.tolist()) == set(ids[: kept.numel()].tolist())
    assert torch.equal(got[0, kept], logits[0, kept])


def test_ties_at_a_filter_edge_are_kept_together():
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
    for filtered in (
        lambda x: reference.apply_top_k(x, torch.tensor([2], dtype=torch.int32)),
        lambda x: reference.apply_top_p(x, torch.tensor([0.6])),
    ):
        got = logits.clone()
        filtered(got)
        assert (got > REMOVED).tolist() == [[True, True, True, True, False]]


def test_temperature_last_filters_the_untempered_distribution():
    logits = torch.tensor([[3.0, 1.0, 0.9, -4.0]])
    rows = torch.tensor([0])
    early = reference.filter_logits(logits, rows, make_columns(temperature=5.0, min_p=0.2))
    late = reference.filter_logits(
        logits, rows, make_columns(temperature=5.0, min_p=0.2, temperature_last=True)
    )
    assert (early > REMOVED).tolist() == [[True, True, True, True]]
    assert (late > REMOVED).tolist() == [[True, False, False, False]]
    wide = reference.filter_logits(
        logits, rows, make_columns(temperature=5.0, min_p=0.01, temperature_last=True)
    )
    assert (wide > REMOVED).tolist() == [[True, True, True, False]]
    assert wide[0, 0] - wide[0, 1] == pytest.approx(2.0 / 5.0)


def make_penalties(num_rows, counts, **parameters):
    values = {"repetition": 1.0, "frequency": 0.0, "presence": 0.0} | parameters
    columns = {name: torch.full((num_rows,), value) for name, value in values.items()}
    return reference.Penalties(counts, torch.arange(num_rows, dtype=torch.int32), **columns)


@pytest.mark.parametrize(
    ("parameters", "winner"),
    [({}, 0), ({"presence": 2.0}, 0), ({"frequency": 2.0}, 0), ({"repetition": 1.5}, 1)],
)
def test_o21_only_repetition_looks_at_the_prompt(parameters, winner):
    logits = torch.tensor([[2.0, 1.9, 0.0, 0.0]])
    counts = torch.zeros(1, 4, dtype=torch.int32)
    reference.fill_counts(counts, 0, torch.tensor([0, 3, 0]), torch.tensor([], dtype=torch.int64))
    columns = make_columns(penalties=make_penalties(1, counts, **parameters))
    assert reference.sample(logits, torch.tensor([0]), torch.tensor([3]), columns).item() == winner


def test_penalties_count_the_output_and_leave_other_rows_alone():
    counts = torch.zeros(2, 5, dtype=torch.int32)
    reference.fill_counts(counts, 0, torch.tensor([4]), torch.tensor([1, 1]))
    reference.count_tokens(
        counts, torch.tensor([0, -1, 1], dtype=torch.int32), torch.tensor([1, 2, reference.NO_TOKEN])
    )
    assert counts.tolist() == [[0, 6, 0, 0, 1], [0] * 5]
    penalties = make_penalties(2, counts, repetition=2.0, frequency=0.5, presence=0.25)
    penalties = penalties._replace(slot=torch.tensor([0, -1], dtype=torch.int32))
    logits = torch.tensor([[1.0, 4.0, 2.0, 3.0, -3.0]]).repeat(2, 1)
    reference.apply_penalties(logits, torch.tensor([1, 0]), penalties)
    assert logits[0].tolist() == [1.0, 4.0, 2.0, 3.0, -3.0]
    assert logits[1].tolist() == [1.0, 4.0 / 2 - 3 * 0.5 - 0.25, 2.0, 3.0, -6.0]


def test_token_rules_touch_their_own_row_alone():
    logits = torch.arange(20.0).view(2, 10).contiguous()
    rows, positions = torch.tensor([3, 1]), torch.tensor([7, 7])
    lists = make_token_lists([[], [2, 4], [], []])
    rules = TokenRules(
        allowed=make_token_lists([[], [2, 4, 9], [], []]),
        biased=lists,
        bias=torch.tensor([100.0, -1.0]),
        banned=make_token_lists([[], [2, 9], [], []]),
        banned_until=torch.tensor([7, 8], dtype=torch.int32),
    )
    got = reference.apply_rules(logits, rows, positions, make_columns(4, rules=rules))
    assert torch.equal(got[0], logits[0])
    assert (got[1] > REMOVED).nonzero().squeeze(1).tolist() == [2, 4]
    assert got[1, 2] == 112 and got[1, 4] == 13
    assert logits[1, 9] == 19


def test_o26_a_banned_word_loses_only_its_last_token_after_its_first_ones():
    width = 4
    words = make_token_lists([[2, 5, 6, 1, 8, 3, 1, 2, 3]])
    recent = torch.zeros(1, width, dtype=torch.int32)
    banned = {}
    for tail, prompt_len in (((5,), 0), ((7,), 0), ((1, 2), 0), ((5,), 10)):
        for i, token in enumerate(tail):
            recent[0, (10 - len(tail) + i) % width] = token
        logits = torch.zeros(1, 10)
        reference.ban_words(
            logits,
            torch.tensor([0]),
            torch.tensor([10]),
            words,
            recent,
            torch.tensor([prompt_len], dtype=torch.int32),
        )
        banned[tail, prompt_len] = (logits[0] == REMOVED).nonzero().squeeze(1).tolist()
    assert banned == {((5,), 0): [6, 8], ((7,), 0): [8], ((1, 2), 0): [3, 8], ((5,), 10): [8]}


def test_logprobs_rank_and_top_list():
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0], [5.0, REMOVED, 0.0, 0.0]])
    got = reference.compute_logprobs(logits.bfloat16(), torch.tensor([3, 1]), 2)
    expected = logits.log_softmax(-1)
    assert got.chosen[0] == pytest.approx(float(expected[0, 3]))
    assert got.chosen[1] == REMOVED
    assert got.rank.tolist() == [2, 4]
    assert got.top_ids[0].tolist() == [1, 3]
    torch.testing.assert_close(got.top, expected.topk(2).values)
    assert reference.compute_logprobs(logits, torch.tensor([3, 1]), 0).top.shape == (2, 0)
