"""What requests ask for together, kept as sums so that nobody has to look at each."""

from dataclasses import dataclass

from ..core.request import Request


@dataclass(slots=True)
class Demand:
    """Sums over requests that no step has computed yet."""

    requests: int = 0
    choices: int = 0
    tokens: int = 0  # of prompts
    attended: float = 0.0  # for each prompt token those before it
    output: int = 0  # most tokens that all choices may have

    def add(self, request: Request) -> None:
        """One more."""
        self._count(request, 1)

    def remove(self, request: Request) -> None:
        """One less; it asks for the same as when it was added."""
        self._count(request, -1)

    def _count(self, request: Request, sign: int) -> None:
        length, choices = request.prompt_len, len(request.choices)
        self.requests += sign
        self.choices += sign * choices
        self.tokens += sign * length
        self.attended += sign * length * length / 2
        self.output += sign * choices * request.max_output
