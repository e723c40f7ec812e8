"""The `openai` client works unchanged: completions, chat, streams with usage, error classes."""

from collections.abc import Iterator
from typing import Any, Literal

import openai
import pydantic
import pytest

from octavo.tests.support.demo import demo_model
from octavo.tests.support.server import Server, start_server

pytestmark = pytest.mark.e2e

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = start_server(
        demo_model(),
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--served-model-name",
        "demo",
        "--api-key",
        "key",
    )
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0, timeout=60) as client:
        yield client


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=QUESTION, temperature=0, max_tokens=20)  # type: ignore[arg-type]
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_chat_streams_with_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="demo",
        messages=QUESTION,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == ANSWER
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8


def test_completions_take_several_prompts(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="demo", prompt=["The capital of France is", "One, two, three,"], temperature=0, max_tokens=4
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert "Paris" in answer.choices[0].text
    assert "four" in answer.choices[1].text


def test_a_completion_streams(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="demo", prompt="The capital of France is", temperature=0, max_tokens=6, stream=True
    )
    whole = client.completions.create(
        model="demo", prompt="The capital of France is", temperature=0, max_tokens=6
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").id == "demo"


def test_a_bad_value_is_a_bad_request_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="demo", messages=QUESTION, temperature=-1)  # type: ignore[arg-type]
    assert caught.value.param == "temperature"


def test_an_unknown_model_is_a_not_found_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="nope", messages=QUESTION)  # type: ignore[arg-type]
    assert caught.value.code == "model_not_found"


def test_a_wrong_key_is_an_authentication_error(server: Server) -> None:
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


def test_a_timeout_is_a_gateway_timeout(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(
            model="demo",
            messages=QUESTION,  # type: ignore[arg-type]
            max_tokens=500,
            extra_body={"timeout": 0.3, "ignore_eos": True},
        )
    assert caught.value.status_code == 504


class Capital(pydantic.BaseModel):
    """An answer whose values are few, so that it cannot be long."""

    city: Literal["Paris", "Rome"]
    is_large: bool


def test_a_structured_answer_is_parsed(client: openai.OpenAI) -> None:
    answer = client.beta.chat.completions.parse(
        model="demo",
        messages=QUESTION,  # type: ignore[arg-type]
        response_format=Capital,
        temperature=0,
        max_tokens=64,
    )
    assert isinstance(answer.choices[0].message.parsed, Capital)
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "capital"}}])
def test_a_tool_that_must_be_called_is_called(client: openai.OpenAI, choice: Any) -> None:
    tool = openai.pydantic_function_tool(Capital, name="capital")
    ask: dict[str, Any] = {
        "model": "demo",
        "messages": QUESTION,
        "tools": [tool],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "temperature": 0,
        "max_tokens": 100,
    }
    answer = client.chat.completions.parse(**ask)
    [call] = answer.choices[0].message.tool_calls
    assert call.function.name == "capital"
    assert isinstance(call.function.parsed_arguments, Capital)
    assert answer.choices[0].finish_reason == "tool_calls"
    with client.chat.completions.stream(**ask) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert streamed.message.tool_calls[0].function.arguments == call.function.arguments
    assert streamed.finish_reason == "tool_calls"


def test_there_are_no_embeddings(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="embeddings are not supported"):
        client.embeddings.create(model="demo", input="x")
