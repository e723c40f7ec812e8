"""What templates expect of content, from their syntax."""

import pytest

from octavo.frontend.text.chat.content_format import ContentFormat, content_format

STRING, PARTS, EITHER = ContentFormat.STRING, ContentFormat.PARTS, ContentFormat.EITHER
LOOP = "{% for part in CONTENT %}{{ part.text }}{% endfor %}"


def over_messages(body: str) -> str:
    return "{% for message in messages %}" + body + "{% endfor %}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (over_messages("{{ message.content }}"), STRING),
        (over_messages("{{ message['content'] | trim }}"), STRING),
        (over_messages("{% for line in message.content.split('x') %}{{ line }}{% endfor %}"), STRING),
        (
            over_messages("{% for call in message.tool_calls %}{{ call }}{% endfor %}{{ message.content }}"),
            STRING,
        ),
        (over_messages("{% if message.content is string %}{{ message.content }}{% endif %}"), STRING),
        (over_messages(LOOP.replace("CONTENT", "message['content']")), PARTS),
        (over_messages(LOOP.replace("CONTENT", "message.content")), PARTS),
        (over_messages("{% set c = message.content %}" + LOOP.replace("CONTENT", "c")), PARTS),
        (over_messages("{% set c = message.content %}{% set d = c %}" + LOOP.replace("CONTENT", "d")), PARTS),
        (over_messages("{% set c = message.content or '' %}" + LOOP.replace("CONTENT", "c")), PARTS),
        ("{% macro show(content) %}" + LOOP.replace("CONTENT", "content") + "{% endmacro %}", PARTS),
        (
            over_messages(
                "{% if message.content is string %}x{% else %}" + LOOP.replace("CONTENT", "message.content")
            )[: -len("{% endfor %}")]
            + "{% endif %}{% endfor %}",
            EITHER,
        ),
    ],
)
def test_the_format_of_content(template: str, expected: ContentFormat) -> None:
    assert content_format(template) is expected
