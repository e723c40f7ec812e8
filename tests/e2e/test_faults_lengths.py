"""Prompts and lengths at their edges, through every process."""

from collections.abc import Iterator

import pytest

from octavo.tests.support.client import Client
from octavo.tests.support.models import ScriptModel, make_script_model
from octavo.tests.support.server import start_server

pytestmark = pytest.mark.e2e

M = 64  # max_model_len of the server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ScriptModel:
    return make_script_model(tmp_path_factory.mktemp("loop"), "abc", loop=True)


@pytest.fixture(scope="module")
def client(model: ScriptModel) -> Iterator[Client]:
    server = start_server(model.path, "--device", "cpu", "--max-model-len", str(M), "--cpu-threads", "1")
    client = Client(server.url)
    yield client
    client.close()
    server.stop()


def test_o10_a_prompt_that_leaves_room_for_one_token_is_served(client: Client) -> None:
    answer = client.complete([5] * (M - 1), max_tokens=1)
    assert answer["usage"]["completion_tokens"] == 1
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("length", [M, M + 1])
def test_o10_a_prompt_that_fills_the_context_is_refused_with_the_numbers(client: Client, length: int) -> None:
    message = client.refused("/v1/completions", {"prompt": [5] * length, "max_tokens": 1})["message"]
    assert str(M) in message
    assert str(length) in message
    assert client.alive()


def test_o11_a_too_long_prompt_is_a_plain_error_also_in_a_stream(client: Client) -> None:
    completion = client.stream([5] * (M + 50))
    assert completion.status == 400
    assert completion.body["error"]["message"]
    chat = {"messages": [{"role": "user", "content": "abc" * M}], "stream": True}
    assert client.joined("/v1/chat/completions", chat).status == 400
    assert client.alive()


def test_o12_max_tokens_beyond_the_room_is_refused_with_the_numbers(client: Client) -> None:
    message = client.refused("/v1/completions", {"prompt": [5] * (M - 10), "max_tokens": 11})["message"]
    assert str(M) in message
    assert str(M - 10) in message
    assert client.complete([5] * (M - 10), max_tokens=10)["usage"]["completion_tokens"] <= 10


@pytest.mark.parametrize("fields", [{}, {"max_tokens": None}])
def test_o13_chat_without_max_tokens_ends_at_the_context_with_length(
    client: Client, fields: dict[str, None]
) -> None:
    answer = client.chat("abc", **fields)
    assert answer["usage"]["total_tokens"] <= M
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("prompt", ["", [""], [], [[]]])
def test_o14_an_empty_prompt_is_refused(client: Client, prompt: object) -> None:
    client.refused("/v1/completions", {"prompt": prompt})
    assert client.alive()


def test_o14_an_empty_text_is_a_prompt_where_the_tokenizer_adds_bos(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model = make_script_model(tmp_path_factory.mktemp("bos"), "abc", tokenizer="S", add_bos=True)
    flags = ("--device", "cpu", "--max-model-len", str(M), "--cpu-threads", "1")
    with start_server(model.path, *flags) as server, Client(server.url) as client:
        assert client.complete("", max_tokens=1)["usage"]["prompt_tokens"] == 1


@pytest.mark.parametrize("prompt", [[5, -1], [5, None], [5, 2**63], [5, 1.5], [[5], [None]]])
def test_o17_token_ids_the_model_does_not_have_are_refused(
    client: Client, model: ScriptModel, prompt: list[object]
) -> None:
    def fill(value: object) -> object:
        if isinstance(value, list):
            return [fill(part) for part in value]
        return model.vocab_size if value is None else value

    client.refused("/v1/completions", {"prompt": fill(prompt)})
    assert client.alive()
