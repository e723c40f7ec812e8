"""Names of things that travel: clients, requests, incarnations."""

import secrets
from enum import IntEnum


class FinishReason(IntEnum):
    """Why a choice ended; NONE while it runs. `OPENAI_NAME` gives the public word."""

    NONE = 0
    STOP = 1  # eos, a stop token, or a stop string reported by the frontend
    LENGTH = 2  # max_tokens or max_model_len
    ABORT = 3
    TIMEOUT = 4
    ERROR = 5

    @property
    def public(self) -> str | None:
        """The word used in outputs (`"stop"`, `"length"`, ...), None for NONE."""
        return None if self is FinishReason.NONE else self.name.lower()


def new_client() -> bytes:
    """A client's ZeroMQ identity: 8 random bytes. The first is never 0, which ZeroMQ reserves."""
    return b"c" + secrets.token_bytes(7)


def new_incarnation() -> int:
    """A number that no earlier life of this process had: 62 random bits."""
    return secrets.randbits(62)


def new_seed() -> int:
    """A seed for a request that has none: 64 random bits."""
    return secrets.randbits(64)


def new_request_name(prefix: str = "req") -> str:
    """A request id for people: what logs, headers and stories call the request."""
    return f"{prefix}-{secrets.token_hex(12)}"
