"""The listening socket: bound first, so that a taken port is known before anything heavy starts."""

import errno
import socket

from ...protocol.errors import PortInUseError, UsageError

_BACKLOG = 2048  # connections that wait while no frontend accepts, as in a restart


def bind_port(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port`, 0 for a free one.

    Raises PortInUseError when the port is taken, UsageError when the address cannot be used.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Of a name that has both, IPv4: that is where clients of "localhost" look when they look once.
        family, _, _, _, address = min(infos, key=lambda info: info[0] != socket.AF_INET)
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            taken = f"port {port} of {host} is taken by another process"
            raise PortInUseError(taken, param="port") from error
        reason = error.strerror or error
        raise UsageError(f"cannot listen on port {port} of {host}: {reason}", param="host") from error


def url_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches the socket."""
    host, port = listener.getsockname()[:2]
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{local}]:{port}" if ":" in local else f"http://{local}:{port}"
