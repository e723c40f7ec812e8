"""Sampling parameters and log-probabilities through every process, on a model whose logits are known."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from octavo.tests.support.client import Client
from octavo.tests.support.models import ScriptModel, make_script_model
from octavo.tests.support.server import start_server

pytestmark = pytest.mark.e2e

WARM: dict[str, Any] = {"temperature": 1, "max_tokens": 16, "seed": 42, "return_token_ids": True}
COMPLETIONS = "/v1/completions"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, ScriptModel]]:
    """A model that says a script again and again, with about 9 % on the next token, and ends at any time.

    Some tokens have successors of their own.
    """
    folder: Path = tmp_path_factory.mktemp("script")
    model = make_script_model(
        folder,
        list("abcdefgh"),
        w=0.15,
        loop=True,
        eos_logit=0.5,
        successors={
            "P": {"A": 2.0, "B": 1.9},
            "z": {"q": 9.0},
            "y": {"r": 9.0},
            "q": {"s": 2.0, "t": 1.9},
            "r": {"s": 9.0},
            "1": {" dog": 9.0},
            " dog": {"2": 9.0},
        },
    )
    server = start_server(folder, "--device", "cpu", "--max-model-len", "512", "--cpu-threads", "1")
    client = Client(server.url)
    yield client, model
    client.close()
    server.stop()


@pytest.fixture
def client(served: tuple[Client, ScriptModel]) -> Client:
    return served[0]


@pytest.fixture
def model(served: tuple[Client, ScriptModel]) -> ScriptModel:
    return served[1]


def ids(client: Client, prompt: Any = "x", **fields: Any) -> list[list[int]]:
    return [choice["token_ids"] for choice in client.complete(prompt, **{**WARM, **fields})["choices"]]


def test_o09_an_echo_without_any_output(client: Client) -> None:
    answer = client.complete("the cat", echo=True, logprobs=1, max_tokens=0)
    choice = answer["choices"][0]
    assert choice["text"] == "the cat" == "".join(choice["logprobs"]["tokens"])
    assert answer["usage"]["completion_tokens"] == 0
    assert len(choice["logprobs"]["token_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert client.alive()


@pytest.mark.parametrize("prompt", ["the cat", [70, 71, 72]], ids=["text", "ids"])
def test_o15_echo_without_logprobs(client: Client, model: ScriptModel, prompt: Any) -> None:
    said = prompt if isinstance(prompt, str) else model.tokenizer.decode(prompt)
    plain = client.text(prompt, max_tokens=3)
    answer = client.complete(prompt, echo=True, max_tokens=3)
    assert answer["choices"][0]["text"] == said + plain
    assert answer["usage"]["completion_tokens"] == 3
    assert client.stream(prompt, echo=True, max_tokens=3).text == {0: said + plain}


@pytest.mark.parametrize("stream", [False, True])
def test_o16_echo_with_logprobs(client: Client, stream: bool) -> None:
    body = {"prompt": "\n1. the cat", "echo": True, "logprobs": 1, "max_tokens": 2, "temperature": 0}
    if stream:
        assert client.joined(COMPLETIONS, {**body, "stream": True}).text[0].startswith("\n1. the cat")
        return
    answer = client.complete(**body)
    choice, usage = answer["choices"][0], answer["usage"]
    columns = choice["logprobs"]
    assert {len(column) for column in columns.values()} == {usage["prompt_tokens"] + 2}
    assert columns["token_logprobs"][0] is None and columns["top_logprobs"][0] is None
    assert "".join(columns["tokens"]) == choice["text"]
    assert columns["text_offset"] == sorted(columns["text_offset"])


@pytest.mark.parametrize("temperature", [1e-3, 1e-5, 1e-12, 1e-40])
def test_o18_tiny_temperatures_are_greedy(client: Client, temperature: float) -> None:
    assert ids(client, temperature=temperature) == ids(client, temperature=0)


@pytest.mark.parametrize("temperature", [-0.1, "warm", float("nan")])
def test_o18_what_is_no_temperature_is_refused(client: Client, temperature: Any) -> None:
    body = json.dumps({"prompt": "x", "temperature": temperature})
    answer = client.http.post(COMPLETIONS, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400


def test_o19_top_k_above_the_vocabulary_keeps_all(client: Client, model: ScriptModel) -> None:
    found = [ids(client, top_k=k, seed=3) for k in (9_999_999, 0, -1, model.vocab_size)]
    assert found[1:] == found[:-1]
    client.refused(COMPLETIONS, {"prompt": "x", "top_k": -2})


def test_o20_top_p_0_is_greedy(client: Client) -> None:
    assert ids(client, top_p=0) == ids(client, temperature=0)
    for fields in ({"top_p": 1.1}, {"min_p": -0.1}, {"min_p": 1.5}):
        assert client.refused(COMPLETIONS, {"prompt": "x", **fields})["param"] == next(iter(fields))


@pytest.mark.parametrize(
    ("fields", "wins"),
    [({"presence_penalty": 2}, "A"), ({"frequency_penalty": 2}, "A"), ({"repetition_penalty": 1.5}, "B")],
    ids=["presence", "frequency", "repetition"],
)
def test_o21_which_penalties_look_at_the_prompt(client: Client, fields: dict[str, float], wins: str) -> None:
    assert client.text("AP", max_tokens=1, **fields) == wins


def test_o22_a_bias_for_no_token_is_refused(client: Client, model: ScriptModel) -> None:
    for bias in ({"999999": 5}, {"-1": 5}, {"abc": 5}, {"5": "x"}):
        client.refused(COMPLETIONS, {"prompt": "x", "logit_bias": bias})
    assert client.alive()
    wanted = model.token_id("w")
    assert ids(client, logit_bias={str(wanted): 100}) == [[wanted] * 16]


def test_o23_a_seed_gives_the_same_beside_others(client: Client) -> None:
    (alone,) = ids(client)
    unseeded = []
    with ThreadPoolExecutor(4) as pool:
        for turn in range(5):
            calls = [(lambda: ids(client, seed=None)) for _ in range(3)]
            calls.insert(turn % 4, lambda: ids(client))
            answers = [call.result()[0] for call in [pool.submit(one) for one in calls]]
            assert answers.pop(turn % 4) == alone
            unseeded += answers
    assert len({tuple(one) for one in unseeded}) > 1


def test_o24_choices_of_one_seed_differ_and_repeat(client: Client) -> None:
    first, second = (client.complete(**{**WARM, "n": 4, "seed": 7})["choices"] for _ in range(2))
    texts = [[(choice["index"], choice["token_ids"]) for choice in one] for one in (first, second)]
    assert texts[0] == texts[1]
    assert sorted(index for index, _ in texts[0]) == [0, 1, 2, 3]
    assert len({tuple(tokens) for _, tokens in texts[0]}) > 1


def test_o25_a_bad_word_is_banned_behind_a_space_too(client: Client, model: ScriptModel) -> None:
    encode = model.tokenizer.encode
    spaced, bare = (encode(text, add_special_tokens=False).ids for text in (" dog", "dog"))
    assert (len(spaced), len(bare) > 1) == (1, True)
    assert client.text("1", max_tokens=3).startswith(" dog2")
    for word in ("dog", " dog"):
        assert "dog" not in client.text("1", max_tokens=12, bad_words=[word])


def test_o26_only_the_last_token_of_a_bad_word_is_banned(client: Client) -> None:
    assert client.text("z", max_tokens=2) == "qs"
    assert client.text("z", max_tokens=2, bad_words=["qs"]) == "qt"
    assert client.text("y", max_tokens=2, bad_words=["qs"]) == "rs"


def test_o27_chat_logprobs_without_alternatives(client: Client) -> None:
    for fields in ({"logprobs": True}, {"logprobs": True, "top_logprobs": 0}):
        answer = client.chat(max_tokens=4, **fields)
        content = answer["choices"][0]["logprobs"]["content"]
        assert len(content) == answer["usage"]["completion_tokens"]
        assert all(entry["logprob"] <= 0 and entry["top_logprobs"] == [] for entry in content)
    client.refused(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}
    )
    assert client.chat(max_tokens=1, logprobs=False)["choices"][0]["logprobs"] is None


def test_o28_the_sampled_token_outside_the_top(client: Client) -> None:
    warm = {"temperature": 2, "seed": 1, "max_tokens": 20}
    columns = client.complete(logprobs=1, **warm)["choices"][0]["logprobs"]
    for token, top in zip(columns["tokens"], columns["top_logprobs"], strict=True):
        assert token in top and len(top) in (1, 2)
    content = client.chat(logprobs=True, top_logprobs=1, **warm)["choices"][0]["logprobs"]["content"]
    assert all(len(entry["top_logprobs"]) == 1 and entry["logprob"] <= 0 for entry in content)


def test_o29_no_infinity_in_json(client: Client, model: ScriptModel) -> None:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    for fields in ({"temperature": 1, "top_k": 1}, {"allowed_token_ids": [model.token_id("w")]}):
        body = {"prompt": "the cat", "echo": True, "logprobs": 5, "max_tokens": 2, **fields}
        answer = client.post(COMPLETIONS, body)
        assert answer.status_code == 200, answer.text
        json.loads(answer.text, parse_constant=no_constant)


def test_o33_every_choice_comes_to_its_end(client: Client) -> None:
    # eos after every token: the choices have different lengths
    body = {"prompt": "x", "n": 4, "seed": 5, "temperature": 1, "max_tokens": 40, "logit_bias": {"2": 3.0}}
    whole = client.post(COMPLETIONS, body).json()["choices"]
    stream = client.joined(COMPLETIONS, {**body, "stream": True})
    assert {index: len(reasons) for index, reasons in stream.finish.items()} == dict.fromkeys(range(4), 1)
    assert stream.text == {choice["index"]: choice["text"] for choice in whole}
    assert len({choice["text"] for choice in whole}) > 1


def test_o46_a_request_inherits_nothing_from_one_before_or_beside_it(client: Client) -> None:
    other: dict[str, Any] = {
        "repetition_penalty": 2,
        "logit_bias": {"70": 50},
        "bad_words": ["b"],
        "min_tokens": 9,
        "structured_outputs": {"regex": "[x-z]{12}"},
    }
    alone = ids(client, temperature=0)
    with ThreadPoolExecutor(2) as pool:
        for order in (0, 1):
            calls = [pool.submit(ids, client, temperature=0, **(other if i == order else {})) for i in (0, 1)]
            assert calls[1 - order].result() == alone
            calls[order].result()
    assert ids(client, temperature=0) == alone
