"""Sampling kernels against their references."""

import math

import pytest
import torch

from octavo.kernels import device as kernels
from octavo.kernels import reference
from octavo.kernels.reference import Penalties, SamplingColumns, TokenRules, make_token_lists

REMOVED = float("-inf")
NUM_ROWS = 9


@pytest.fixture(params=[(123, torch.float32), (3000, torch.bfloat16)], ids=["small", "large"])
def logits(request, device):
    """Seven lines for nine permanent rows, of which one is flat and one has ties."""
    vocab, dtype = request.param
    logits = torch.randn(7, vocab) * 3
    logits[2] = 0.5 + torch.randn(vocab) * 1e-3
    logits[3] = logits[3].round()
    return logits.to(device, dtype)


@pytest.fixture
def rows(device):
    rows = torch.randperm(NUM_ROWS)[:7]
    rows[6] = -1
    return rows.to(device)


def column(device, values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).repeat(NUM_ROWS)[:NUM_ROWS].to(device)


def make_columns(device, **given):
    columns = {
        "temperature": column(device, [1.0, 0.0, 0.3, 2.0]),
        "seed": torch.randint(-(2**63), 2**63 - 1, (NUM_ROWS,)).to(device),
        "choice": column(device, [0, 3], torch.int64),
    }
    return SamplingColumns(**(columns | given))


@pytest.mark.parametrize("cut", [False, True])
def test_draw_tokens(device, logits, rows, cut):
    columns = make_columns(device)
    threshold = torch.full((7,), 0.5, device=device) if cut else None
    for position in (0, 1, 2**20):
        positions = torch.full((7,), position, device=device)
        arguments = (logits, rows, positions, columns.temperature, columns.seed, columns.choice)
        expected = reference.draw_tokens(*arguments, threshold=threshold)
        got = kernels.draw_tokens(*arguments, threshold=threshold)
        assert got.tolist() == expected.tolist()
        assert got[6] == reference.NO_TOKEN and (got[:6] >= 0).all()


def test_draws_of_one_row_follow_the_distribution(device):
    count, vocab = (120, 8) if device == "cpu" else (20_000, 40)
    logits = (torch.randn(1, vocab) * 2).to(device)
    workspace = kernels.make_draw_workspace(count, vocab, device=device)
    tokens = kernels.draw_tokens(
        logits.expand(count, -1).contiguous(),
        torch.zeros(count, dtype=torch.int64, device=device),
        torch.arange(count, device=device),
        torch.ones(1, device=device),
        torch.tensor([5], device=device),
        torch.tensor([0], device=device),
        workspace=workspace,
    )
    expected = logits[0].softmax(-1).cpu() * count
    seen = torch.bincount(tokens.cpu(), minlength=vocab)
    often = expected > 5
    chi_square = ((seen - expected) ** 2 / expected)[often].sum()
    freedom = int(often.sum()) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)
    assert not workspace.arrivals.any()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_line_without_a_distribution_gives_no_token(device, temperature):
    logits = torch.zeros(4, 3000, device=device)
    logits[0] = REMOVED
    logits[1, 2500] = math.nan
    logits[2, 5] = math.inf
    heat = torch.full((4,), temperature, device=device)
    rows = torch.arange(4, device=device)
    threshold = kernels.find_threshold(logits, rows, heat, top_p=torch.full((4,), 0.5, device=device))
    tokens = kernels.draw_tokens(logits, rows, rows, heat, rows, rows, threshold=threshold)
    assert tokens[:3].tolist() == [reference.NO_TOKEN] * 3
    assert 0 <= tokens[3] < 3000


