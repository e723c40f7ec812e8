"""Traces of requests: made, not recorded, and the same for the same seed."""

from dataclasses import dataclass
from random import Random

from ...protocol.columns import pack_i32

VOCAB = 32_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace. Its answer has `num_output` tokens; the scheduler knows a bound alone."""

    at: float  # seconds
    prompt: bytes  # int32 column
    num_output: int
    max_tokens: int
    user: str = ""
    timeout: float | None = None


def _words(random: Random, count: int) -> list[int]:
    return [random.randrange(10, VOCAB) for _ in range(count)]


def _length(random: Random, median: int, spread: float, most: int) -> int:
    """A length whose logarithm is normal, as those of real prompts and answers are."""
    return max(1, min(most, int(random.lognormvariate(0.0, spread) * median)))


def bursty_chat(rate: float, seconds: float, seed: int = 0, *, median_output: int = 150) -> list[Arrival]:
    """Chats with one system prompt; half of them come in bursts of about ten within a second."""
    random = Random(f"chat {seed}")
    system = _words(random, 256)
    found: list[Arrival] = []
    at = 0.0
    while True:
        burst = random.random() < 1 / 11
        at += random.expovariate(rate / 2 + rate / 22)
        if at >= seconds:
            return sorted(found, key=lambda arrival: arrival.at)
        for _ in range(10 if burst else 1):
            prompt = system + _words(random, _length(random, 350, 0.8, 4000))
            output = _length(random, median_output, 0.7, 1000)
            found.append(Arrival(at + random.random() * burst, pack_i32(prompt), output, 1024, "chat"))


def long_documents(rate: float, seconds: float, seed: int = 0) -> list[Arrival]:
    """Questions about documents of 8 to 60 thousand tokens, among short chats: one in ten is long."""
    random = Random(f"documents {seed}")
    found: list[Arrival] = []
    at = 0.0
    while (at := at + random.expovariate(rate)) < seconds:
        long = random.random() < 0.1
        prompt = _words(random, random.randint(8_000, 60_000) if long else _length(random, 400, 0.6, 3000))
        output = _length(random, 300 if long else 150, 0.5, 1000)
        found.append(Arrival(at, pack_i32(prompt), output, 1024, "reader" if long else "chat"))
    return found


def agent_loops(rate: float, seconds: float, seed: int = 0, *, turns: int = 8) -> list[Arrival]:
    """Agents: a turn's prompt is the last one, its answer, and what a tool said: most of it is cached."""
    random = Random(f"agents {seed}")
    tools = _words(random, 2000)
    found: list[Arrival] = []
    begin = 0.0
    while (begin := begin + random.expovariate(rate / turns)) < seconds:
        at, prompt = begin, tools + _words(random, 200)
        for _ in range(turns):
            output = _length(random, 80, 0.5, 400)
            found.append(Arrival(at, pack_i32(prompt), output, 512, "agent"))
            # What the model will say is not known here: it stands in as words of the same number.
            prompt = prompt + _words(random, output + _length(random, 150, 0.7, 1000))
            at += 1.0 + output * 0.02 + random.expovariate(1.0)
    return sorted((arrival for arrival in found if arrival.at < seconds), key=lambda arrival: arrival.at)


def two_tenants(
    rate: float, seconds: float, seed: int = 0, *, greedy: float = 4.0, light: bool = True
) -> list[Arrival]:
    """A light tenant that reads documents at `rate`, and one that sends `greedy` times as many requests."""
    random = Random(f"light {seed}")
    found: list[Arrival] = []
    at = 0.0
    while light and (at := at + random.expovariate(rate)) < seconds:
        prompt = _words(random, _length(random, 4000, 0.5, 12_000))
        found.append(Arrival(at, pack_i32(prompt), _length(random, 100, 0.5, 400), 512, "light"))
    random, at = Random(f"greedy {seed}"), 0.0
    while greedy and (at := at + random.expovariate(rate * greedy)) < seconds:
        prompt = _words(random, _length(random, 1500, 0.5, 6000))
        found.append(Arrival(at, pack_i32(prompt), _length(random, 24, 0.5, 100), 128, "greedy"))
    return sorted(found, key=lambda arrival: arrival.at)


TRACES = {
    "bursty-chat": bursty_chat,
    "long-documents": long_documents,
    "agent-loops": agent_loops,
    "two-tenants": two_tenants,
}
