"""What the simulated device is told: `key=value,...`."""

import msgspec

from ...protocol.errors import UsageError
from ...protocol.step_cost import MODELS, StepCost


class SimOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes, times and faults of a simulated device. A time of 0 costs nothing, a fault at 0 never comes."""

    vocab: int = 0  # tokens are 0 .. vocab-1; 0: the configured vocabulary
    groups: int = 1  # KV groups
    window: int = 0  # sliding window of the groups behind the first, in tokens; 0: full attention
    eos: int = -1  # token that ends a choice; -1: none is ever drawn
    eos_every: int = 64  # one draw in so many is the eos token
    load_s: float = 0.0  # loading takes so long
    step_ms: float = 0.0  # a step costs at least this
    row_us: float = 0.0  # for each scheduled row
    prefill_us: float = 0.0  # for each computed token
    kv_us: float = 0.0  # for each 1000 tokens of context that are read
    attend_us: float = 0.0  # for each token of a chunk and each 1000 tokens before it
    model: str = ""  # all these times as measured, instead: "h200-8b"
    fail_load: bool = False  # loading ends with a ModelError
    crash_after: int = 0  # the step behind this many raises
    kill_after: int = 0  # the step behind this many ends the process with SIGKILL
    hang_after: int = 0  # the step behind this many never ends
    error_row_every: int = 0  # each so many-th drawn token is an error of its row instead
    poison_token: int = -1  # computing this token ends the process with SIGABRT, as a device fault may

    @property
    def cost(self) -> StepCost:
        """What a step costs in time."""
        own = StepCost(self.step_ms, self.row_us, self.prefill_us, self.kv_us, self.attend_us)
        return MODELS[self.model] if self.model else own


def parse_options(text: str) -> SimOptions:
    """Read `key=value,...`. Raises UsageError that names the entry at fault."""
    values: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"sim options are key=value, got {part!r}", param="sim")
        values[key.strip()] = value.strip()
    try:
        options = msgspec.convert(values, SimOptions, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"sim options {text!r}: {error}", param="sim") from error
    if options.window == 1 or min(options.groups, options.eos_every) < 1:
        raise UsageError(f"sim options {text!r}: groups, eos_every >= 1; window >= 2", param="sim")
    if options.model and options.model not in MODELS:
        raise UsageError(f"sim options {text!r}: model is one of {', '.join(MODELS)}", param="sim")
    return options
