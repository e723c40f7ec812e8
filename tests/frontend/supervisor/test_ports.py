"""The listening socket: bound first, named truthfully."""

import socket

import pytest

from octavo.frontend.supervisor.ports import bind_port, url_of
from octavo.protocol.errors import PortInUseError, UsageError


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("127.0.0.5", "127.0.0.5"),
    ],
)
def test_a_client_on_this_machine_reaches_it(host: str, local: str) -> None:
    with bind_port(host, 0) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://{local}:{port}"
        socket.create_connection((local, port), timeout=5).close()


@pytest.mark.skipif(not socket.has_ipv6, reason="a machine without IPv6")
@pytest.mark.parametrize("host", ["::1", "::"])
def test_an_address_of_ipv6_stands_in_brackets(host: str) -> None:
    with bind_port(host, 0) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://[::1]:{port}"
        socket.create_connection(("::1", port), timeout=5).close()


@pytest.mark.parametrize(("first", "second"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_a_taken_port_is_named(first: str, second: str) -> None:
    with bind_port(first, 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} of {second}"):
            bind_port(second, port)


def test_a_port_is_free_again_at_once() -> None:
    """Connections of an earlier server that are still closing do not count."""
    listener = bind_port("127.0.0.1", 0)
    port = listener.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port), timeout=5)
    accepted, _ = listener.accept()
    accepted.close()  # the server's side closes first and lingers
    client.close()
    listener.close()
    bind_port("127.0.0.1", port).close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(UsageError, match=host):
        bind_port(host, 0)
