"""The `openai` package against the server: what it parses, and the errors it raises."""

from collections.abc import Iterator

import openai
import pytest

from octavo.protocol.replies import Rejected
from octavo.tests.support.http_frontend import MODEL, HttpFrontend

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def client(frontend: HttpFrontend) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{frontend.url}/v1", api_key="x", max_retries=0, timeout=10) as client:
        yield client


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
    with pytest.raises(openai.NotFoundError, match="/v1/embeddings"):
        client.embeddings.create(model=MODEL, input="x")
