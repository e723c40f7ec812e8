#!/usr/bin/env python3
"""A client of the scheduler in plain zmq and msgpack: it imports nothing of Octavo.

    scripts/zmq_client.py RUN_DIR 504 1761 314 --max-tokens 16

submits the token ids to the server whose run directory is RUN_DIR and prints the output tokens as they come.
docs/protocol.md describes the messages.
"""

import argparse
import itertools
import json
import secrets
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import zmq

ALIVE_SECONDS = 1.0
FINISH = ("", "stop", "length", "abort", "timeout", "error")


class Scheduler:
    """A connection to a scheduler that has said welcome."""

    def __init__(self, endpoint: str, fingerprint: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IDENTITY, b"c" + secrets.token_bytes(7))
        self._socket.connect(endpoint)
        self._numbers = itertools.count()
        self._spoke = 0.0
        self._send("ClientHello", fingerprint, "zmq_client")
        name, *fields = self._receive()
        if name != "Welcome":
            raise RuntimeError(f"no welcome: {name} {fields}")

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def generate(self, prompt: list[int], params: dict[str, Any]) -> Iterator[tuple[list[int], str]]:
        """Submit a prompt; yields new tokens of its one choice, and with the last of them why it ended."""
        number = next(self._numbers)
        column = struct.pack(f"<{len(prompt)}i", *prompt)
        self._send(
            "Submit", number, 0, f"zmq-{number}", column, params, params.get("seed", secrets.randbits(63))
        )
        while True:
            name, *fields = self._receive()
            if name == "Rejected":
                raise RuntimeError(f"{fields[2]}: {fields[3]}")
            if name != "Deltas":
                continue
            count, finish, tokens = (unpack(fields[at]) for at in (4, 5, 7))
            faults = {fault[0]: f"{fault[1]}: {fault[2]}" for fault in (fields[9:10] or [[]])[0]}
            for index in range(len(count)):
                # One request is open, so every entry is about it.
                new, tokens = tokens[: count[index]], tokens[count[index] :]
                if index in faults:
                    raise RuntimeError(faults[index])
                yield new, FINISH[finish[index]]
                if finish[index]:
                    return

    def _send(self, *message: object) -> None:
        self._socket.send(msgpack.packb(message))
        self._spoke = time.monotonic()

    def _receive(self) -> list[Any]:
        """The next message. Says each second that this client is alive: a silent one is taken for dead."""
        while True:
            due = self._spoke + ALIVE_SECONDS - time.monotonic()
            if due <= 0:
                self._send("Alive")
            elif self._socket.poll(int(due * 1000) + 1):
                return list(msgpack.unpackb(self._socket.recv()))


def unpack(column: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(column) // 4}i", column))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "run_dir", type=Path, help="run directory of a server, which it prints when it is ready"
    )
    parser.add_argument("prompt", type=int, nargs="+", metavar="TOKEN", help="token ids of the prompt")
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    server = json.loads((arguments.run_dir / "server.json").read_text())
    scheduler = Scheduler(server["endpoint"], server["fingerprint"])
    params = {name: getattr(arguments, name) for name in ("max_tokens", "temperature", "seed")}
    began, total = time.perf_counter(), 0
    for tokens, finish in scheduler.generate(arguments.prompt, params):
        total += len(tokens)
        print(*tokens, sep=" ", end=" ", flush=True)
        if finish:
            seconds = time.perf_counter() - began
            print(f"\n{total} tokens in {seconds:.2f} s, finished by {finish}", file=sys.stderr)
    scheduler.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
