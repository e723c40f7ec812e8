"""Messages to frames and back, with bounds: a frame that does not decode is a `ProtocolError`, never more."""

import hashlib
import types
import typing
from typing import Generic, TypeVar

import msgspec

from .errors import ProtocolError
from .lifecycle import SupervisorMessage, ToSupervisor
from .replies import SchedulerReply
from .requests import ClientMessage
from .steps import ToWorker, WorkerMessage

MAX_FRAME = 64 << 20  # bytes; a prompt of 16 million tokens

T = TypeVar("T")


class Decoder(Generic[T]):
    """Decodes the frames of one direction of one wire."""

    def __init__(self, union: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(union)

    def decode(self, frame: bytes | memoryview) -> T:
        """The message in `frame`. Raises ProtocolError for anything else."""
        if len(frame) > MAX_FRAME:
            raise ProtocolError(f"a frame of {len(frame)} bytes is over the bound of {MAX_FRAME}")
        try:
            return self._decoder.decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
            raise ProtocolError(f"not a message of this wire: {error}") from error


def client_decoder() -> Decoder[ClientMessage]:
    """Frames a client sends to the scheduler."""
    return Decoder(ClientMessage)


def reply_decoder() -> Decoder[SchedulerReply]:
    """Frames the scheduler sends to a client."""
    return Decoder(SchedulerReply)


def worker_decoder() -> Decoder[WorkerMessage]:
    """Frames a worker sends to the scheduler."""
    return Decoder(WorkerMessage)


def to_worker_decoder() -> Decoder[ToWorker]:
    """Frames the scheduler sends to a worker."""
    return Decoder(ToWorker)


def supervisor_decoder() -> Decoder[SupervisorMessage]:
    """Frames that whoever started the processes sends to the scheduler."""
    return Decoder(SupervisorMessage)


def to_supervisor_decoder() -> Decoder[ToSupervisor]:
    """Frames the scheduler sends to whoever started the processes."""
    return Decoder(ToSupervisor)


_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """The frame of a message."""
    return _encoder.encode(message)


def messages() -> list[type[msgspec.Struct]]:
    """Every message class, in the order the documentation lists them."""
    found: list[type[msgspec.Struct]] = []
    for union in (ClientMessage, SchedulerReply, ToWorker, WorkerMessage, SupervisorMessage, ToSupervisor):
        found += [kind for kind in typing.get_args(union) or (union,) if kind not in found]
    return found


def records() -> list[type[msgspec.Struct]]:
    """Every struct that is a part of a message, in order of first use."""
    found: list[type[msgspec.Struct]] = []
    queue: list[object] = list(messages())
    while queue:
        kind = queue.pop(0)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in messages():
                if kind in found:
                    continue
                found.append(kind)
            queue += list(typing.get_type_hints(kind).values())
        elif isinstance(kind, types.UnionType) or typing.get_origin(kind) is not None:
            queue += list(typing.get_args(kind))
    return found


def _fingerprint() -> str:
    lines = [
        f"{kind.__name__} {name}: {hint}"
        for kind in [*messages(), *records()]
        for name, hint in typing.get_type_hints(kind).items()
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


FINGERPRINT = _fingerprint()
