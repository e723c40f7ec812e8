"""Bodies to structs. Whatever is wrong with a body is an InvalidRequestError that names the field."""

import re
from typing import Generic, TypeVar, cast

import msgspec

from ....protocol.errors import InvalidRequestError, UnsupportedError
from .fields import IGNORED, UNSUPPORTED, Endpoint

T = TypeVar("T", bound=msgspec.Struct)

# msgspec ends its messages with where: " - at `$.stop[0]`", " - at `key` in `$.logit_bias`".
_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`$")
_FIELD = re.compile(r"(?:unknown|missing required) field `(?P<name>[^`]*)`")
_ABSENT = msgspec.Raw()


class BodyDecoder(Generic[T]):
    """Decodes the bodies of one endpoint into `schema`, a struct of the fields that have an effect.

    Attributes:
        accepted: the struct that bodies are decoded into: `schema` and the fields of the two lists.
    """

    def __init__(self, schema: type[T], endpoint: Endpoint, *, ignore_unknown_fields: bool) -> None:
        own = {field.name for field in msgspec.structs.fields(schema)}
        listed = {*IGNORED[endpoint], *UNSUPPORTED[endpoint]} - own
        accepted = msgspec.defstruct(
            schema.__name__,
            [(name, msgspec.Raw, msgspec.field(default_factory=msgspec.Raw)) for name in sorted(listed)],
            bases=(schema,),
            kw_only=True,
            forbid_unknown_fields=not ignore_unknown_fields,
        )
        self.accepted = cast(type[T], accepted)
        self._unsupported = {k: v for k, v in UNSUPPORTED[endpoint].items() if k in listed}
        self._decoder = msgspec.json.Decoder(self.accepted)

    def decode(self, body: bytes) -> T:
        """The struct. Raises InvalidRequestError, and UnsupportedError for a feature that is missing."""
        try:
            decoded = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise _wrong_field(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
        except RecursionError as error:
            raise InvalidRequestError("the body is nested too deeply") from error
        for name, harmless in self._unsupported.items():
            _refuse_feature(name, getattr(decoded, name), harmless)
        return decoded


def decode_json(raw: msgspec.Raw) -> object:
    """The plain value of a part of a body that was left undecoded. Raises InvalidRequestError."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error


def _refuse_feature(name: str, raw: msgspec.Raw, harmless: tuple[object, ...]) -> None:
    if raw == _ABSENT or (value := decode_json(raw)) is None or value in harmless:
        return
    raise UnsupportedError(f"{name} is not supported by this server", param=name)


def _wrong_field(message: str) -> InvalidRequestError:
    place, field = _PLACE.search(message), _FIELD.search(message)
    path = place["path"] if place else ""
    name = field["name"] if field else ""
    # "Expected `int`, got `str`" does not read well alone: what is wrong comes first.
    what = message[: place.start()] if place else message
    param = f"{path}.{name}" if path and name else path or name
    if field and "unknown" in what:
        what = f"unknown field {param!r}"
    elif field:
        what = f"{param} is required"
    elif param:
        what = f"{param}: {what[:1].lower()}{what[1:]}"
    return InvalidRequestError(what, param=param or None)
