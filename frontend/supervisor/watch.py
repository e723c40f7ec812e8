"""The line to the scheduler of whoever started the processes: progress is asked for, ends are told."""

import logging
import re
import time

import zmq

from ...protocol.channels import SUPERVISOR, new_dealer, send
from ...protocol.codec import encode, to_supervisor_decoder
from ...protocol.errors import ProtocolError
from ...protocol.lifecycle import ProcessEnded, Progress, Watch

_log = logging.getLogger(__name__)
_WORKER = re.compile(r"worker-(\d+)-(\d+)")

_RECONNECT_MS = 10  # it is there before the scheduler, and a test of life must not come late


def is_same_group(role: str, other: str) -> bool:
    """Whether two processes are ranks of one worker group."""
    found, wanted = _WORKER.fullmatch(role), _WORKER.fullmatch(other)
    return found is not None and wanted is not None and found[1] == wanted[1]


class EngineWatch:
    """Knows how far the engine has come, over all lives of the scheduler. Not thread-safe.

    Attributes:
        progress: steps completed, and faults narrowed down; only grows.
        was_ready: whether a generation could run at some time.
    """

    def __init__(self, endpoint: str) -> None:
        self.progress = 0
        self.was_ready = False
        self._decoder = to_supervisor_decoder()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = new_dealer(self._context, SUPERVISOR, endpoint)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.connect(endpoint)
        self._seen: tuple[int, int] = (-1, 0)  # incarnation of the scheduler, and its count
        self._stuck: frozenset[int] = frozenset()
        self._token = 0  # of the last question
        self._asked: float | None = None  # when the first question was asked that has no answer
        self._heard = False  # this life of the scheduler has answered

    @property
    def silence(self) -> float:
        """Seconds for which a scheduler that used to answer has not done so."""
        return time.monotonic() - self._asked if self._heard and self._asked is not None else 0.0

    def ask(self) -> None:
        """Ask for progress. An answer to an earlier question is then no longer waited for."""
        if self._asked is None:
            self._asked = time.monotonic()
        self._token += 1
        send(self._socket, encode(Watch(self._token)))

    def read(self, within: float = 0.0) -> set[int]:
        """Take in the answers that have come, and the one that is due if it comes `within` so many seconds.

        Returns pids of workers that were stuck in an answer and in the one before it: the first may have been
        given by a scheduler, or a machine, that had itself just stood still.
        """
        stuck: set[int] = set()
        deadline = time.monotonic() + within
        while self._socket.poll(self._patience(deadline)):
            try:
                answer = self._decoder.decode(self._socket.recv(zmq.DONTWAIT))
            except ProtocolError as error:
                _log.error("dropped a message of the scheduler: %s", error)
                continue
            self._heard = True
            if answer.token == self._token:
                self._asked = None
            stuck |= self._take(answer)
        return stuck

    def tell_ended(self, role: str, pid: int, cause: str, *, fault: bool) -> None:
        """Tell the end of a process, if it was a worker's."""
        if (found := _WORKER.fullmatch(role)) is not None:
            group, rank = map(int, found.groups())
            send(self._socket, encode(ProcessEnded(group, rank, pid, fault, cause)))

    def forget(self) -> None:
        """The scheduler is gone: what it was asked will not be answered."""
        self._asked, self._heard = None, False

    def close(self) -> None:
        self._socket.close(0)
        self._context.term()

    def _patience(self, deadline: float) -> int:
        """Milliseconds to wait for an answer."""
        return 0 if self._asked is None else max(0, round((deadline - time.monotonic()) * 1e3))

    def _take(self, answer: Progress) -> set[int]:
        incarnation, before = self._seen
        self.progress += answer.count - before if answer.incarnation == incarnation else answer.count
        self._seen = answer.incarnation, answer.count
        self.was_ready |= answer.ready
        now, self._stuck, earlier = frozenset(answer.stuck), frozenset(answer.stuck), self._stuck
        return set(now & earlier)
