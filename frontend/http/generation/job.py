"""One prompt of a request, ready to be submitted."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....protocol.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Job:
    """Token ids and how to go on from them."""

    name: str  # what logs and stories call it
    prompt_ids: Sequence[int]
    params: SamplingParams
    arrived: float  # time.monotonic() when the request came in
    priority: int = 0
    user: str = ""
    cache_salt: str = ""
    grammar_field: str = "structured_outputs"  # what the request calls the field that asks for a grammar
    echo: str = ""  # text that every choice begins with
    echo_logprobs: int | None = None  # alternatives beside each token of it; None: without log-probabilities
    only_prompt: bool = False  # no token was asked for; one is drawn, since reading a prompt draws one
