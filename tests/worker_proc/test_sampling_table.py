"""Every sampling parameter beside an independent definition, with all of them mixed in one batch.

Definitions are transformers' own processors where it has one, NumPy's a line where it has none. Each row has
logits of its own; a greedy draw must equal the definition's best token, and sampled draws its distribution.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from octavo.protocol.columns import pack_i32
from octavo.protocol.lifecycle import KVGroup
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.steps import NewRow
from octavo.worker_proc.rows import RowTable
from octavo.worker_proc.sampling import Sampler

VOCAB = 61
EOS = 9
PROMPT, OUTPUT = [5, 6, 7, 5, 10], [10, 11, 10, 12]
USED = torch.tensor([PROMPT + OUTPUT])
Definition = Callable[[torch.Tensor], torch.Tensor]


def steps(*processors: LogitsProcessor) -> Definition:
    """transformers' processors, one behind the other."""

    def apply(logits: torch.Tensor) -> torch.Tensor:
        for processor in processors:
            logits = processor(USED, logits.clone())
        return logits

    return apply


def counted(frequency: float, presence: float) -> Definition:
    counts = torch.bincount(torch.tensor(OUTPUT), minlength=VOCAB)
    return lambda logits: logits - frequency * counts - presence * (counts > 0)


def only(*tokens: int) -> LogitsProcessor:
    return SuppressTokensLogitsProcessor([t for t in range(VOCAB) if t not in tokens])


def then(*definitions: Definition) -> Definition:
    def apply(logits: torch.Tensor) -> torch.Tensor:
        for definition in definitions:
            logits = definition(logits)
        return logits

    return apply


@dataclass(frozen=True)
class Case:
    """Parameters and what they mean."""

    params: dict[str, object]
    definition: Definition
    bad_words: list[list[int]] = field(default_factory=list)


TABLE = {
    "nothing": Case({}, lambda x: x),
    "temperature": Case({"temperature": 0.6}, steps(TemperatureLogitsWarper(0.6))),
    "top_k": Case({"top_k": 7}, steps(TopKLogitsWarper(7))),
    "top_k 1": Case({"top_k": 1}, steps(TopKLogitsWarper(1))),
    "top_p": Case({"top_p": 0.7}, steps(TopPLogitsWarper(0.7))),
    "min_p": Case({"min_p": 0.15}, steps(MinPLogitsWarper(0.15))),
    "all filters": Case(
        {"temperature": 1.7, "min_p": 0.05, "top_k": 25, "top_p": 0.9},
        steps(
            TemperatureLogitsWarper(1.7), MinPLogitsWarper(0.05), TopKLogitsWarper(25), TopPLogitsWarper(0.9)
        ),
    ),
    "temperature_last": Case(
        {"temperature": 1.7, "min_p": 0.05, "top_k": 25, "top_p": 0.9, "temperature_last": True},
        steps(
            MinPLogitsWarper(0.05), TopKLogitsWarper(25), TopPLogitsWarper(0.9), TemperatureLogitsWarper(1.7)
        ),
    ),
    "repetition_penalty": Case({"repetition_penalty": 1.8}, steps(RepetitionPenaltyLogitsProcessor(1.8))),
    "repetition_penalty below 1": Case(
        {"repetition_penalty": 0.6}, steps(RepetitionPenaltyLogitsProcessor(0.6))
    ),
    "frequency_penalty": Case({"frequency_penalty": 1.2}, counted(1.2, 0)),
    "presence_penalty": Case({"presence_penalty": -1.5}, counted(0, -1.5)),
    "all penalties": Case(
        {"repetition_penalty": 1.4, "frequency_penalty": 0.8, "presence_penalty": 0.5, "temperature": 0.8},
        then(
            steps(RepetitionPenaltyLogitsProcessor(1.4)),
            counted(0.8, 0.5),
            steps(TemperatureLogitsWarper(0.8)),
        ),
    ),
    "logit_bias": Case(
        {"logit_bias": {3: 4.0, 8: -100.0}}, steps(SequenceBiasLogitsProcessor([[[3], 4.0], [[8], -100.0]]))
    ),
    "allowed_token_ids": Case({"allowed_token_ids": [2, 30, 44]}, steps(only(2, 30, 44))),
    "min_tokens": Case(
        {"min_tokens": 5, "stop_token_ids": [4], "max_tokens": 50},
        steps(SuppressTokensLogitsProcessor([EOS, 4])),
    ),
    "min_tokens passed": Case({"min_tokens": 4, "max_tokens": 50}, lambda x: x),
    "ignore_eos": Case({"min_tokens": 5, "ignore_eos": True, "max_tokens": 50}, lambda x: x),
    "bad_words": Case(
        {"bad_words": ["x"]}, steps(SuppressTokensLogitsProcessor([20, 13])), [[20], [12, 13], [10, 14]]
    ),
}


