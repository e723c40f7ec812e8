"""A process of clients that say nothing, read nothing, send nonsense or far too much, until its input ends.

`python -m octavo.tests.support.rough_clients URL HALF_OPEN FLOODS SLOW LARGE_BYTES`. Prints `ready` when all
of them are there, those that get answers behind their first, and at its end how many answers each kind got.
"""

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
from urllib.parse import urlsplit

STREAM = {"prompt": "x", "max_tokens": 8_000, "ignore_eos": True, "stream": True}
NONSENSE = b'{"prompt": [' * 50
_READ_EVERY = 1.0  # seconds between two reads of a slow reader
_READ_BYTES = 256


class RoughClients:
    """All of them, on one loop."""

    def __init__(self, url: str, large_bytes: int) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._large = json.dumps({"prompt": "the cat sat on the mat " * (large_bytes // 23)}).encode()
        self.answers: Counter[str] = Counter()
        self.there = 0  # connections that are where they should be

    async def half_open(self) -> None:
        """Begin a head and never end it; again when the server gives up."""
        while True:
            reader, writer = await self._connect()
            writer.write(b"GET /health HT")
            self.there += 1
            with suppress(ConnectionError):
                await reader.read()
            self.there -= 1
            self.answers["half-open"] += 1
            writer.close()

    async def flood(self) -> None:
        """Nonsense, one after the other."""
        reader, writer = await self._connect()
        for turn in count():
            status = await self._post(reader, writer, "/v1/completions", NONSENSE)
            self.answers[f"nonsense {status}"] += 1
            self.there += turn == 0

    async def large(self) -> None:
        """A text that is far too long, to be refused and to be turned into tokens."""
        for turn in count():
            path = ("/v1/completions", "/tokenize")[turn % 2]
            reader, writer = await self._connect()
            self.answers[f"{path} {await self._post(reader, writer, path, self._large)}"] += 1
            self.there += turn == 0
            writer.close()

    async def slow_reader(self) -> None:
        """A stream of which little is read, and late."""
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, (self._host, self._port))
            await loop.sock_sendall(connection, _request("/v1/completions", json.dumps(STREAM).encode()))
            head = await loop.sock_recv(connection, _READ_BYTES)
            assert head.startswith(b"HTTP/1.1 200 ")
            self.there += 1
            while await loop.sock_recv(connection, _READ_BYTES):
                self.answers["slow reads"] += 1
                await asyncio.sleep(_READ_EVERY)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port)

    async def _post(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, content: bytes
    ) -> int:
        """The status of the answer."""
        writer.write(_request(path, content))
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        return int(head.split()[1])


def _request(path: str, content: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def run(url: str, half_open: int, floods: int, slow: int, large_bytes: int) -> None:
    """Be rough until standard input ends. Raises what any of the clients did not expect."""
    clients = RoughClients(url, large_bytes)
    kinds: list[Coroutine[None, None, None]] = [clients.slow_reader() for _ in range(slow)]
    kinds += [clients.half_open() for _ in range(half_open)]
    kinds += [clients.flood() for _ in range(floods)]
    kinds += [clients.large()] if large_bytes else []
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(kind) for kind in kinds]
        while clients.there < len(tasks):
            await asyncio.sleep(0.01)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
    sys.stdout.write(json.dumps(clients.answers) + "\n")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], *map(int, sys.argv[2:])))
