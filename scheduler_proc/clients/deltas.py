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

    start: Int32s  # index of the token in the choice's output
    finish: Int32s | None  # None: no choice ends
    stop_token: Int32s | None
    token: Int32s
    logprobs: LogprobRows | None = None

    def select(self, at: Ints) -> "TokenEntries":
        return TokenEntries(
            self.start[at],
            None if self.finish is None else self.finish[at],
            None if self.stop_token is None else self.stop_token[at],
            self.token[at],
            None if self.logprobs is None else self.logprobs.select(at),
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """One client's share of n choices: columns that are the same for each of their tokens."""

    client: int  # number
    at: Ints | None  # [m] indexes of its choices, None: all are its own
    request: bytes
    attempt: bytes
    choice: bytes
    count: bytes  # 1 each
    finish: bytes  # NONE each
    stop_token: bytes  # -1 each


@dataclass(frozen=True, slots=True)
class Recipients:
    """Whose n choices are, in which order."""

    parts: tuple[_Part, ...]

    @classmethod
    def split(cls, client: Ints, request: Ints, attempt: Int32s, choice: Int32s) -> "Recipients":
        """From columns [n]; `client` holds numbers of clients."""
        present = list(dict.fromkeys(client.tolist()))
        parts = []
        for number in present:
            at = (client == number).nonzero()[0]
            columns = (column[at].tobytes() for column in (request, attempt, choice))
            constants = (np.full(len(at), value, np.int32).tobytes() for value in (1, FinishReason.NONE, -1))
            parts.append(_Part(number, at if len(present) > 1 else None, *columns, *constants))
        return cls(tuple(parts))


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

    def add_tokens(self, recipients: Recipients, entries: TokenEntries, starts: dict[int, Start]) -> None:
        """Tokens of one step, one for each choice; `starts` goes by index into the columns."""
        for part in recipients.parts:
            if part.at is None:
                self._add(part, entries, starts)
                continue
            mine = {int(np.searchsorted(part.at, i)): start for i, start in starts.items() if i in part.at}
            self._add(part, entries.select(part.at), mine)

    def _add(self, part: _Part, entries: TokenEntries, starts: dict[int, Start]) -> None:
        owed = self._owed.setdefault(part.client, _Owed())
        owed.starts += [_at_index(start, owed.size + at) for at, start in starts.items()]
        size = len(entries.token)
        owed.logprobs.append((size, entries.logprobs))
        owed.size += size
        owed.columns.append(
            (
                part.request,
                part.attempt,
                part.choice,
                entries.start.tobytes(),
                part.count,
                part.finish if entries.finish is None else entries.finish.tobytes(),
                part.stop_token if entries.stop_token is None else entries.stop_token.tobytes(),
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
