"""What the answers to a chat are made of: calls, what makes the model write them, and reasoning."""

from collections.abc import Sequence
from dataclasses import replace

from ....protocol.errors import InvalidRequestError, UnsupportedError
from ....protocol.sampling import SamplingParams
from ...text import Tokenizer
from ...text.answer.plan import AnswerPlan
from ...text.answer.style import AnswerStyle
from ...text.tools.formats import REQUIRED, ToolFormat, named
from ..requests.chat import ChatRequest
from ..requests.forced_calls import named_call, required_calls
from ..requests.tools import Tool, ToolChoice
from ..text_service import ChatPrompt

_BEHIND_REASONING = "\n{}\n\n"


def plan_answer(
    style: AnswerStyle,
    body: ChatRequest,
    tools: Sequence[Tool],
    choice: ToolChoice | str,
    params: SamplingParams,
) -> AnswerPlan:
    """What to look for. Adds to the parameters what makes the model write it.

    Raises InvalidRequestError for what does not go together, UnsupportedError where the model calls no tools.
    """
    at_most = 1 if body.parallel_tool_calls is False else None
    form = None
    if choice is ToolChoice.AUTO:
        form = _free_format(style, params)
    elif choice is not ToolChoice.NONE:
        form = _forced_format(style, tools, choice, at_most, params)
    plan = AnswerPlan(
        tools=form,
        names=frozenset(tool.function.name for tool in tools),
        max_calls=at_most,
        reasoning=style.reasoning,
        shows_reasoning=body.include_reasoning is not False,
    )
    if plan.special_tokens:
        params.skip_special_tokens = False
    return plan


def begin_answer(
    plan: AnswerPlan, prompt: ChatPrompt, params: SamplingParams, tokenizer: Tokenizer
) -> tuple[AnswerPlan, list[int]]:
    """The plan and the token ids for this prompt, which may end inside of reasoning.

    What obeys a grammar from its first token on cannot reason before it: reasoning that the prompt opened is
    closed.
    """
    form = plan.reasoning
    if form is None:
        return plan, prompt.ids
    opened = prompt.text.rstrip().endswith(form.opening)
    if params.structured_outputs is None:
        return replace(plan, opened=opened), prompt.ids
    closing = _BEHIND_REASONING.format(form.closing) if opened else ""
    ids = [*prompt.ids, *tokenizer.encode(closing, add_special_tokens=False)] if opened else prompt.ids
    return replace(plan, reasoning=None), ids


def _free_format(style: AnswerStyle, params: SamplingParams) -> ToolFormat:
    if style.tools is None:
        raise UnsupportedError(
            "the model's chat template does not show how it calls tools; the server's owner can say so with "
            "--tool-call-parser",
            param="tools",
        )
    if params.structured_outputs is not None:
        raise UnsupportedError(
            "a model that may call tools cannot be held to a grammar: set tool_choice to none or required",
            param="tool_choice",
        )
    return style.tools


def _forced_format(
    style: AnswerStyle,
    tools: Sequence[Tool],
    choice: ToolChoice | str,
    at_most: int | None,
    params: SamplingParams,
) -> ToolFormat:
    if params.structured_outputs is not None:
        raise InvalidRequestError(
            "a model that must call a tool cannot be held to another grammar", param="tool_choice"
        )
    if isinstance(choice, str):
        params.structured_outputs, form = named_call(tools, choice), named(choice)
    else:
        params.structured_outputs, form = required_calls(tools, at_most=at_most), REQUIRED
    return form if style.tools is None else replace(form, id_length=style.tools.id_length)
