"""Applies a step's result: what it wrote becomes known, its tokens go to their choices, and some end.

A result goes through its step's own map of row to choice. A row that has changed hands since is left alone:
its token belongs to a choice that was preempted and takes it still, or to one that ended and does not.
"""

import numpy as np
from numpy.typing import NDArray

from ...protocol.errors import InvalidRequestError, OctavoError, ProtocolError, RequestFailedError
from ...protocol.ids import FinishReason
from ...protocol.replies import Start
from ...protocol.steps import RowError, StepResult
from ..clients.deltas import TokenEntries
from ..clients.logprob_rows import LogprobRows
from ..core.ends import end_choice, end_request, release_forks
from ..core.request import TOKEN_BYTES, Choice, State
from ..core.state import SchedulerState
from ..core.stats import StepTimes
from .cohort import Cohort
from .rows import Int32s, Ints
from .worker import Step, Worker


class ResultReader:
    """Applies results of one worker of the state."""

    def __init__(self, state: SchedulerState, worker: Worker, now: float) -> None:
        self._state = state
        self._worker = worker
        self._rows = worker.rows
        self._now = now

    def apply(self, result: StepResult) -> None:
        """Apply a result of this worker's life. Raises ProtocolError when it does not fit the next step."""
        flight = self._worker.flight
        if not flight or result.step != flight[0].number:
            wanted = flight[0].number if flight else "none"
            raise ProtocolError(f"a result of step {result.step} when {wanted} was next")
        step = flight[0]
        at, tokens = self._tokens(step, result)
        logprobs = LogprobRows.read(result.logprobs, len(tokens)) if result.logprobs else None
        flight.popleft()
        self._worker.note_step(step, self._now)
        times = StepTimes(result.device_ms / 1e3, result.host_ms / 1e3, self._now - step.sent)
        self._state.stats.steps += 1
        self._state.stats.step_times.append(times)

        failed = {error.row: error for error in result.errors}
        if len(at) < len(step.sampled):
            silent = set(step.sampled.tolist()) - set(at.tolist())
            rows = [int(step.rows[index]) for index in silent]
            failed = {row: RowError(row, "the worker returned no token") for row in rows} | failed
        self._tell_prompts(step, result)
        present = self._rows.tenancy[step.rows] == step.tenancy
        if failed:
            self._fail(step, failed)
            present = self._rows.tenancy[step.rows] == step.tenancy
        name = result.row
        if present.all():
            self._write(step.rows, step.end)
        else:
            self._write(step.rows[present], step.end[present])
            drawn = present[at]
            self._take_late(step, at[~drawn], tokens[~drawn], _select(logprobs, ~drawn))
            at, tokens, logprobs = at[drawn], tokens[drawn], _select(logprobs, drawn)
            name = step.rows[at].astype(np.int32).tobytes()
        if len(at):
            self._take(step.rows[at], name, tokens, logprobs)
        self._leave_windows()

    def _tokens(self, step: Step, result: StepResult) -> tuple[Ints, Int32s]:
        """Indexes into the step's columns [n] of the rows that drew a token, and the tokens [n]."""
        if len(result.token) != len(result.row) or len(result.token) % TOKEN_BYTES:
            raise ProtocolError(f"the columns of step {result.step} have unequal lengths")
        tokens: Int32s = np.frombuffer(result.token, np.int32)
        vocab_size = self._state.config.vocab_size
        if len(tokens) and not (tokens.min() >= 0 and tokens.max() < vocab_size):
            raise ProtocolError(f"step {result.step} drew a token outside [0, {vocab_size - 1}]")
        if result.row == step.sampled_rows:
            return step.sampled, tokens
        index = {int(row): int(at) for at, row in zip(step.sampled, step.rows[step.sampled], strict=True)}
        rows = np.frombuffer(result.row, np.int32).tolist()
        if any(row not in index for row in rows) or len(set(rows)) < len(rows):
            raise ProtocolError(f"step {result.step} drew tokens for rows that its plan did not ask for")
        return np.array([index[row] for row in rows], np.int64), tokens

    def _fail(self, step: Step, failed: dict[int, RowError]) -> None:
        """End the requests of rows that failed, or that should have drawn a token and did not."""
        for row, tenancy in zip(step.rows.tolist(), step.tenancy.tolist(), strict=True):
            if row in failed and self._rows.tenancy[row] == tenancy:
                request = self._rows.at(row).request
                error = _error_of(request.name, failed[row])
                end_request(self._state, request, FinishReason.ERROR, self._now, error)

    def _tell_prompts(self, step: Step, result: StepResult) -> None:
        """Pass on the log-probabilities of prompt tokens, those of choices that were preempted since too."""
        for part in result.prompt_logprobs:
            at = (step.rows == part.row).nonzero()[0]
            if not len(at):
                raise ProtocolError(f"step {result.step} tells of the prompt of a row it did not compute")
            count = len(part.logprobs.counts) // TOKEN_BYTES
            LogprobRows.read(part.logprobs, count)
            tenancy = int(step.tenancy[at[0]])
            present = self._rows.tenancy[part.row] == tenancy
            choice = self._rows.at(part.row) if present else self._worker.late.get(tenancy)
            if choice is None or choice.state is State.ENDED:
                continue
            request = choice.request
            if part.start <= request.num_told:
                request.num_told = max(request.num_told, part.start + count)
                self._state.deltas.add_prompt(request, part.start, part.logprobs)

    def _write(self, rows: Ints, end: Ints) -> None:
        """Everything before `end` [n] of `rows` [n] is in the cache now: full blocks get their names."""
        self._rows.num_written[rows] = end
        if not self._worker.memory.caching:
            return
        for group in self._worker.memory.groups:
            full = end >= (group.named[rows] + 1) * group.block_size
            if not full.any():
                continue
            for row, written in zip(rows[full].tolist(), end[full].tolist(), strict=True):
                self._rows.flush(row)
                group.name_written(row, self._rows.at(row).chain, written)
        if self._worker.followers.any:
            for row, length in zip(rows.tolist(), end.tolist(), strict=True):
                self._worker.followers.written(row, length)

    def _take(self, rows: Ints, name: bytes, tokens: Int32s, logprobs: LogprobRows | None) -> None:
        """Drawn tokens [n] of `rows` [n], column `name`, that still belong to the same choices."""
        columns = self._rows
        cohort = columns.cohort(rows, name)
        known = columns.append(rows, tokens)
        ends = self._ends(cohort, rows, tokens, known)
        finish, stop_token = ends or (None, None)
        starts: dict[int, Start] = {}
        if cohort.fresh:
            cohort.fresh = False
            starts = self._first_tokens(rows)
        entries = TokenEntries(
            (known - cohort.prompt_end).astype(np.int32), finish, stop_token, tokens, logprobs
        )
        self._state.deltas.add_tokens(cohort.recipients, entries, starts)
        self._state.stats.generated_tokens += len(rows)
        if self._state.order.counts_tokens:
            self._state.order.served(cohort.tenant)
        if ends is not None:
            for at in ends[0].nonzero()[0].tolist():
                end_choice(self._state, columns.at(int(rows[at])), FinishReason(int(ends[0][at])), self._now)

    def _ends(self, cohort: Cohort, rows: Ints, tokens: Int32s, known: Ints) -> tuple[Int32s, Int32s] | None:
        """[n] FinishReason and stop token of rows that have just been given their tokens; None: none ends."""
        cut: NDArray[np.bool_] = known >= cohort.max_length
        stopped = self._stopped(cohort, tokens, known)
        if not stopped and not cut.any():
            return None
        finish = cut.astype(np.int32) * np.int32(FinishReason.LENGTH)
        stop_token = np.full(len(tokens), -1, np.int32)
        for at in stopped:
            finish[at] = FinishReason.STOP
            stop_token[at] = self._stop_token(self._rows.at(int(rows[at])), int(tokens[at]))
        return finish, stop_token

    def _stopped(self, cohort: Cohort, tokens: Int32s, known: Ints) -> list[int]:
        """Indexes of rows whose token ends their choice."""
        found: set[int] = set()
        for stops in cohort.stops:
            found.update((stops == tokens).nonzero()[0].tolist())
        found.update(at for at, stops in cohort.stop_sets.items() if int(tokens[at]) in stops)
        return sorted(at for at in found if known[at] >= cohort.min_length[at])

    def _stop_token(self, choice: Choice, token: int) -> int:
        """What to report as the reason of a stop: nothing for the model's own end tokens."""
        params = choice.request.params
        own = not params.ignore_eos and token in self._state.config.eos_token_ids
        return -1 if own else token

    def _first_tokens(self, rows: Ints) -> dict[int, Start]:
        """Facts about choices whose first token this is, by index into `rows` [n]."""
        starts = {}
        for at in self._rows.fresh[rows].nonzero()[0].tolist():
            row = int(rows[at])
            self._rows.fresh[row] = False
            starts[at] = self._first_token(self._rows.at(row))
            self._rows.keep[row] = np.iinfo(np.int64).max
        return starts

    def _first_token(self, choice: Choice) -> Start:
        request = choice.request
        if not request.counted:
            request.counted = True
            self._state.stats.prompt_tokens += request.prompt_len
            client = self._state.clients.number(request.client_number)
            if client is not None and client.direct:
                self._state.stats.direct_prompt_tokens += request.prompt_len
        request.story.note(self._now, "first token", f"choice {choice.index}")
        release_forks(self._state, choice, self._now)
        return Start(
            index=0,
            num_cached=request.num_cached,
            queued_ms=(request.started - request.arrived) * 1e3,
            prefill_ms=(self._now - request.started) * 1e3,
        )

    def _leave_windows(self) -> None:
        """Blocks that no later position reads are given back."""
        rows = self._rows
        for group in self._worker.memory.groups:
            if not group.window:
                continue
            taken = rows.taken()
            safe = np.minimum(rows.num_written[taken], rows.keep[taken])
            lowest = np.maximum(safe - group.window + 1, 0) // group.block_size
            due = lowest > group.first[taken]
            for row, written in zip(taken[due].tolist(), safe[due].tolist(), strict=True):
                group.leave_window(row, written)

    def _take_late(self, step: Step, at: Ints, tokens: Int32s, logprobs: LogprobRows | None) -> None:
        """Tokens [n] of choices that no longer have the row in which they were drawn."""
        for index, tenancy in enumerate(step.tenancy[at].tolist()):
            choice = self._worker.late.get(tenancy)
            if choice is not None:
                choice.pending -= 1
                if not choice.pending:
                    del self._worker.late[tenancy]
            if choice is None or choice.state is not State.WAITING:
                self._state.stats.discarded_tokens += 1
                continue
            mask = np.arange(len(tokens)) == index
            self._take_late_token(choice, tokens[index], _select(logprobs, mask))

    def _take_late_token(self, choice: Choice, token: np.int32, logprobs: LogprobRows | None) -> None:
        """A preempted choice takes the token that was in flight, and may end by it."""
        request, start = choice.request, choice.num_output
        choice.output += token.tobytes()
        self._state.stats.generated_tokens += 1
        finish, stop_token = FinishReason.NONE, -1
        if int(token) in request.stops and choice.num_output >= request.params.min_tokens:
            finish, stop_token = FinishReason.STOP, self._stop_token(choice, int(token))
        elif choice.num_output >= request.max_output:
            finish = FinishReason.LENGTH
        first = self._first_token(choice) if choice.fresh else None
        choice.fresh = False
        self._state.deltas.add_late(choice, start, token.tobytes(), finish, stop_token, first, logprobs)
        if finish:
            end_choice(self._state, choice, finish, self._now)


def _select(logprobs: LogprobRows | None, mask: NDArray[np.bool_]) -> LogprobRows | None:
    return None if logprobs is None else logprobs.select(mask.nonzero()[0])


def _error_of(name: str, failure: RowError) -> OctavoError:
    message = f"{name}: {failure.message}"
    return InvalidRequestError(message, param=failure.param) if failure.param else RequestFailedError(message)
