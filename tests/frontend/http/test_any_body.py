"""Any JSON at all: an answer or a bad request, never a fault of the server."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.frontend.http.requests.chat import ChatRequest, ContentPart, Message
from octavo.frontend.http.requests.completions import CompletionRequest
from octavo.frontend.http.requests.fields import IGNORED, UNSUPPORTED, Endpoint
from octavo.frontend.http.requests.generate import GenerateRequest
from octavo.frontend.http.requests.tokenize import DetokenizeRequest, TokenizeRequest
from octavo.tests.support.http_frontend import HttpFrontend

FIELDS = {
    "/v1/completions": [*CompletionRequest.__struct_fields__, *UNSUPPORTED[Endpoint.COMPLETIONS]],
    "/v1/chat/completions": [
        *ChatRequest.__struct_fields__,
        *UNSUPPORTED[Endpoint.CHAT],
        *IGNORED[Endpoint.CHAT],
    ],
    "/generate": list(GenerateRequest.__struct_fields__),
    "/tokenize": list(TokenizeRequest.__struct_fields__),
    "/detokenize": list(DetokenizeRequest.__struct_fields__),
}
NAMES = st.sampled_from([*Message.__struct_fields__, *ContentPart.__struct_fields__, "0", "5", "-1", "a"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 300),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["text", "user", "system", "", "\ufffe", "😀", "{{ 1 }}", "\x00"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A path, and a body that is right but for a few fields."""
    path = draw(st.sampled_from(sorted(FIELDS)))
    right: dict[str, Any] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
        "/detokenize": {"tokens": [50]},
    }.get(path, {"prompt": "x"})
    wrong = draw(st.dictionaries(st.sampled_from(FIELDS[path]), VALUES, max_size=3))
    return path, {**right, **wrong}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests())
def test_any_body_is_answered_or_refused(frontend: HttpFrontend, case: tuple[str, dict[str, Any]]) -> None:
    path, body = case
    headers = {"content-type": "application/json"}
    answer = frontend.http.post(path, content=json.dumps(body).encode(), headers=headers)
    assert answer.status_code in (200, 400, 404), answer.text
    if answer.status_code == 404:
        assert "model" in body
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    elif "text/event-stream" not in answer.headers["content-type"] and path != "/generate":
        assert isinstance(answer.json(), dict)
