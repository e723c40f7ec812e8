"""A journal of events: what happened to the core, so that it can happen again.

File: frames of a 4-byte little-endian length and a MessagePack struct; first a `JournalHeader`, then a
`JournalEntry` for each event. It holds prompts, so only its owner may read it. A thread writes it; a disk
that is full or too slow turns it off, and nothing else.
"""

import logging
import os
import queue
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..protocol.base import Message
from ..protocol.codec import FINGERPRINT, encode
from ..protocol.config import SchedulerConfig
from ..protocol.errors import ProtocolError
from .core.commands import Command
from .core.events import Event
from .core.scheduler import Scheduler
from .core.state import Identity

_log = logging.getLogger(__name__)

_LENGTH = struct.Struct("<I")
_MAX_BEHIND = 100_000  # events the writer may lag behind


class JournalHeader(Message, frozen=True):
    """All that a core is made of."""

    fingerprint: str
    config: SchedulerConfig
    identity: Identity


class JournalEntry(Message, frozen=True):
    """One event, and what the core answered."""

    event: Event
    digest: bytes  # of the commands, see `digest_of`


class ReplayError(Exception):
    """A replay differs from what the journal says."""


def digest_of(commands: list[Command]) -> bytes:
    """16 bytes that stand for a list of commands."""
    return blake2b(b"".join(map(encode, commands)), digest_size=16).digest()


class Journal:
    """Writes a journal in a thread of its own. Raises OSError when the file cannot be made."""

    def __init__(self, path: Path, config: SchedulerConfig, identity: Identity) -> None:
        self.active = True
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)  # it may be an older file with another mode
        self._file: BinaryIO = os.fdopen(descriptor, "wb")
        self._write(JournalHeader(FINGERPRINT, config, identity))
        self._queue: queue.SimpleQueue[tuple[Event, list[Command]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def record(self, event: Event, commands: list[Command]) -> None:
        """Queue an entry."""
        if self.active:
            self._queue.put((event, commands))
            if self._queue.qsize() > _MAX_BEHIND:
                self._give_up("the disk is too slow")

    def close(self) -> None:
        """Write what is queued and close the file."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._file:
                while (item := self._queue.get()) is not None:
                    event, commands = item
                    self._write(JournalEntry(event, digest_of(commands)))
                    if self._queue.empty():
                        self._file.flush()
        except OSError as error:
            self._give_up(str(error))

    def _write(self, message: Message) -> None:
        frame = encode(message)
        self._file.write(_LENGTH.pack(len(frame)) + frame)

    def _give_up(self, why: str) -> None:
        if self.active:
            self.active = False
            _log.error("the journal is off: %s", why)


def read_frames(path: Path) -> Iterator[bytes]:
    """The frames of a journal. A last one that was cut by a crash is left out."""
    with path.open("rb") as file:
        while len(prefix := file.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(prefix)
            frame = file.read(length)
            if len(frame) < length:
                return
            yield frame


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay that gave what the journal says."""

    events: int
    commands: int


def replay(path: Path | str, watch: Callable[[float, Scheduler], None] | None = None) -> Replayed:
    """Run a new core over the events of a journal; `watch` sees the core after each, with the time of it.

    Raises ReplayError at the first event whose commands differ, ProtocolError for a file that is no journal
    of this version, OSError when it cannot be read.
    """
    frames = read_frames(Path(path))
    try:
        header = msgspec.msgpack.decode(next(frames, b""), type=JournalHeader)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"{path} is not a journal of this version: {error}") from error
    if header.fingerprint != FINGERPRINT:
        raise ProtocolError(f"{path} was written by schema {header.fingerprint}, this is {FINGERPRINT}")
    core = Scheduler(header.config, header.identity)
    decoder = msgspec.msgpack.Decoder(JournalEntry)
    events = commands = 0
    for frame in frames:
        entry = decoder.decode(frame)
        answer = core.handle(entry.event)
        events += 1
        commands += len(answer)
        if watch is not None:
            watch(entry.event.now, core)
        if digest_of(answer) != entry.digest:
            kinds = ", ".join(type(command).__name__ for command in answer) or "nothing"
            event = type(entry.event).__name__
            raise ReplayError(
                f"event {events} ({event} at {entry.event.now:.6f} s) gave other commands: {kinds}"
            )
    return Replayed(events, commands)
