"""How long a request will wait for its first step, from what runs, what waits before it and what steps cost.

Two things take time. Rows must become free: those that run end when their expected answers do, and each gives
way to one that waits, which ends in turn. And prompts must be read: those that have begun and those ahead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..waiting.demand import Demand
from .lengths import OutputLengths, Survival
from .step_model import StepWork
from .worker import Worker

_FORGET = 0.98  # how much of what prompts found in the cache remains with one more prompt
_LIKELY = 8  # equally likely lengths of an answer that are looked at

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Queue:
    """What stands before a request that comes now."""

    new: Demand  # requests that no step has computed yet
    restarts: int  # choices that were preempted
    uses_free: bool  # free rows can be taken at once: memory is not what it waits for


class QueueForecast:
    """Forecasts from the state of the workers; learns only what part of a prompt is found in the cache."""

    def __init__(self, lengths: OutputLengths, target_itl: float) -> None:
        """`target_itl` is how many seconds a step with decodes should take, 0 for no target."""
        self._lengths, self._target_itl = lengths, target_itl
        self._read = self._asked = 1.0  # prompt tokens to compute, and all, fading
        self._seen: tuple[object, ...] = ()
        self._outlooks: list[_Outlook] = []
        self._turnover = _Turnover(np.zeros(0), np.zeros(0))

    def began(self, num_tokens: int, num_cached: int) -> None:
        """A prompt found so many of its tokens in the cache."""
        self._asked = self._asked * _FORGET + num_tokens
        self._read = self._read * _FORGET + num_tokens - num_cached

    def wait(self, workers: Sequence[Worker], queue: Queue) -> float:
        """Seconds until one more request is first computed, -1 while no step was measured."""
        ahead = queue.new
        self._look(workers, ahead)
        if not self._outlooks:
            return -1.0
        wanted = ahead.choices + queue.restarts + 1
        if queue.uses_free:
            wanted -= sum(outlook.num_free for outlook in self._outlooks)
        rows = self._turnover.until(wanted)
        share = self._read / self._asked / len(self._outlooks)
        waits = [outlook.seconds(rows, share, ahead) for outlook in self._outlooks]
        return sum(waits) / len(waits)

    def _look(self, workers: Sequence[Worker], ahead: Demand) -> None:
        """Look at the rows once a step, not for each request of a flood."""
        steps = tuple((worker.session, worker.last_step, len(worker.flight)) for worker in workers)
        output = ahead.output // max(1, ahead.choices)
        seen = (steps, ahead.choices.bit_length(), output.bit_length())
        if seen == self._seen:
            return
        self._seen = seen
        known = [worker for worker in workers if worker.ready and worker.model.count]
        self._outlooks = [
            _Outlook(worker, ahead.choices, output, self._lengths, self._target_itl) for worker in known
        ]
        if known:
            ends = np.concatenate([outlook.ends for outlook in self._outlooks])
            lives = np.concatenate([outlook.lives for outlook in self._outlooks])
            self._turnover = _Turnover(ends, lives)


class _Outlook:
    """What is to come on one worker while `waiting` choices wait, with `output` tokens at most."""

    def __init__(
        self, worker: Worker, waiting: int, output: int, lengths: OutputLengths, target_itl: float
    ) -> None:
        rows, self._model = worker.rows, worker.model
        taken = rows.taken()
        known, length, begun = rows.num_known[taken], rows.length[taken], rows.num_computed[taken]
        self.num_free = rows.num_free
        busy = len(taken) + min(rows.num_free, waiting)
        context = int(length.sum() / max(1, len(taken)) * busy)
        self._step = self._model.seconds(StepWork(busy, 0, context))
        reads = length - begun > 1
        self._unread = int((length - begun)[reads].sum())
        self._unattended = float((length[reads] ** 2 - begun[reads] ** 2).sum() / 2)
        self._chunk = max(1, worker.budget - busy)
        if target_itl and len(taken):
            in_time = int((target_itl - self._step) / self._model.token_seconds(0))
            self._chunk = max(1, min(self._chunk, in_time))
        curve = lengths.survival(known - rows.prompt_len[taken])
        life = float(np.minimum(curve.quantiles(np.zeros(1, np.int64), 64), output).mean())
        # [taken * _LIKELY] seconds until each ends, in each of several equally likely ways, and what those
        # take that it gives way to; the time for chunks of prompts comes on top of both.
        to_come = _to_come(worker, taken, curve).ravel()
        self.ends: Floats = (to_come + len(worker.flight)) * self._step
        self.lives: Floats = np.full(len(to_come), max(1.0, life) * self._step)

    def seconds(self, rows: float, share: float, ahead: Demand) -> float:
        """With `rows` seconds until enough rows are free, and this share of the prompts ahead to be read."""
        tokens = self._unread + share * ahead.tokens
        work = StepWork(0, int(tokens), 0, self._unattended + share * ahead.attended)
        reading = self._model.seconds(work) - self._model.seconds(StepWork())
        return max(rows, tokens / self._chunk * self._step) + reading


def _to_come(worker: Worker, taken: Ints, curve: Survival) -> Floats:
    """[taken, _LIKELY] tokens that each row may still draw."""
    rows = worker.rows
    produced = rows.num_known[taken] - rows.prompt_len[taken]
    left = (rows.max_length[taken] - rows.num_known[taken])[:, None]
    likely = np.minimum(curve.quantiles(produced, _LIKELY) - produced[:, None], left)
    return np.where(rows.ends_by_count(taken)[:, None], left, likely)


class _Turnover:
    """How many rows will have become free, over time, those counted again that do so several times."""

    def __init__(self, ends: Floats, lives: Floats) -> None:
        """A row is free at one of `_LIKELY` entries of `ends` [n], then once in its entry of `lives` [n]."""
        order = np.argsort(ends, kind="stable")
        self._ends, rates = ends[order], 1.0 / np.maximum(lives[order], 1e-6)
        # Behind the k-th end the number grows linearly up to the next one.
        self._rate = np.cumsum(rates) / _LIKELY
        self._offset = np.cumsum(1.0 - self._ends * rates) / _LIKELY
        self._reached = self._offset + self._ends * self._rate

    def until(self, wanted: int) -> float:
        """Seconds until `wanted` rows have become free."""
        if wanted <= 0 or not len(self._ends):
            return 0.0
        at = int(np.searchsorted(self._reached, wanted))
        end = float(self._ends[at]) if at < len(self._ends) else float("inf")
        if not at:
            return end
        return min(end, (wanted - float(self._offset[at - 1])) / float(self._rate[at - 1]))
