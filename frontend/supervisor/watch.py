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


class EngineWatch:
    """Knows how far the engine has come, over all lives of the scheduler. Not thread-safe.

    Attributes:
        progress: steps completed, and faults narrowed down; only grows.
        was_ready: whether a generation could run at some time.
        silent_since: when the scheduler was first asked without an answer so far; None when none is due.
    """

    def __init__(self, endpoint: str) -> None:
        self.progress = 0
        self.was_ready = False
        self.silent_since: float | None = None
        self._decoder = to_supervisor_decoder()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = new_dealer(self._context, SUPERVISOR, endpoint)
        self._socket.connect(endpoint)
        self._seen: tuple[int, int] = (-1, 0)  # incarnation of the scheduler, and its count
        self._stuck: frozenset[int] = frozenset()

    def ask(self) -> None:
        """Ask for progress."""
        if self.silent_since is None:
            self.silent_since = time.monotonic()
        send(self._socket, encode(Watch()))

    def read(self, within: float = 0.0) -> set[int]:
        """Take in the answers that have come, and one that comes `within` so many seconds.

        Returns pids of workers that were stuck in an answer and in the one before it: the first may have been
        given by a scheduler, or a machine, that had itself just stood still.
        """
        stuck: set[int] = set()
        wait = round(within * 1e3)
        while self._socket.poll(wait):
            wait = 0
            try:
                answer = self._decoder.decode(self._socket.recv(zmq.DONTWAIT))
            except ProtocolError as error:
                _log.error("dropped a message of the scheduler: %s", error)
                continue
            self.silent_since = None
            stuck |= self._take(answer)
        return stuck

    def tell_ended(self, role: str, pid: int, cause: str, *, fault: bool) -> None:
        """Tell the end of a process, if it was a worker's."""
        if (found := _WORKER.fullmatch(role)) is not None:
            group, rank = map(int, found.groups())
            send(self._socket, encode(ProcessEnded(group, rank, pid, fault, cause)))

    def forget(self) -> None:
        """The scheduler is gone: what it was asked will not be answered."""
        self.silent_since = None

    def close(self) -> None:
        self._socket.close(0)
        self._context.term()

    def _take(self, answer: Progress) -> set[int]:
        incarnation, before = self._seen
        self.progress += answer.count - before if answer.incarnation == incarnation else answer.count
        self._seen = answer.incarnation, answer.count
        self.was_ready |= answer.ready
        now, self._stuck, earlier = frozenset(answer.stuck), frozenset(answer.stuck), self._stuck
        return set(now & earlier)
