"""What each client is owed since the last turn, gathered into one message."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...protocol.errors import OctavoError
from ...protocol.ids import FinishReason
from ...protocol.replies import Deltas, Fault, LogprobColumns, PromptLogprobs, Start
from ..core.request import TOKEN_BYTES, Choice, Request
from .logprob_rows import LogprobRows

Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TokenEntries:
    """One token for each of n choices, as columns."""

    request: Ints
    attempt: Int32s
    choice: Int32s
    start: Int32s  # index of the token in the choice's output
    finish: Int32s
    stop_token: Int32s
    token: Int32s
    logprobs: LogprobRows | None = None

    def select(self, at: Ints) -> "TokenEntries":
        return TokenEntries(
            self.request[at],
            self.attempt[at],
            self.choice[at],
            self.start[at],
            self.finish[at],
            self.stop_token[at],
            self.token[at],
            None if self.logprobs is None else self.logprobs.select(at),
        )


@dataclass(slots=True)
class _Owed:
    """Parts of one client's next message, in order."""

    size: int = 0  # entries so far
    columns: list[tuple[bytes, ...]] = field(default_factory=list)
    logprobs: list[tuple[int, LogprobRows | None]] = field(default_factory=list)  # number of tokens, theirs
    starts: list[Start] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    prompts: list[PromptLogprobs] = field(default_factory=list)

    def message(self) -> Deltas:
        columns = self.columns or [(b"",) * 8]
        joined = columns[0] if len(columns) == 1 else map(b"".join, zip(*columns, strict=True))
        request, attempt, choice, start, count, finish, stop_token, tokens = joined
        told = any(part is not None and len(part.tokens) for _, part in self.logprobs)
        return Deltas(
            request,
            attempt,
            choice,
            start,
            count,
            finish,
            stop_token,
            tokens,
            tuple(self.starts),
            tuple(self.faults),
            LogprobRows.join([part or LogprobRows.none(n) for n, part in self.logprobs]) if told else None,
            tuple(self.prompts),
        )


class DeltaBook:
    """Deltas of all clients since they were last taken."""

    def __init__(self) -> None:
        self._owed: dict[int, _Owed] = {}
        self._ones = b""

    def add_tokens(self, clients: Ints, entries: TokenEntries, starts: dict[int, Start]) -> None:
        """Tokens of one step. `clients` [n] are client numbers; `starts` goes by index into the columns."""
        present = dict.fromkeys(clients.tolist())
        if len(present) == 1:
            self._add(int(clients[0]), entries, starts)
            return
        for client in present:
            at = (clients == client).nonzero()[0]
            mine = {int(np.searchsorted(at, index)): start for index, start in starts.items() if index in at}
            self._add(client, entries.select(at), mine)

    def _add(self, client: int, entries: TokenEntries, starts: dict[int, Start]) -> None:
        owed = self._owed.setdefault(client, _Owed())
        owed.starts += [_at_index(start, owed.size + at) for at, start in starts.items()]
        size = len(entries.token)
        owed.logprobs.append((size, entries.logprobs))
        owed.size += size
        if len(self._ones) != size * TOKEN_BYTES:
            self._ones = np.ones(size, np.int32).tobytes()
        owed.columns.append(
            (
                entries.request.tobytes(),
                entries.attempt.tobytes(),
                entries.choice.tobytes(),
                entries.start.tobytes(),
                self._ones,
                entries.finish.tobytes(),
                entries.stop_token.tobytes(),
                entries.token.tobytes(),
            )
        )

    def add_prompt(self, request: Request, start: int, logprobs: LogprobColumns) -> None:
        """Log-probabilities of a request's prompt tokens from position `start` on."""
        owed = self._owed.setdefault(request.client_number, _Owed())
        owed.prompts.append(PromptLogprobs(request.number, request.attempt, start, logprobs))

    def add_end(self, choice: Choice, finish: FinishReason, error: OctavoError | None = None) -> None:
        """A choice ended without a token."""
        if error is not None:
            owed = self._owed.setdefault(choice.request.client_number, _Owed())
            owed.faults.append(Fault(owed.size, error.kind, error.message))
        self.add_late(choice, choice.num_output, b"", finish, -1)

    def add_late(
        self,
        choice: Choice,
        start: int,
        tokens: bytes,
        finish: FinishReason,
        stop_token: int,
        first: Start | None = None,
        logprobs: LogprobRows | None = None,
    ) -> None:
        """Tokens or an end of one choice; `tokens` is an int32 column, the first of them at index `start`."""
        request = choice.request
        owed = self._owed.setdefault(request.client_number, _Owed())
        if first is not None:
            owed.starts.append(_at_index(first, owed.size))
        count = len(tokens) // TOKEN_BYTES
        owed.logprobs.append((count, logprobs))
        owed.size += 1
        numbers = (request.attempt, choice.index, start, count, int(finish), stop_token)
        columns = [np.int32(number).tobytes() for number in numbers]
        owed.columns.append((np.int64(request.number).tobytes(), *columns, tokens))

    def forget(self, client: int) -> None:
        """The client is gone."""
        self._owed.pop(client, None)

    def take(self) -> list[tuple[int, Deltas]]:
        """A message for each client that is owed something; nothing is owed afterwards."""
        if not self._owed:
            return []
        owed, self._owed = self._owed, {}
        return [(client, parts.message()) for client, parts in owed.items()]


def _at_index(start: Start, index: int) -> Start:
    """The same facts about the entry at another index."""
    return Start(index, start.num_cached, start.queued_ms, start.prefill_ms)
