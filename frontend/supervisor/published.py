"""What a server says about itself in its run directory, for scripts and clients on this machine."""

import os
from pathlib import Path

import msgspec

from ...protocol.codec import FINGERPRINT

FILE_NAME = "server.json"


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `server.json`."""

    pid: int  # of the supervisor: SIGTERM drains, SIGINT ends
    model: str  # served name
    url: str  # of the HTTP API
    endpoint: str  # where clients of the scheduler connect
    fingerprint: str = FINGERPRINT  # of the protocol, see docs/protocol.md
    processes: dict[str, int]  # pid of each child by its role
    ready: bool  # it has been healthy since its start


def publish(info: ServerInfo, run_dir: Path) -> None:
    """Replace the file at once: a reader sees the old content or the new."""
    partial = run_dir / f".{FILE_NAME}"
    partial.write_bytes(msgspec.json.encode(info) + b"\n")
    os.replace(partial, run_dir / FILE_NAME)
