"""The one form of every message: a frozen, tagged MessagePack array, decoded into a struct."""

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False, forbid_unknown_fields=True):
    """Base of all messages: on the wire `[class name, field, field, ...]`, fields in class order."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A part of a message: on the wire `[field, field, ...]`."""
