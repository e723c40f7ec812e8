"""Link: a scheduler that was silent for a while, and is not gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from octavo.frontend.engine import link as link_module
from octavo.frontend.engine.client_core import ClientCore
from octavo.frontend.engine.link import SILENCE_SECONDS, Link
from octavo.protocol import channels, codec
from octavo.protocol.requests import ClientHello
from octavo.tests.support.waiting import wait_until
from octavo.tests.support.wire import welcome


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def router(tmp_path: Path) -> Iterator[tuple["zmq.Socket[bytes]", str]]:
    with zmq.Context() as context:
        endpoint = f"ipc://{tmp_path}/clients"
        socket = channels.bind_router(context, endpoint)
        yield socket, endpoint
        socket.close(0)


def test_a_scheduler_that_was_silent_is_greeted_again(
    router: tuple["zmq.Socket[bytes]", str], monkeypatch: pytest.MonkeyPatch
) -> None:
    socket, endpoint = router
    clock = Clock()
    monkeypatch.setattr(link_module, "time", clock)
    core = ClientCore(None, "test", recover=True)
    link = Link(core, endpoint)
    decoder = codec.client_decoder()

    def greeted() -> bool:
        link.pump()
        return bool(socket.poll(10)) and isinstance(decoder.decode(socket.recv_multipart()[1]), ClientHello)

    def ready() -> bool:
        link.pump()
        return core.ready

    client = link.socket.getsockopt(zmq.IDENTITY)
    assert isinstance(client, bytes)
    for _ in range(2):
        wait_until(greeted, within=5, what="a hello")
        if not core.ready:  # the second time, the message that broke the silence was a welcome
            channels.send_to(socket, client, codec.encode(welcome()))
        wait_until(ready, within=5, what="ready")
        link.beat(None)  # asks, and hears nothing
        clock.now += SILENCE_SECONDS + 1
        link.beat(None)
        assert not core.ready and "silent" in core.reason
        channels.send_to(socket, client, codec.encode(welcome()))
    link.close()
    link.close()
