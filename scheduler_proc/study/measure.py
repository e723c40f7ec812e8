"""What a run was worth: goodput, times to first tokens, paces, and who got how much."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .simulate import Outcome

TTFT = 1.0  # seconds: a request with a later first token is no goodput
ITL = 0.05  # seconds between its tokens, on average


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures. Times in seconds; NaN where there is nothing to measure."""

    requests: int
    goodput: float  # requests a second that kept both targets
    ttft_p50: float
    ttft_p99: float
    itl_p50: float  # of all gaps between tokens
    itl_p99: float
    tokens: int  # generated
    cached: float  # share of prompt tokens found in the prefix cache
    fairness: float  # Jain's index of the tenants' shares of what each asked for, 1 is even


def good(outcome: Outcome) -> bool:
    """Whether a request was answered to its end, in time."""
    whole = len(outcome.tokens) >= outcome.arrival.num_output
    return whole and outcome.ttft <= TTFT and outcome.itl <= ITL


def summarize(outcomes: Sequence[Outcome], seconds: float) -> Summary:
    """The figures of the requests of a trace that lasted so long."""
    ttft = [outcome.ttft for outcome in outcomes if outcome.tokens]
    gaps = [gap for outcome in outcomes for gap in np.diff(outcome.tokens).tolist()]
    prompts = sum(len(outcome.arrival.prompt) // 4 for outcome in outcomes if outcome.tokens)
    return Summary(
        requests=len(outcomes),
        goodput=sum(map(good, outcomes)) / seconds,
        ttft_p50=quantile(ttft, 0.5),
        ttft_p99=quantile(ttft, 0.99),
        itl_p50=quantile(gaps, 0.5),
        itl_p99=quantile(gaps, 0.99),
        tokens=sum(len(outcome.tokens) for outcome in outcomes),
        cached=sum(outcome.num_cached for outcome in outcomes) / prompts if prompts else float("nan"),
        fairness=_jain(outcomes),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    return float(np.quantile(values, share)) if len(values) else float("nan")


def _jain(outcomes: Sequence[Outcome]) -> float:
    """Source: Jain, Chiu, Hawe 1984, over the shares of goodput of each tenant's requests."""
    asked: dict[str, int] = {}
    kept: dict[str, int] = {}
    for outcome in outcomes:
        user = outcome.arrival.user
        asked[user] = asked.get(user, 0) + 1
        kept[user] = kept.get(user, 0) + good(outcome)
    shares = np.array([kept[user] / asked[user] for user in asked])
    squares = float((shares**2).sum())
    return float(shares.sum()) ** 2 / (len(shares) * squares) if squares else float("nan")
