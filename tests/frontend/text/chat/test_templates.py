"""Chat templates: prompts and ids as transformers renders them, and clear errors."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from octavo.frontend.text import ChatTemplates, Tokenizer
from octavo.protocol.errors import InvalidRequestError
from octavo.tests.support.demo import demo_model
from octavo.tests.support.models import make_script_model, make_tok_b

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"

TEMPLATES = {
    "bos, system hoisted, raises": """
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- bos_token }}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate user/assistant') }}
    {%- endif %}
    {%- if loop.first and system is defined %}[SYS]{{ system }}[/SYS]{% endif %}
    {{- '[' + message.role.upper() + '] ' + message.content | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}[ASSISTANT]{% endif %}""",
    "tools as json": """
{%- if tools %}{{ '# Tools' }}{% for tool in tools %}
{{ tool | tojson }}
{{ tool.function | tojson(indent=2) }}
{{ tool | tojson(separators=(',', ':'), sort_keys=true) }}
{%- endfor %}{% endif %}
{%- for m in messages %}{{ '\\n' + m.role + ': ' }}
    {%- if m.tool_calls %}{% for call in m.tool_calls %}<call>{{ call.function | tojson }}</call>{% endfor %}
    {%- else %}{{ m.content }}{% endif %}
{%- endfor %}""",
    "loop controls and namespace": """
{% set ns = namespace(seen=0, last='') %}
{% for m in messages %}
  {% if m.role == 'system' %}{% continue %}{% endif %}
  {% set ns.seen = ns.seen + 1 %}
  {% set ns.last = m.role %}
{{ loop.index }}/{{ loop.length }} {{ m.content }}
  {% if ns.seen == 3 %}{% break %}{% endif %}
{% endfor %}
{{ ns.seen }} {{ ns.last }} {{ dict(a=1, b=[2]) }} {{ dict.fromkeys(['x']) }}""",
    "generation blocks": """
{%- set who = 'outer' %}
{%- for m in messages %}
{% if m.role == 'assistant' %}{% generation %}{% set who = 'inner' %}
{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}
{%- endfor %}{% generation %}{% set who = 'nobody' %}{% endgeneration %} {{ who }}""",
    "strftime_now": "{{ strftime_now('%Y') }}|{% for m in messages %}{{ m.content }}{% endfor %}",
    "quotes and brackets": "{% for m in messages %}{{ m.content | tojson }}{{ m | tojson }}{% endfor %}",
    "content parts": """
{%- for m in messages %}<|im_start|>{{ m.role }}
    {%- if m.content is string %}{{ m.content }}{% else %}
        {%- for part in m.content %}{{ '<' + part.type + '>' + part.text }}{% endfor %}
    {%- endif %}<|im_end|>
{% endfor %}""",
    "non-ASCII": "{% for m in messages %}《{{ m.role }}》→ {{ m.content }} ✓é\n{% endfor %}",
    "macros, filters, documents": """
{% macro show(m) -%} {{ m.role | capitalize }}: {{ m.content | replace('a', 'A') }} {%- endmacro %}
{% for d in documents or [] %}[{{ d.title }}] {{ d.text | truncate(9) }}
{% endfor %}
{% for m in messages | rejectattr('role', 'equalto', 'tool') %}{{ show(m) }}
{% endfor %}{{ messages | map(attribute='role') | join(',') }} {{ unk_token is defined }}""",
    "reasoning": """
{%- for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{%- if m.thinking is defined %}({{ m.thinking }}){% endif %}{{ m.content }}{% endfor %}""",
    "whitespace control": "  {% for m in messages %}  \n  {{- m.content -}}  \n    {% endfor %}\n\n  end\n",
    "variables": "{% for m in messages %}{{ m.content }}{% endfor %}{{ style }} {{ eos_token }} {{ nope }}",
}

CHATS: dict[str, list[dict[str, Any]]] = {
    "one turn": [{"role": "user", "content": "Hi"}],
    "system": [
        {"role": "system", "content": "  Be 'brief' & <kind>.\n"},
        {"role": "user", "content": "Größe 你好 😀?"},
        {"role": "assistant", "content": 'a "quoted" <b>answer</b>', "name": None},
        {"role": "user", "content": "banana\n\n"},
    ],
    "odd roles": [{"role": "assistant", "content": "first"}, {"role": "tool", "content": "42", "name": "f"}],
    "tool call": [
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "must call",
            "tool_calls": [
                {"type": "function", "function": {"name": "w", "arguments": {"city": "Köln <x>"}}}
            ],
        },
        {"role": "tool", "content": '{"t": 3}'},
    ],
}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": 'Today\'s <weather> & more, "quoted" — ä',
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
DOCUMENTS = [{"title": "One", "text": "a text of some length"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_tok_b(folder, add_bos=True)
    return folder


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def templates(folder: Path, template: str | None = None) -> ChatTemplates:
    tokenizer = Tokenizer.load(folder)
    return (
        ChatTemplates.load(folder, tokenizer)
        if template is None
        else ChatTemplates({"default": template}, tokenizer)
    )


def outcome(render: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a renderer returns, or that it failed."""
    try:
        return render(*arguments, **options)
    except Exception:
        return "an error"


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize(
    "options",
    [
        {"add_generation_prompt": True},
        {"tools": TOOLS, "add_generation_prompt": False},
        {"documents": DOCUMENTS, "add_generation_prompt": True},
        {"tools": [], "documents": [], "add_generation_prompt": False},
    ],
    ids=["plain", "tools", "documents", "empty"],
)
def test_prompts_and_ids_equal_transformers(
    folder: Path, theirs: Any, name: str, chat: str, options: dict[str, Any]
) -> None:
    ours, template, messages = templates(folder, TEMPLATES[name]), TEMPLATES[name], CHATS[chat]
    apply = partial(theirs.apply_chat_template, messages, chat_template=template, style="s", **options)
    expected = outcome(apply, tokenize=False)
    assert outcome(ours.render, messages, variables={"style": "s"}, **options) == expected
    if expected != "an error":
        assert ours.prompt_ids(messages, variables={"style": "s"}, **options) == apply()["input_ids"]


def test_most_of_these_cases_render(folder: Path) -> None:
    results = [
        outcome(templates(folder, template).render, chat)
        for template in TEMPLATES.values()
        for chat in CHATS.values()
    ]
    assert results.count("an error") < len(results) / 4


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("add", [True, False])
def test_the_demo_model_renders_as_in_transformers(chat: str, add: bool) -> None:
    theirs, ours = AutoTokenizer.from_pretrained(demo_model()), templates(demo_model())
    expected = outcome(theirs.apply_chat_template, CHATS[chat], tokenize=False, add_generation_prompt=add)
    assert outcome(ours.render, CHATS[chat], add_generation_prompt=add) == expected
    if expected != "an error":
        ids = theirs.apply_chat_template(CHATS[chat], add_generation_prompt=add)["input_ids"]
        assert ours.prompt_ids(CHATS[chat], add_generation_prompt=add) == ids


def test_content_parts_equal_transformers(folder: Path, theirs: Any) -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": "AA"}, {"type": "text", "text": "BB"}]}]
    template = TEMPLATES["content parts"]
    assert templates(folder, template).render(
        chat, add_generation_prompt=False
    ) == theirs.apply_chat_template(chat, chat_template=template, tokenize=False)


@pytest.mark.parametrize(
    "name", ["content parts", "non-ASCII", "whitespace control", "bos, system hoisted, raises"]
)
@pytest.mark.parametrize("text", ["Sure, ", "Sure", "line\n"])
def test_the_final_message_is_continued_as_in_transformers(
    folder: Path, theirs: Any, name: str, text: str
) -> None:
    chat = [{"role": "user", "content": "Sure?"}, {"role": "assistant", "content": text}]
    options = {"continue_final_message": True, "add_generation_prompt": False}
    found = outcome(templates(folder, TEMPLATES[name]).render, chat, **options)
    apply = partial(theirs.apply_chat_template, chat, chat_template=TEMPLATES[name], tokenize=False)
    assert found == outcome(apply, **options)
    assert found != "an error"


def test_files_take_the_place_of_the_config(tmp_path: Path) -> None:
    make_tok_b(tmp_path, chat_template=None)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    named = [
        {"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T"},
        {"name": "rag", "template": "R"},
    ]

    def load(chat_template: Any) -> tuple[ChatTemplates, Any]:
        path.write_text(json.dumps({**config, "chat_template": chat_template}))
        return templates(tmp_path), AutoTokenizer.from_pretrained(tmp_path)

    chat = CHATS["one turn"]
    for chat_template in ("C", named):
        ours, theirs = load(chat_template)
        for tools in (None, TOOLS):
            assert ours.render(chat, tools=tools) == theirs.apply_chat_template(
                chat, tools=tools, tokenize=False
            )
    assert (ours.names, ours.render(chat, template="rag")) == (["default", "rag", "tool_use"], "R")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("file T")
    (tmp_path / "chat_template.jinja").write_text("file D\n")
    ours, theirs = load(named)
    assert ours.names == ["default", "tool_use"]
    for tools in (None, TOOLS):
        assert ours.render(chat, tools=tools) == theirs.apply_chat_template(chat, tools=tools, tokenize=False)


def test_a_template_in_the_older_file_is_read(tmp_path: Path) -> None:
    make_tok_b(tmp_path, chat_template=None)
    (tmp_path / "chat_template.json").write_text('{"chat_template": "old"}')
    assert templates(tmp_path).render(CHATS["one turn"]) == "old"


def test_several_templates_without_a_default_must_be_named(folder: Path) -> None:
    ours = ChatTemplates({"a": "A", "b": "B"}, Tokenizer.load(folder))
    with pytest.raises(InvalidRequestError, match="name one of a, b"):
        ours.render(CHATS["one turn"])


def test_o50_parts_are_joined_for_a_template_that_prints_content(folder: Path) -> None:
    parts = [{"type": "text", "text": "AA"}, {"type": "text", "text": "BB"}]
    ours = templates(folder, CHATML)
    for role in ("user", "system"):
        assert ours.render([{"role": role, "content": parts}]) == ours.render(
            [{"role": role, "content": "AA\nBB"}]
        )


def test_o50_an_image_is_refused(folder: Path) -> None:
    chat = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    for template in (CHATML, TEMPLATES["content parts"]):
        with pytest.raises(InvalidRequestError, match="image_url") as raised:
            templates(folder, template).render(chat)
        assert raised.value.param == "messages"


def test_o51_a_chat_begins_with_one_bos(folder: Path) -> None:
    template = "{{ bos_token }}" + CHATML
    tokenizer = Tokenizer.load(folder)
    ids = templates(folder, template).prompt_ids(CHATS["one turn"])
    assert ids.count(tokenizer.bos_token_id) == 1
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.encode("hi").count(tokenizer.bos_token_id) == 1


def test_o52_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    make_script_model(tmp_path, "ab", chat_template=None)
    ours = templates(tmp_path)
    assert ours.names == []
    with pytest.raises(InvalidRequestError, match="has no chat template"):
        ours.render(CHATS["one turn"])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system role') }}", "refused the messages: no system role"),
        ("{% for m in messages %}", "chat template is broken.*line 1"),
        ("{{ messages[0].content.nope.deeper }}", "chat template failed: UndefinedError"),
        ("{{ 1 / 0 }}", "chat template failed: ZeroDivisionError"),
        ("{{ messages.append(1) }}", "chat template failed: SecurityError"),
        ("{{ ''.__class__.__mro__ }}", "chat template failed: SecurityError"),
        ("{{ namespace(_x=1) }}", "chat template failed: SecurityError"),
        ("{{ dict(a=1).a.b.c }}", "chat template failed: UndefinedError"),
    ],
)
def test_o52_a_failing_template_is_named(folder: Path, template: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        templates(folder, template).render(CHATS["one turn"])


@pytest.mark.parametrize(
    "options",
    [
        {"continue_final_message": True, "add_generation_prompt": True},
        {"variables": {"messages": []}},
        {"variables": {"x": object()}},
    ],
)
def test_bad_options_are_refused(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        templates(folder, CHATML).render(CHATS["one turn"], **options)
