"""Messages of a scheduler, made by hand for tests of a client that has no socket."""

from dataclasses import dataclass, field

from octavo.protocol.columns import pack_i32, pack_i64
from octavo.protocol.ids import FinishReason
from octavo.protocol.lifecycle import ModelLimits
from octavo.protocol.replies import Deltas, Fault, Start, Welcome

LIMITS = ModelLimits(
    model="m", vocab_size=300, max_model_len=4096, max_request_tokens=4096, eos_token_ids=(2,)
)


@dataclass
class Row:
    """One entry of a `Deltas`."""

    request: int
    tokens: list[int] = field(default_factory=list)
    start: int = 0
    attempt: int = 0
    choice: int = 0
    finish: FinishReason = FinishReason.NONE
    stop_token: int = -1
    fault: tuple[str, str] | None = None


def welcome(incarnation: int = 1) -> Welcome:
    return Welcome(incarnation, LIMITS, True, "")


def deltas(*rows: Row) -> Deltas:
    return Deltas(
        request=pack_i64(row.request for row in rows),
        attempt=pack_i32(row.attempt for row in rows),
        choice=pack_i32(row.choice for row in rows),
        start=pack_i32(row.start for row in rows),
        count=pack_i32(len(row.tokens) for row in rows),
        finish=pack_i32(row.finish for row in rows),
        stop_token=pack_i32(row.stop_token for row in rows),
        tokens=pack_i32(token for row in rows for token in row.tokens),
        starts=tuple(Start(index, 3, 2.0, 1.0) for index, row in enumerate(rows) if row.start == 0),
        faults=tuple(Fault(index, *row.fault) for index, row in enumerate(rows) if row.fault),
    )
