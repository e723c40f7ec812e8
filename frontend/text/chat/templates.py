"""A model's chat templates: found, chosen, rendered."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateSyntaxError

from ....protocol.errors import InvalidRequestError
from ..model_files import read_json
from ..tokenizer import Tokenizer
from .arguments_format import wants_text
from .content_format import content_format
from .environment import RefusedByTemplateError, compile_template
from .final_message import cut_at_mark, mark_final_message
from .messages import plain_data, prepare_messages

_DEFAULT = "default"
_WITH_TOOLS = "tool_use"


class ChatTemplates:
    """The chat templates of one model, by name; most models have one, called "default"."""

    def __init__(self, templates: Mapping[str, str], tokenizer: Tokenizer) -> None:
        self._templates = dict(templates)
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, model_dir: Path, tokenizer: Tokenizer) -> "ChatTemplates":
        """Read the templates of a model folder; a folder without any gives an empty set.

        Files (chat_template.jinja, additional_chat_templates/NAME.jinja) take the place of what
        tokenizer_config.json holds, and that of the older chat_template.json. Raises ModelError for broken
        files.
        """
        templates = _template_files(model_dir)
        for name in ("tokenizer_config.json", "chat_template.json"):
            if not templates:
                templates = _named_templates(read_json(model_dir / name).get("chat_template"))
        return cls(templates, tokenizer)

    @property
    def names(self) -> list[str]:
        """The templates' names, sorted; empty for a model without a template."""
        return sorted(self._templates)

    def prompt_ids(self, messages: Sequence[Any], **options: Any) -> list[int]:
        """The token ids of the rendered chat; arguments as for `render`.

        Templates write bos themselves, so the tokenizer adds none.
        """
        return self._tokenizer.encode(self.render(messages, **options), add_special_tokens=False)

    def render(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for a chat.

        `messages` are objects with a role and a content (text, or a list of text parts). `template` is the
        name of one of the model's templates, or a template's source. `continue_final_message` leaves the
        last message open, for the model to go on with. `variables` are given to the template beside the
        tokenizer's special tokens. Raises InvalidRequestError when there is no template, when the template
        is broken or refuses the messages, and for messages that are not text.
        """
        if continue_final_message and add_generation_prompt:
            raise InvalidRequestError(
                "continue_final_message cannot be used together with add_generation_prompt",
                param="continue_final_message",
            )
        source = self.source(template, has_tools=tools is not None)
        try:
            prepared = prepare_messages(
                messages, content_format(source), arguments_as_text=wants_text(source)
            )
            if continue_final_message:
                text_to_continue = mark_final_message(prepared)
            given = {
                "messages": prepared,
                "tools": plain_data(tools),
                "documents": plain_data(documents),
                "add_generation_prompt": add_generation_prompt,
            }
            rendered = compile_template(source).render(**self._variables(variables, given), **given)
        except InvalidRequestError:
            raise
        except Exception as error:  # a template is a program: it can fail in any way
            raise _template_error(error) from error
        return cut_at_mark(rendered, text_to_continue) if continue_final_message else rendered

    def source(self, template: str | None = None, *, has_tools: bool = False) -> str:
        """The template that `render` takes. Raises InvalidRequestError when there is none."""
        if template is not None:
            return self._templates.get(template, template)
        if has_tools and _WITH_TOOLS in self._templates:
            return self._templates[_WITH_TOOLS]
        if _DEFAULT in self._templates:
            return self._templates[_DEFAULT]
        if self._templates:
            raise InvalidRequestError(
                f"the model has several chat templates and no default; name one of {', '.join(self.names)}",
                param="chat_template",
            )
        raise InvalidRequestError(
            "the model has no chat template, so it cannot take messages: send a plain prompt, or start the "
            "server with a chat template",
            param="messages",
        )

    def _variables(self, variables: Mapping[str, Any] | None, given: Collection[str]) -> dict[str, Any]:
        """The tokenizer's special tokens and what the request adds; the request's win."""
        added = plain_data(variables or {})
        if taken := sorted(set(given) & set(added)):
            raise InvalidRequestError(
                f"{taken[0]} cannot be set as a template variable", param="chat_template_kwargs"
            )
        return {**self._tokenizer.special_tokens_map, **added}


def _template_files(model_dir: Path) -> dict[str, str]:
    templates = {}
    for path in sorted((model_dir / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = path.read_text(encoding="utf-8")
    default = model_dir / "chat_template.jinja"
    if default.is_file():
        templates[_DEFAULT] = default.read_text(encoding="utf-8")
    return templates


def _named_templates(entry: Any) -> dict[str, str]:
    """A config entry: one template, or a list of objects with name and template."""
    if isinstance(entry, str):
        return {_DEFAULT: entry}
    return {item["name"]: item["template"] for item in entry or []}


def _template_error(error: Exception) -> InvalidRequestError:
    if isinstance(error, RefusedByTemplateError):
        message = f"the chat template refused the messages: {error}"
    elif isinstance(error, TemplateSyntaxError):
        message = f"the chat template is broken: {error.message} (line {error.lineno})"
    else:
        message = f"the chat template failed: {type(error).__name__}: {error}"
    return InvalidRequestError(message, param="messages")
