"""Stop conditions and detokenization through every process, on models with known answers."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from octavo.tests.support.client import Client, frames
from octavo.tests.support.models import ScriptModel, make_script_model
from octavo.tests.support.server import start_server

pytestmark = pytest.mark.e2e

Serve = Callable[..., tuple[Client, ScriptModel]]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Serve a SCRIPT model; the same script is served once for all tests of the module."""
    servers: dict[str, tuple[Client, ScriptModel]] = {}
    with ExitStack() as stack:

        def get(script: str | list[str | int], **recipe: object) -> tuple[Client, ScriptModel]:
            key = repr((script, recipe))
            if key not in servers:
                folder: Path = tmp_path_factory.mktemp("script")
                model = make_script_model(folder, script, **recipe)  # type: ignore[arg-type]
                server = start_server(
                    folder, "--device", "cpu", "--max-model-len", "512", "--cpu-threads", "1"
                )
                stack.callback(server.stop)
                client = Client(server.url)
                stack.callback(client.close)
                servers[key] = client, model
            return servers[key]

        yield get


def test_o01_the_start_of_a_stop_string_does_not_leak(serve: Serve) -> None:
    client, _ = serve("abcDEFGz")
    stream = client.stream(stop=["DEFG"], max_tokens=20)
    assert stream.text == {0: "abc"}
    assert not any("D" in piece for piece in stream.pieces)
    assert stream.finish == {0: ["stop"]}
    assert client.text(stop=["DEFG"], max_tokens=20) == "abc"


@pytest.mark.parametrize(("max_tokens", "text", "finish"), [(20, "abcDEFz", "stop"), (5, "abcDE", "length")])
def test_o02_held_text_comes_when_the_stop_string_does_not(
    serve: Serve, max_tokens: int, text: str, finish: str
) -> None:
    client, _ = serve("abcDEFz")
    stream = client.stream(stop=["DEFG"], max_tokens=max_tokens)
    answer = client.complete(stop=["DEFG"], max_tokens=max_tokens)["choices"][0]
    assert (stream.text[0], stream.finish[0]) == (text, [finish])
    assert (answer["text"], answer["finish_reason"]) == (text, finish)


def test_o03_min_tokens_holds_against_stop_strings(serve: Serve) -> None:
    client, _ = serve("abc", loop=True)
    answer = client.complete(stop=["b"], min_tokens=6, max_tokens=20)
    assert answer["choices"][0]["text"] == "abcabca"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 8


def test_o03_min_tokens_holds_against_the_models_own_end(serve: Serve) -> None:
    client, model = serve("abcDEFz")
    assert client.complete(max_tokens=20)["usage"]["completion_tokens"] == len("abcDEFz") + 1
    answer = client.complete(min_tokens=12, max_tokens=20, return_token_ids=True)
    assert model.eos_token_id not in answer["choices"][0]["token_ids"][:12]
    assert answer["usage"]["completion_tokens"] > 12


@pytest.mark.parametrize("beyond", [1000, None])
def test_o04_impossible_stop_ids_are_refused_and_harm_nobody(serve: Serve, beyond: int | None) -> None:
    client, model = serve("abc", loop=True)
    stop_id = -1 if beyond is None else model.vocab_size + beyond
    undisturbed = client.text(max_tokens=200)
    body = {"prompt": "x", "temperature": 0, "max_tokens": 200, "stream": True}
    with client.http.stream("POST", "/v1/completions", json=body) as neighbour:
        pieces = frames(neighbour)
        first = next(pieces)
        bad = {"prompt": "x", "max_tokens": 4, "min_tokens": 1, "stop_token_ids": [stop_id]}
        error = client.refused("/v1/completions", bad)
        assert error["param"] == "stop_token_ids"
        heard = [json.loads(piece) for piece in [first, *pieces] if piece != "[DONE]"]
    assert "".join(chunk["choices"][0]["text"] for chunk in heard) == undisturbed
    assert client.text(max_tokens=200) == undisturbed
    assert client.alive()


@pytest.mark.parametrize("stop", ["", [""], ["", "z"]])
def test_o05_an_empty_stop_string_is_refused(serve: Serve, stop: object) -> None:
    client, _ = serve("abcDEFz")
    assert client.refused("/v1/completions", {"prompt": "x", "stop": stop})["param"] == "stop"


@pytest.mark.parametrize("stop", [[], None])
def test_o05_no_stop_string_is_no_stop(serve: Serve, stop: object) -> None:
    client, _ = serve("abcDEFz")
    assert client.text(stop=stop, max_tokens=20) == "abcDEFz"


def test_o06_characters_of_several_tokens_arrive_whole(serve: Serve) -> None:
    client, _ = serve("Q😀語z.")
    stream = client.stream(max_tokens=30)
    assert stream.text == {0: "Q😀語z."}
    chat = {
        "messages": [{"role": "user", "content": "x"}],
        "temperature": 0,
        "max_tokens": 30,
        "stream": True,
    }
    chat_stream = client.joined("/v1/chat/completions", chat)
    assert chat_stream.text == {0: "Q😀語z."}
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in stream.pieces + chat_stream.pieces)
    assert client.text(max_tokens=30) == "Q😀語z."
    assert client.chat(max_tokens=30)["choices"][0]["message"]["content"] == "Q😀語z."


def test_o07_words_keep_their_spaces(serve: Serve) -> None:
    client, _ = serve(" the cat sat", tokenizer="S")
    stream = client.stream(max_tokens=30)
    answer = client.text(max_tokens=30)
    assert stream.text == {0: answer}
    assert answer.split() == ["the", "cat", "sat"]
    assert answer.strip() == "the cat sat"


def test_o08_a_stop_string_of_several_tokens_stops(serve: Serve) -> None:
    client, _ = serve("AB-C Dz")
    answer = client.complete(stop=["zzz", "C D"], max_tokens=30)["choices"][0]
    assert answer["text"] == "AB-"
    assert answer["finish_reason"] == "stop"
