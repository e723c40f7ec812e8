"""What form an answer must have, as OpenAI's clients ask for it."""

from typing import Any

import msgspec

from ....protocol.errors import InvalidRequestError
from ....protocol.structured import StructuredOutputsParams

_KINDS = ("text", "json_object", "json_schema")


class JsonSchemaFormat(msgspec.Struct, forbid_unknown_fields=True):
    """A JSON schema that the answer obeys. It is enforced whether `strict` asks for that or not."""

    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None  # absent: any JSON object
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    """text, json_object, or json_schema with a schema."""

    type: str
    json_schema: JsonSchemaFormat | None = None

    def grammar(self) -> StructuredOutputsParams | None:
        """What enforces the form; None for plain text. Raises InvalidRequestError."""
        if self.type not in _KINDS:
            raise InvalidRequestError(
                f"response_format.type must be one of {', '.join(_KINDS)}, got {self.type!r}",
                param="response_format.type",
            )
        if self.type != "json_schema":
            return StructuredOutputsParams(json_object=True) if self.type == "json_object" else None
        if self.json_schema is None:
            raise InvalidRequestError(
                "response_format of type json_schema needs a json_schema", param="response_format.json_schema"
            )
        if self.json_schema.schema is None:
            return StructuredOutputsParams(json_object=True)
        return StructuredOutputsParams(json=self.json_schema.schema)
