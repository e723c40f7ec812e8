"""Templates get the arguments of earlier calls in the form that they print."""

from pathlib import Path

import pytest

from octavo.frontend.text import ChatTemplates, Tokenizer
from octavo.frontend.text.chat.arguments_format import wants_text
from octavo.tests.support.tokens import make_tok_b

CALL = "{% for m in messages %}{% for call in m.tool_calls %}<CALL>{% endfor %}{% endfor %}"
AS_OBJECT = (
    "{{ call.function.arguments | tojson }}",
    "{{ call.function | tojson }}",
    "{{ call }}",
    "{% for name, value in call.function.arguments.items() %}{{ name }}{% endfor %}",
    "{% for name, value in call.function['arguments'] | items %}{{ name }}{% endfor %}",
    "{% if call.function.arguments is string %}{{ call.function.arguments }}{% endif %}",
)
AS_TEXT = (
    "{{ call.function.arguments }}",
    "{{ 'call ' + call['function']['arguments'] + '\\n' }}",
    "{{ call.function.name ~ call.function.arguments }}",
)


@pytest.mark.parametrize("part", AS_OBJECT)
def test_an_object_for_templates_that_write_json(part: str) -> None:
    assert not wants_text(CALL.replace("<CALL>", part))


@pytest.mark.parametrize("part", AS_TEXT)
@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}])
def test_text_for_templates_that_print(tmp_path: Path, part: str, arguments: object) -> None:
    make_tok_b(tmp_path, chat_template=CALL.replace("<CALL>", part))
    templates = ChatTemplates.load(tmp_path, Tokenizer.load(tmp_path))
    call = {"function": {"name": "f", "arguments": arguments}}
    rendered = templates.render([{"role": "assistant", "tool_calls": [call]}])
    assert '{"a": 1}' in rendered
