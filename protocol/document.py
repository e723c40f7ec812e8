"""The page `docs/protocol.md`, made from the message classes: `python -m octavo.protocol.document`.

A field's meaning is the comment behind it in the source, so that it is written once.
"""

import ast
import enum
import inspect
import sys
import types
import typing

import msgspec

from .channels import DEAD_AFTER_MS, HEARTBEAT_MS
from .codec import FINGERPRINT, MAX_FRAME, encode, records
from .columns import pack_i32
from .document_text import TEXT
from .ids import FinishReason
from .lifecycle import SupervisorMessage, ToSupervisor
from .replies import SchedulerReply
from .requests import ClientHello, ClientMessage, Submit
from .sampling import SamplingParams
from .steps import ToWorker, WorkerMessage

_DIRECTIONS = (
    ("Client to scheduler", ClientMessage),
    ("Scheduler to client", SchedulerReply),
    ("Scheduler to worker", ToWorker),
    ("Worker to scheduler", WorkerMessage),
    ("Supervisor to scheduler", SupervisorMessage),
    ("Scheduler to supervisor", ToSupervisor),
)


def document() -> str:
    """The whole page, in Markdown."""
    parts = [_introduction()]
    for title, union in _DIRECTIONS:
        parts.append(f"## {title}\n")
        parts += [_describe(kind) for kind in typing.get_args(union) or (union,)]
    parts.append("## Parts of messages\n")
    parts += [_describe(kind) for kind in records()]
    parts.append("## Finish reasons\n")
    parts.append(_table(("value", "name"), [(str(int(r)), r.name) for r in FinishReason]))
    return "\n".join(parts)


def _introduction() -> str:
    hello = ClientHello(fingerprint=FINGERPRINT, name="example")
    submit = Submit(
        request=1,
        attempt=0,
        name="example-1",
        prompt=pack_i32([9707, 11]),
        params=SamplingParams(max_tokens=4, temperature=0.0),
        seed=42,
    )
    return TEXT.format(
        fingerprint=FINGERPRINT,
        max_frame=MAX_FRAME >> 20,
        heartbeat=HEARTBEAT_MS,
        dead_after=DEAD_AFTER_MS,
        hello=_as_array(hello),
        hello_bytes=_hex(encode(hello)),
        submit=_as_array(submit),
        submit_bytes=_hex(encode(submit)),
    )


def _as_array(message: msgspec.Struct) -> str:
    return repr(msgspec.msgpack.decode(encode(message)))


def _hex(frame: bytes) -> str:
    pairs = [f"{byte:02x}" for byte in frame]
    return "\n".join(" ".join(pairs[i : i + 24]) for i in range(0, len(pairs), 24))


def _describe(kind: type[msgspec.Struct]) -> str:
    """A heading, the docstring and the table of fields."""
    lines = [f"### {kind.__name__}\n", inspect.cleandoc(kind.__doc__ or ""), ""]
    comments = field_comments(kind)
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    rows: list[tuple[str, ...]] = [
        (f"`{name}`", _type_name(hint), _default(fields[name]), comments.get(name, ""))
        for name, hint in typing.get_type_hints(kind).items()
    ]
    header: tuple[str, ...] = ("field", "type", "default", "meaning")
    if kind.__struct_config__.array_like:
        first = 1 if kind.__struct_config__.tag is not None else 0  # the name stands in front of a message
        header, rows = ("at", *header), [(str(at), *row) for at, row in enumerate(rows, first)]
    else:
        lines += ["A map of field name to value; a field with its default is left out.", ""]
    lines.append(_table(header, rows) if rows else "No fields.\n")
    return "\n".join(lines)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, ("---",) * len(header), *rows)]
    return "\n".join(lines) + "\n"


def field_comments(kind: type) -> dict[str, str]:
    """What the source says behind each field of a class."""
    source = inspect.getsource(kind)
    lines = source.splitlines()
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno:
            _, _, comment = lines[node.end_lineno - 1][node.end_col_offset or 0 :].partition("# ")
            found[node.target.id] = comment.replace("|", "\\|")
    return found


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        return "required"
    if isinstance(field.default, enum.Enum):
        return f"`{field.default.value!r}`"
    return f"`{field.default!r}`"


def _type_name(hint: object) -> str:
    """A type as a reader of MessagePack knows it."""
    if hint in _WIRE_NAMES:
        return _WIRE_NAMES[hint]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "int"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_name(argument) for argument in arguments)
    if origin is dict:
        return f"map of {_type_name(arguments[0])} to {_type_name(arguments[1])}"
    if origin in (list, tuple):
        return f"array of {_type_name(arguments[0])}"
    raise TypeError(f"the wire has no name for {hint!r}")


_WIRE_NAMES: dict[object, str] = {
    int: "int",
    float: "float",
    str: "str",
    bytes: "bin",
    bool: "bool",
    type(None): "nil",
    typing.Any: "any",
}


if __name__ == "__main__":
    sys.stdout.write(document())
