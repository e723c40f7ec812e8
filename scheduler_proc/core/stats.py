"""Counters of the core. Plain numbers: who exports them, and how often, is not known here."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class StepTimes:
    """Where the time of one completed step went, in seconds."""

    device: float  # on the device
    worker: float  # from the worker's taking the plan to its result
    flight: float  # from sending the plan to applying its result


@dataclass(slots=True)
class Stats:
    """Totals since start."""

    preemptions: int = 0
    prefix_queries: int = 0  # prompt tokens looked up
    prefix_hits: int = 0  # prompt tokens found
    prompt_tokens: int = 0  # prompt tokens of requests that produced a first token
    generated_tokens: int = 0  # delivered and part of an answer; falls when a stop string cuts an answer
    direct_prompt_tokens: int = 0  # of those: of clients that nobody else counts for
    direct_tokens: int = 0  # output tokens sent to such clients
    discarded_tokens: int = 0  # computed past an end
    steps: int = 0
    narrowed: int = 0  # failures of workers that leave fewer requests to suspect than the one before
    worker_resets: int = 0  # lives of workers that ended with requests to be taken up again
    rejected: dict[str, int] = field(default_factory=dict)  # by the kind of the error
    ended: dict[str, int] = field(default_factory=dict)  # choices by their public finish reason
    step_times: list[StepTimes] = field(default_factory=list)  # since they were last taken

    def reject(self, kind: str) -> None:
        self.rejected[kind] = self.rejected.get(kind, 0) + 1

    def end(self, reason: str) -> None:
        self.ended[reason] = self.ended.get(reason, 0) + 1

    def take_step_times(self) -> list[StepTimes]:
        """The steps completed since the last call."""
        times, self.step_times = self.step_times, []
        return times
