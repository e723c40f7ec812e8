"""`docs/protocol.md` says what the code does, and its example works."""

import re
import sys
import threading
import typing
from io import StringIO
from pathlib import Path

import msgspec
import pytest
import zmq

import octavo
from octavo.protocol.channels import bind_router, send_to
from octavo.protocol.codec import FINGERPRINT, client_decoder, encode, messages, records
from octavo.protocol.columns import pack_i32, pack_i64, unpack_i32
from octavo.protocol.document import document, field_comments
from octavo.protocol.ids import FinishReason
from octavo.protocol.lifecycle import ModelLimits
from octavo.protocol.replies import Accepted, Deltas, Welcome
from octavo.protocol.requests import ClientHello, Submit

PAGE = Path(octavo.__file__).parent / "docs" / "protocol.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == document(), "run: python -m octavo.protocol.document > docs/protocol.md"


@pytest.mark.parametrize("kind", [*messages(), *records()], ids=lambda kind: kind.__name__)
def test_every_field_says_what_it_means(kind: type[msgspec.Struct]) -> None:
    assert kind.__doc__
    assert set(field_comments(kind)) == set(typing.get_type_hints(kind))


def test_the_frames_of_the_example_decode() -> None:
    frames = re.findall(r"```\n((?:[0-9a-f]{2}[ \n])+)```", PAGE.read_text())
    hello, submit = [client_decoder().decode(bytes.fromhex(frame)) for frame in frames]
    assert hello == ClientHello(FINGERPRINT, "example")
    assert isinstance(submit, Submit)
    assert list(unpack_i32(submit.prompt)) == [9707, 11]
    assert submit.params.max_tokens == 4


def test_the_python_example_gets_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = bind_router(context, "tcp://127.0.0.1:*")
    endpoint = router.getsockopt_string(zmq.LAST_ENDPOINT)
    scheduler = threading.Thread(target=answer_one_request, args=(router,))
    scheduler.start()
    printed = StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    names: dict[str, typing.Any] = {}
    exec(code.replace("ipc:///run/octavo/clients", endpoint), names)
    scheduler.join()
    router.close()
    names["socket"].context.destroy()
    context.term()
    assert printed.getvalue() == "(1, 2)\n(3, 4)\n"


def answer_one_request(router: "zmq.Socket[bytes]") -> None:
    """Play the scheduler: four tokens in two messages."""
    client, frame = router.recv_multipart()
    assert isinstance(client_decoder().decode(frame), ClientHello)
    limits = ModelLimits("m", 10_000, 100, 100, ())
    send_to(router, client, encode(Welcome(1, limits, True, "")))
    _, frame = router.recv_multipart()
    submit = client_decoder().decode(frame)
    assert isinstance(submit, Submit)
    send_to(router, client, encode(Accepted(submit.request, submit.attempt, 0, -1.0)))
    for start, tokens, finish in ((0, [1, 2], FinishReason.NONE), (2, [3, 4], FinishReason.LENGTH)):
        deltas = Deltas(
            request=pack_i64([submit.request]),
            attempt=pack_i32([submit.attempt]),
            choice=pack_i32([0]),
            start=pack_i32([start]),
            count=pack_i32([len(tokens)]),
            finish=pack_i32([finish]),
            stop_token=pack_i32([-1]),
            tokens=pack_i32(tokens),
        )
        send_to(router, client, encode(deltas))