class Batch:
    """A sampler whose rows have the table's cases, `copies` of each, with logits of their own by case."""

    def __init__(self, copies: int, *, greedy: bool) -> None:
        self.rng = np.random.default_rng(5)
        self.cases = [case for case in TABLE.values() for _ in range(copies)]
        self.params = [
            SamplingParams(**{"max_tokens": None, **case.params, **({"temperature": 0.0} if greedy else {})})  # type: ignore[arg-type]
            for case in self.cases
        ]
        self.logits = torch.from_numpy(self.rng.normal(0, 1.5, (len(TABLE), VOCAB)).astype(np.float32))
        num_rows = len(self.cases)
        self.table = RowTable(num_rows, 32, (KVGroup(4 * num_rows, 16),))
        self.sampler = Sampler(self.table, VOCAB, (EOS,))
        self._seed = 0

    def draw(self) -> NDArray[np.int64]:
        """The next token of each row, [cases, copies], all with new seeds, in a step of random order."""
        num_rows = len(self.cases)
        for row in range(num_rows):
            self._add(row)
        rows = self.rng.permutation(num_rows)
        lines = torch.from_numpy(rows // (num_rows // len(TABLE)))
        drawn = self.sampler.sample(self.logits[lines], rows, self.table.num_tokens[rows])
        tokens = np.empty(num_rows, np.int64)
        tokens[rows] = drawn.tokens
        self.table.release(range(num_rows))
        return tokens.reshape(len(TABLE), -1)

    def _add(self, row: int) -> None:
        self._seed += 1
        new = NewRow(
            row=row,
            tokens=pack_i32(PROMPT + OUTPUT),
            prompt_len=len(PROMPT),
            params=self.params[row],
            seed=self._seed,
            choice=0,
            blocks=(pack_i32([0, 1]),),
            bad_words=tuple(pack_i32(word) for word in self.cases[row].bad_words),
        )
        self.table.add(new)
        self.sampler.add(new)


def expected_logits(batch: Batch) -> list[torch.Tensor]:
    return [
        case.definition(line.unsqueeze(0))[0] for case, line in zip(TABLE.values(), batch.logits, strict=True)
    ]


def test_greedy_draws_equal_the_definition() -> None:
    batch = Batch(3, greedy=True)
    best = [int(logits.argmax()) for logits in expected_logits(batch)]
    assert batch.draw().tolist() == [[token] * 3 for token in best]


def check_distributions(num: int) -> None:
    copies = 50
    batch = Batch(copies, greedy=False)
    drawn = np.concatenate([batch.draw() for _ in range(num // copies)], 1)
    for name, tokens, logits in zip(TABLE, drawn, expected_logits(batch), strict=True):
        found = np.bincount(tokens, minlength=VOCAB)
        expected = logits.double().softmax(-1).numpy() * num
        assert found[expected == 0].sum() == 0, f"{name}: a token that is ruled out was drawn"
        common = expected >= 5
        observed, wanted = found[common].astype(float), expected[common]
        if (rest := expected[~common].sum()) >= 5:
            observed, wanted = np.append(observed, found[~common].sum()), np.append(wanted, rest)
        freedom = max(1, len(wanted) - 1)
        chi_square = ((observed - wanted) ** 2 / wanted).sum()
        # 4.5 standard deviations of the cube root, which is nearly normal (Wilson and Hilferty 1931).
        spread = 2 / (9 * freedom)
        assert (chi_square / freedom) ** (1 / 3) < 1 - spread + 4.5 * spread**0.5, (name, chi_square, freedom)


def test_sampled_draws_follow_the_definition() -> None:
    check_distributions(1500)


@pytest.mark.full
def test_20_000_sampled_draws_follow_the_definition() -> None:
    check_distributions(20_000)
