"""The `openai` package against the server: what it parses, and the errors it raises."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from octavo.protocol.replies import Rejected
from octavo.protocol.requests import Submit
from octavo.tests.support.http_frontend import MODEL, HttpFrontend, http_frontend
from octavo.tests.support.templates import HERMES
from octavo.tests.support.tokens import make_tok_b

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def client(frontend: HttpFrontend) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{frontend.url}/v1", api_key="x", max_retries=0, timeout=10) as client:
        yield client


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFrontend]:
    """A model that calls tools."""
    folder = tmp_path_factory.mktemp("calling")
    make_tok_b(folder, chat_template=HERMES)
    with http_frontend(folder, max_model_len=8192) as frontend:
        yield frontend


def test_chat(frontend: HttpFrontend, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=HI,  # type: ignore[arg-type]
        logprobs=True,
        top_logprobs=2,
        extra_body={"top_k": 5, "min_tokens": 1},
    )
    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.content is not None
    assert len(answer.choices[0].logprobs.content) == len(frontend.ids("hello"))
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(frontend.ids("hello"))


def test_streamed_chat(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=HI,  # type: ignore[arg-type]
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    for index in range(2):
        deltas = [c.choices[0].delta for c in chunks if c.choices and c.choices[0].index == index]
        assert "".join(delta.content or "" for delta in deltas) == "hello"
    assert chunks[-1].usage is not None


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["a", "b"], n=2, logprobs=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    stream = client.completions.create(model=MODEL, prompt="a", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "hello"


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL, "alias"]
    assert client.models.retrieve(MODEL).id == MODEL


def test_errors(frontend: HttpFrontend, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model=MODEL, prompt="x", temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="nope", prompt="x")
    assert missing.value.code == "model_not_found"
    frontend.scheduler.refuse = lambda s: Rejected(s.request, s.attempt, "QueueFullError", "full")
    with pytest.raises(openai.RateLimitError):
        client.completions.create(model=MODEL, prompt="x")


def test_an_error_in_a_stream(frontend: HttpFrontend, client: openai.OpenAI) -> None:
    frontend.scheduler.step_seconds = 0.02
    frontend.scheduler.fail_after = lambda submit: (2, "RequestFailedError", "the device is gone")
    stream = client.completions.create(model=MODEL, prompt="x", stream=True)
    with pytest.raises(openai.APIError, match="the device is gone"):
        list(stream)


def test_what_is_not_there_is_said_clearly(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="/v1/embeddings: embeddings are not supported") as caught:
        client.embeddings.create(model=MODEL, input="x")
    assert caught.value.code == "unsupported"
    with pytest.raises(openai.NotFoundError, match="the Responses API is not supported"):
        client.responses.create(model=MODEL, input="x")
    with pytest.raises(openai.NotFoundError, match="the Batch API is not supported"):
        client.batches.retrieve("x")


class Sum(pydantic.BaseModel):
    """Add two numbers."""

    a: int
    b: int


@pytest.mark.parametrize("streams", [False, True])
def test_a_loop_with_two_calls(calling: HttpFrontend, streams: bool) -> None:
    calls = [{"name": "Sum", "arguments": {"a": a, "b": a + 1}} for a in (1, 3)]
    calling.say("\n".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls))
    messages: list[Any] = [{"role": "user", "content": "1 + 2 and 3 + 4?"}]
    ask = {"model": MODEL, "tools": [openai.pydantic_function_tool(Sum)]}
    with openai.OpenAI(base_url=f"{calling.url}/v1", api_key="x", max_retries=0, timeout=10) as client:
        if streams:
            with client.chat.completions.stream(messages=messages, **ask) as stream:  # type: ignore[arg-type]
                choice = stream.get_final_completion().choices[0]
        else:
            choice = client.beta.chat.completions.parse(messages=messages, **ask).choices[0]  # type: ignore[arg-type]
        assert choice.finish_reason == "tool_calls"
        made = choice.message.tool_calls or []
        sums = [call.function.parsed_arguments for call in made]
        assert sums == [Sum(a=1, b=2), Sum(a=3, b=4)]
        messages.append(choice.message)  # with what the client has parsed inside
        for call, numbers in zip(made, sums, strict=True):
            assert isinstance(numbers, Sum)
            result = str(numbers.a + numbers.b)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        calling.scheduler.seen.queue.clear()
        calling.say("3 and 7.")
        answer = client.chat.completions.create(messages=messages, **ask)  # type: ignore[call-overload]
        assert answer.choices[0].message.content == "3 and 7."
    shown = memoryview(calling.scheduler.expect(Submit).prompt).cast("i").tolist()
    assert "parsed" not in calling.tokenizer.decode(shown, skip_special_tokens=False)


def test_a_structured_answer_is_parsed(frontend: HttpFrontend, client: openai.OpenAI) -> None:
    frontend.say('{"a": 1, "b": 2}')
    answer = client.beta.chat.completions.parse(model=MODEL, messages=HI, response_format=Sum)  # type: ignore[arg-type]
    assert answer.choices[0].message.parsed == Sum(a=1, b=2)
