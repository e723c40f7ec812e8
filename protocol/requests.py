"""What a client (a frontend, a Python engine, a foreign program) tells the scheduler.

A client is a DEALER socket; its identity names it. `request` is a number the client chose, unique among its
own open requests; `name` is what people call the request.
"""

from .base import Message
from .sampling import SamplingParams


class ClientHello(Message, frozen=True):
    """First message of a client, and again after it met a new scheduler. Answered by `Welcome`."""

    fingerprint: str  # schema of the sender, the fingerprint of this page; empty from a foreign client
    name: str  # for logs, such as "frontend-0"


class Submit(Message, frozen=True):
    """Start a request, or take it up again after a restart. Idempotent on (client, request, attempt)."""

    request: int  # client's number of the request, 0 .. 2**63-1
    attempt: int  # 0 first; a resubmission counts up; the highest wins and older deltas are dropped
    name: str  # request id for people; at most 256 characters
    prompt: bytes  # int32 column: token ids of the prompt, at least one
    params: SamplingParams  # how tokens are chosen, and what ends a choice
    seed: int  # 64-bit seed of all draws; params.seed or drawn by the client
    priority: int = 0  # lower runs earlier, under the order `priority`
    age_ms: float = 0.0  # time since the request arrived at the client
    user: str = ""  # tenant, for the order `fair`
    cache_salt: str = ""  # requests share cached prefixes only with requests of the same salt
    bad_words: tuple[bytes, ...] = ()  # int32 columns: token sequences that must not be completed
    delivered: tuple[bytes, ...] = ()  # int32 columns, one a choice: output tokens the client already has
    ended: tuple[int, ...] = ()  # choices that already ended


class Abort(Message, frozen=True):
    """End a request; its blocks are free when the scheduler has read this. Unknown requests are ignored."""

    request: int  # client's number of it


class Finish(Message, frozen=True):
    """The client found a stop string: the choice is done, tokens past `num_output` are discarded."""

    request: int  # client's number of it
    choice: int  # 0 .. n-1
    num_output: int  # output tokens that belong to the answer


class Alive(Message, frozen=True):
    """Sent each second by a client with open requests, and by any client that wants a `Status` back."""


class Query(Message, frozen=True):
    """Ask for a `Snapshot`, or for the `Story` of a request when `name` is given. Answered at once."""

    token: int  # repeated in the answer
    name: str = ""  # request id for people


ClientMessage = ClientHello | Submit | Abort | Finish | Alive | Query
