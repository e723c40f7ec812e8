"""LangChain and litellm against a frontend. They are heavy: the extra `clients` has them, not `dev`."""

import gc
import json
import warnings
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from octavo.tests.support.http_frontend import MODEL, HttpFrontend, http_frontend
from octavo.tests.support.templates import HERMES
from octavo.tests.support.tokens import make_tok_b

pytestmark = [
    pytest.mark.full,
    # Of other people's code.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

CALLS = (
    '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>\n'
    '<tool_call>{"name": "add", "arguments": {"a": 3, "b": 4}}</tool_call>'
)


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFrontend]:
    folder = tmp_path_factory.mktemp("calling")
    make_tok_b(folder, chat_template=HERMES)
    with http_frontend(folder, max_model_len=8192) as frontend:
        yield frontend


@pytest.fixture
def frontend(calling: HttpFrontend) -> HttpFrontend:
    calling.reset()
    return calling


@pytest.fixture
def options(frontend: HttpFrontend) -> Iterator[dict[str, Any]]:
    """For clients of LangChain. Their own connections are never closed."""
    with httpx.Client() as client:
        yield {
            "model": MODEL,
            "base_url": f"{frontend.url}/v1",
            "api_key": "x",
            "max_retries": 0,
            "http_client": client,
        }


@pytest.fixture
def langchain(options: dict[str, Any]) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(**options)


@pytest.fixture(scope="module", autouse=True)
def litellm_closes() -> Iterator[None]:
    """Its connections are kept in a cache for the life of the process."""
    import litellm

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
        litellm.in_memory_llm_clients_cache.flush_cache()
        litellm.module_level_client.close()
        gc.collect()


def test_langchain_chats_and_streams(frontend: HttpFrontend, langchain: Any) -> None:
    assert langchain.invoke("hi").content == "hello"
    chunks = list(langchain.stream("hi"))
    assert "".join(chunk.content for chunk in chunks) == "hello"
    assert langchain.invoke("hi").usage_metadata["output_tokens"] == len(frontend.ids("hello"))


@pytest.mark.parametrize("streams", [False, True])
def test_langchain_calls_tools_in_a_loop(frontend: HttpFrontend, langchain: Any, streams: bool) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    bound = langchain.bind_tools([add])
    messages: list[Any] = [HumanMessage("1 + 2 and 3 + 4?")]
    frontend.say(CALLS)
    if streams:
        answer = None
        for chunk in bound.stream(messages):
            answer = chunk if answer is None else answer + chunk
        assert answer is not None
    else:
        answer = bound.invoke(messages)
    assert [call["args"] for call in answer.tool_calls] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    messages.append(answer)
    messages += [ToolMessage(add.invoke(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
    frontend.say("3 and 7.")
    assert bound.invoke(messages).content == "3 and 7."


@pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
def test_langchain_gets_structured_answers(frontend: HttpFrontend, langchain: Any, method: str) -> None:
    schema = {
        "title": "Person",
        "description": "A person.",
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    frontend.say('{"name": "Ada"}')
    structured = langchain.with_structured_output(schema, method=method)
    assert structured.invoke("Who? Answer in JSON.") == {"name": "Ada"}


def ask_litellm(frontend: HttpFrontend, **more: Any) -> Any:
    import litellm

    return litellm.completion(
        model=f"hosted_vllm/{MODEL}",
        api_base=f"{frontend.url}/v1",
        api_key="x",
        max_retries=0,
        **{"messages": [{"role": "user", "content": "hi"}], **more},
    )


def test_litellm_chats_and_streams(frontend: HttpFrontend) -> None:
    assert ask_litellm(frontend).choices[0].message.content == "hello"
    chunks = list(ask_litellm(frontend, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_litellm_calls_tools_in_a_loop(frontend: HttpFrontend) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    frontend.say(CALLS)
    message = ask_litellm(frontend, tools=tools).choices[0].message
    calls = message.tool_calls
    assert [json.loads(call.function.arguments)["a"] for call in calls] == [1, 3]
    messages = [{"role": "user", "content": "hi"}, message.model_dump()]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in calls]
    frontend.say("done")
    assert ask_litellm(frontend, tools=tools, messages=messages).choices[0].message.content == "done"


def test_litellm_gets_structured_answers(frontend: HttpFrontend) -> None:
    frontend.say('{"a": 1}')
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True}}
    assert ask_litellm(frontend, response_format=form).choices[0].message.content == '{"a": 1}'


def test_embeddings_are_not_there(frontend: HttpFrontend, options: dict[str, Any]) -> None:
    import litellm
    from langchain_openai import OpenAIEmbeddings

    where = {"model": f"hosted_vllm/{MODEL}", "api_base": options["base_url"], "api_key": "x"}
    with pytest.raises(Exception, match="embeddings are not supported"):
        litellm.embedding(input=["x"], max_retries=0, **where)
    with pytest.raises(Exception, match="embeddings are not supported"):
        OpenAIEmbeddings(check_embedding_ctx_length=False, **options).embed_query("x")
