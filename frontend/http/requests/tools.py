"""The tools that a chat may call, and which of them it must."""

from enum import Enum
from typing import Any

import msgspec

from ....protocol.errors import InvalidRequestError, UnsupportedError

Json = Any


class FunctionSchema(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Json] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    """A tool, as templates see it."""

    type: str
    function: FunctionSchema


class FunctionName(msgspec.Struct, forbid_unknown_fields=True):
    """The function of a tool choice."""

    name: str


class NamedTool(msgspec.Struct, forbid_unknown_fields=True):
    """A tool that must be called."""

    function: FunctionName
    type: str = "function"


class ToolChoice(Enum):
    """Whether tools are called."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


def plain_tools(tools: list[Tool] | None) -> list[Json] | None:
    """The tools as plain data for a template, None when there are none."""
    return [msgspec.to_builtins(tool) for tool in tools] if tools else None


def usable_tools(
    tools: list[Tool] | None, choice: str | NamedTool | None
) -> tuple[list[Tool], ToolChoice | str]:
    """The tools that the model is shown, and whether it calls them; a string is the one that it must.

    Raises InvalidRequestError for a choice that fits none of the tools.
    """
    for number, tool in enumerate(tools or ()):
        if tool.type != "function":
            raise UnsupportedError(
                f"tools of type {tool.type!r} are not supported, only functions",
                param=f"tools[{number}].type",
            )
        if not tool.function.name:
            raise InvalidRequestError("a function needs a name", param=f"tools[{number}].function.name")
    chosen = _choice(choice, default=ToolChoice.AUTO if tools else ToolChoice.NONE)
    if chosen is ToolChoice.NONE or (chosen is ToolChoice.AUTO and not tools):
        return [], ToolChoice.NONE
    if not tools:
        raise InvalidRequestError("tool_choice needs tools", param="tool_choice")
    names = [tool.function.name for tool in tools]
    if isinstance(chosen, str) and chosen not in names:
        raise InvalidRequestError(
            f"tool_choice names {chosen!r}, which is not among the tools: {', '.join(names)}",
            param="tool_choice",
        )
    return tools, chosen


def _choice(choice: str | NamedTool | None, *, default: ToolChoice) -> ToolChoice | str:
    if choice is None:
        return default
    if isinstance(choice, NamedTool):
        return choice.function.name
    try:
        return ToolChoice(choice)
    except ValueError:
        allowed = ", ".join(member.value for member in ToolChoice)
        raise InvalidRequestError(
            f"tool_choice must be one of {allowed}, or name a function, got {choice!r}", param="tool_choice"
        ) from None
