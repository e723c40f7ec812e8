"""How a model writes its answers: by its chat template, or as the server's owner says."""

from dataclasses import dataclass

from ....protocol.errors import UsageError
from ..tools import formats as tools
from . import reasoning

_BY_TEMPLATE, _NONE = "auto", "none"
# Names that others have for the same formats.
_TOOL_ALIASES = {"qwen": "hermes", "llama": "llama3_json", "llama4_pythonic": "pythonic"}
_REASONING_ALIASES = {"deepseek_r1": "think", "qwen3": "think"}

TOOL_PARSERS = (_BY_TEMPLATE, _NONE, *tools.FORMATS, *_TOOL_ALIASES)
REASONING_PARSERS = (_BY_TEMPLATE, _NONE, *reasoning.FORMATS, *_REASONING_ALIASES)


@dataclass(frozen=True)
class AnswerStyle:
    """The formats of calls and of reasoning; None for a model that has none."""

    tools: tools.ToolFormat | None
    reasoning: reasoning.ReasoningFormat | None


def answer_style(
    source: str, *, tool_parser: str = _BY_TEMPLATE, reasoning_parser: str = _BY_TEMPLATE
) -> AnswerStyle:
    """The style of a model with this chat template. Raises UsageError for a parser that does not exist."""
    _check("tool_call_parser", tool_parser, TOOL_PARSERS)
    _check("reasoning_parser", reasoning_parser, REASONING_PARSERS)
    tool_parser = _TOOL_ALIASES.get(tool_parser, tool_parser)
    reasoning_parser = _REASONING_ALIASES.get(reasoning_parser, reasoning_parser)
    tool_name = tools.format_of_template(source) if tool_parser == _BY_TEMPLATE else tool_parser
    think_name = (
        reasoning.format_of_template(source) if reasoning_parser == _BY_TEMPLATE else reasoning_parser
    )
    return AnswerStyle(tools.FORMATS.get(tool_name or _NONE), reasoning.FORMATS.get(think_name or _NONE))


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} must be one of {', '.join(known)}, got {value!r}", param=name)
