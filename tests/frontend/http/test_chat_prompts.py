"""From messages to a prompt: parts, templates, and models without one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.protocol.columns import unpack_i32
from octavo.protocol.requests import Submit
from octavo.tests.support.http_frontend import HttpFrontend, http_frontend
from octavo.tests.support.tokens import make_tok_b, make_tok_s

CHAT = "/v1/chat/completions"
REFUSES_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "{{ m['content'] }}{% endfor %}"
)
BOS_TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"


def prompt_text(frontend: HttpFrontend) -> str:
    """The prompt of the next request that reaches the scheduler."""
    ids = unpack_i32(frontend.scheduler.expect(Submit).prompt).tolist()
    return frontend.tokenizer.decode(ids, skip_special_tokens=False)


def serve(path: Path, template: str | None) -> Iterator[HttpFrontend]:
    make_tok_b(path, chat_template=template)
    with http_frontend(path) as frontend:
        yield frontend


def test_o50_text_parts_are_joined_in_order(frontend: HttpFrontend) -> None:
    parts = [{"type": "text", "text": "AA"}, {"type": "text", "text": "BB"}]
    messages = [{"role": "system", "content": parts}, {"role": "user", "content": parts}]
    assert frontend.http.post(CHAT, json={"messages": messages}).status_code == 200
    text = prompt_text(frontend)
    assert text.count("AA\nBB") == 2


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_o50_other_parts_are_refused_by_their_type(frontend: HttpFrontend, kind: str) -> None:
    messages = [{"role": "user", "content": [{"type": kind, kind: {"url": "x"}}]}]
    answer = frontend.http.post(CHAT, json={"messages": messages})
    assert answer.status_code == 400
    assert kind in answer.json()["error"]["message"]


def test_o51_a_chat_begins_with_one_bos(tmp_path: Path) -> None:
    make_tok_s(tmp_path, chat_template=BOS_TEMPLATE, add_bos=True)
    with http_frontend(tmp_path) as frontend:
        bos = frontend.tokenizer.bos_token_id
        for path, body in [
            (CHAT, {"messages": [{"role": "user", "content": "hi"}]}),
            ("/v1/completions", {"prompt": "hi"}),
        ]:
            assert frontend.http.post(path, json=body).status_code == 200
            ids = unpack_i32(frontend.scheduler.expect(Submit).prompt).tolist()
            assert ids[0] == bos
            assert ids.count(bos) == 1


def test_o14_an_empty_text_is_a_prompt_where_the_tokenizer_adds_bos(tmp_path: Path) -> None:
    make_tok_s(tmp_path, add_bos=True)
    with http_frontend(tmp_path) as frontend:
        answer = frontend.http.post("/v1/completions", json={"prompt": ""})
        assert answer.json()["usage"]["prompt_tokens"] == 1


@pytest.mark.parametrize(
    ("template", "says"),
    [(None, "no chat template"), (REFUSES_SYSTEM, "no system here"), ("{% for %}", "broken")],
    ids=["none", "refuses", "broken"],
)
def test_o52_a_template_problem_is_a_bad_request(tmp_path: Path, template: str | None, says: str) -> None:
    for frontend in serve(tmp_path, template):
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
        answer = frontend.http.post(CHAT, json={"messages": messages})
        assert answer.status_code == 400
        assert says in answer.json()["error"]["message"]
        assert frontend.http.post("/v1/completions", json={"prompt": "x"}).status_code == 200


def test_a_request_may_bring_a_template_only_where_it_is_trusted(tmp_path: Path) -> None:
    make_tok_b(tmp_path)
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hi"}],
        "chat_template": "{{ messages[0]['content'] }}{{ shout }}",
        "chat_template_kwargs": {"shout": "!!"},
    }
    with http_frontend(tmp_path, trust_request_chat_template=True) as frontend:
        assert frontend.http.post(CHAT, json=body).status_code == 200
        assert prompt_text(frontend) == "hi!!"
    with http_frontend(tmp_path) as frontend:
        assert frontend.http.post(CHAT, json=body).json()["error"]["param"] == "chat_template"
        assert frontend.http.post(CHAT, json={**body, "chat_template": "default"}).status_code == 200


def test_a_last_message_can_be_left_open(frontend: HttpFrontend) -> None:
    messages = [{"role": "user", "content": "count"}, {"role": "assistant", "content": "one, two"}]
    body = {"messages": messages, "continue_final_message": True}
    assert frontend.http.post(CHAT, json=body).status_code == 200
    assert prompt_text(frontend).endswith("<|im_start|>assistant\none, two")


def test_an_answer_can_be_sent_back_as_a_message(frontend: HttpFrontend) -> None:
    first = frontend.http.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}]}).json()
    messages = [{"role": "user", "content": "hi"}, first["choices"][0]["message"]]
    assert frontend.http.post(CHAT, json={"messages": messages}).status_code == 200


def test_tokenize_and_detokenize(frontend: HttpFrontend) -> None:
    http = frontend.http
    answer = http.post("/tokenize", json={"prompt": "the cat", "return_token_strs": True}).json()
    assert answer["tokens"] == frontend.ids("the cat", eos=False)
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert http.post("/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": "the cat"}
    chat = http.post("/tokenize", json={"messages": [{"role": "user", "content": "hi"}]}).json()
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert chat["tokens"] == frontend.tokenizer.encode(text, add_special_tokens=False)
    assert chat["token_strs"] is None
    assert http.post("/tokenize", json={}).status_code == 400
