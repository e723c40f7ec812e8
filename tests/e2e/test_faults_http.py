"""Bad grammars against the whole server: a refusal each, and the stream beside them does not notice."""

from collections.abc import Iterator
from typing import Any

import pytest

from octavo.tests.support.background import BackgroundStream
from octavo.tests.support.client import Client
from octavo.tests.support.demo import demo_model
from octavo.tests.support.server import Server, start_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
LONG = {"prompt": "One, two, three,", "max_tokens": 24, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with start_server(demo_model(), "--device", "cpu", "--dtype", "float32") as server:
        yield server


def by_schema(schema: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    messages = [{"role": "user", "content": "hi"}]
    return CHAT, {"messages": messages, "response_format": form, "max_tokens": 4}


def by_regex(regex: str) -> tuple[str, dict[str, Any]]:
    return COMPLETIONS, {"prompt": "x", "structured_outputs": {"regex": regex}, "max_tokens": 4}


BAD = [by_regex("["), by_regex("(?P<"), by_schema({"type": "nope"}), by_schema({"$ref": "#/$defs/nowhere"})]
RECURSIVE = by_schema(
    {
        "$defs": {"tree": {"type": "object", "properties": {"sub": {"$ref": "#/$defs/tree"}}}},
        "$ref": "#/$defs/tree",
    }
)
ENDLESS = by_schema({"$defs": {"self": {"$ref": "#/$defs/self"}}, "$ref": "#/$defs/self"})


def test_o56_a_bad_grammar_is_refused_and_harms_nobody(server: Server) -> None:
    with Client(server.url, timeout=100) as client:
        alone = client.text(**LONG)
        beside = BackgroundStream(server.url, LONG, timeout=100)
        beside.wait_started()
        for path, body in BAD:
            client.refused(path, body)
        path, body = RECURSIVE
        assert client.post(path, body).status_code == 200
        path, body = ENDLESS  # nothing is a value of it
        client.refused(path, body)
        beside.join(within=100)
        assert beside.complete, str(beside)
        assert beside.text == alone
        assert client.alive()