FILTERS = {
    "min_p": {"min_p": [0.0, 0.05, 1.0]},
    "top_k": {"top_k": [0, 1, 40, -1, 10**7]},
    "top_p": {"top_p": [1.0, 0.9, 0.5, 1e-7, 0.0]},
    "top_k and top_p": {"top_k": [0, 3, 50, 2999], "top_p": [0.95, 1.0, 0.3]},
    "all": {"top_k": [60, 0, 5], "top_p": [0.8, 0.99], "min_p": [0.001, 0.1, 0.0, 0.02]},
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_find_threshold(device, logits, rows, filters, last):
    dtypes = {"top_k": torch.int32}
    given = {
        name: column(device, values, dtypes.get(name, torch.float32)) for name, values in filters.items()
    }
    if last:
        given["temperature_last"] = column(device, [True, False], torch.bool)
    temperature = column(device, [1.0, 0.7, 0.0, 3.0, 0.01])
    expected = reference.find_threshold(logits, rows, temperature, **given)
    got = kernels.find_threshold(logits, rows, temperature, **given)
    kept, wanted = (logits.float() >= limit.unsqueeze(1) for limit in (got, expected))
    # The sums of both are in float32 but in another order: one token more or less at the edge of top_p, or
    # one group of equal ones.
    for line in (kept != wanted).any(-1).nonzero().flatten().tolist():
        assert "top_p" in filters
        edge = logits[line][kept[line] != wanted[line]]
        assert edge.unique().numel() <= 1 + 2 * (line == 2)
    assert kept.any(-1).all()


def test_apply_penalties(device, logits, rows, assert_close):
    vocab = logits.shape[1]
    penalties = Penalties(
        torch.randint(0, 5, (4, vocab), dtype=torch.int32, device=device),
        column(device, [0, -1, 3, 1], torch.int32),
        column(device, [1.0, 1.5, 0.8]),
        column(device, [0.0, 0.5, -1.0]),
        column(device, [0.3, 0.0]),
    )
    expected, got = logits.float().clone(), logits.float().clone()
    reference.apply_penalties(expected[:6], rows[:6], penalties)
    kernels.apply_penalties(got, rows, penalties)
    assert_close(got, expected)
    assert torch.equal(got[6], logits[6].float())


def make_rules(device, vocab):
    recent = torch.randint(0, 4, (NUM_ROWS, 8), dtype=torch.int32, device=device)
    biased = [torch.randperm(vocab)[: 5 * row].tolist() for row in range(NUM_ROWS)]
    banned = [torch.randperm(vocab)[: 7 * (row % 3)].tolist() for row in range(NUM_ROWS)]
    words = [[2, a, 9, 3, a, b, 10, 1, 11] for a in range(3) for b in range(3)]
    allowed = [torch.randperm(vocab)[:n].tolist() for n in (0, 1, 60, 0, 90, 0, 120, 0, 33)]
    pool = {name: sum(map(len, lists)) for name, lists in (("biased", biased), ("banned", banned))}
    return TokenRules(
        allowed=make_token_lists(allowed, device=device),
        biased=make_token_lists(biased, device=device),
        bias=torch.randn(pool["biased"], device=device),
        banned=make_token_lists(banned, device=device),
        banned_until=torch.randint(0, 20, (pool["banned"],), dtype=torch.int32, device=device),
        words=make_token_lists(words, device=device),
        recent=recent,
        prompt_len=torch.randint(0, 12, (NUM_ROWS,), dtype=torch.int32, device=device),
    )


@pytest.mark.parametrize("which", ["allowed", "biased", "banned", "words", "all"])
def test_token_rules(device, rows, which):
    """allow_only, add_logit_bias, ban_tokens and ban_words, alone and in their order."""
    logits = torch.randn(7, 1200, device=device)
    rules = make_rules(device, 1200)
    beside = {"biased": ["bias"], "banned": ["banned_until"], "words": ["recent", "prompt_len"]}
    if which != "all":
        kept = [which, *beside.get(which, [])]
        rules = TokenRules(**{name: getattr(rules, name) for name in kept})
    positions = torch.arange(7, device=device) + 8
    expected, got = logits.clone(), logits.clone()
    for module, lines, target in ((reference, slice(0, 6), expected), (kernels, slice(0, 7), got)):
        part, line_rows = target[lines], rows[lines]
        if rules.allowed is not None:
            module.allow_only(part, line_rows, rules.allowed)
        if rules.biased is not None:
            module.add_logit_bias(part, line_rows, rules.biased, rules.bias)
        if rules.banned is not None:
            module.ban_tokens(part, line_rows, positions[lines], rules.banned, rules.banned_until)
        if rules.words is not None:
            words = (rules.words, rules.recent, rules.prompt_len)
            module.ban_words(part, line_rows, positions[lines], *words)
    assert torch.equal(got, expected)
    assert not torch.equal(got, logits)


@pytest.mark.parametrize("k", [0, 1, 5, 20])
def test_compute_logprobs(device, logits, assert_close, k):
    chosen = torch.randint(0, logits.shape[1], (7,), device=device)
    logits[1, : logits.shape[1] // 2] = REMOVED
    chosen[1] = logits.shape[1] - 1
    expected = reference.compute_logprobs(logits, chosen, k)
    got = kernels.compute_logprobs(logits, chosen, k)
    assert_close(got.chosen, expected.chosen)
    assert got.rank.tolist() == expected.rank.tolist()
    if k:
        assert_close(got.top, expected.top)
        assert_close(logits.gather(1, got.top_ids).float(), logits.gather(1, expected.top_ids).float())


def test_sample_runs_every_rule_in_order(device, logits, rows):
    """The same tokens as a draw from what the reference's rules and filters leave."""
    vocab = logits.shape[1]
    penalties = Penalties(
        torch.randint(0, 5, (4, vocab), dtype=torch.int32, device=device),
        column(device, [0, -1, 3, 1], torch.int32),
        column(device, [1.3]),
        column(device, [0.2]),
        column(device, [0.1]),
    )
    rules = make_rules(device, 123)._replace(allowed=None)
    top_p, min_p = column(device, [0.9, 1.0]), column(device, [0.01])
    columns = make_columns(device, top_p=top_p, min_p=min_p, rules=rules, penalties=penalties)
    positions = torch.arange(7, device=device) + 8
    workspace = kernels.make_sampling_workspace(7, vocab, pool_size=1, device=device)
    before = logits.clone()
    got = kernels.sample(logits, rows, positions, columns, workspace=workspace)
    assert torch.equal(logits, before)
    ruled = reference.apply_rules(logits[:6], rows[:6], positions[:6], columns)
    threshold = reference.find_threshold(ruled, rows[:6], columns.temperature, top_p=top_p, min_p=min_p)
    expected = reference.draw_tokens(
        ruled, rows[:6], positions[:6], columns.temperature, columns.seed, columns.choice, threshold=threshold
    )
    assert got.tolist() == [*expected.tolist(), reference.NO_TOKEN]
