"""What a step costs in time, for devices that are simulated."""

import msgspec


class StepCost(msgspec.Struct, frozen=True):
    """A sum of parts. Times of 0 cost nothing."""

    step_ms: float = 0.0  # for the step itself: reading the weights
    row_us: float = 0.0  # for each scheduled row
    prefill_us: float = 0.0  # for each computed token
    kv_us: float = 0.0  # for each 1000 tokens of context that are read
    attend_us: float = 0.0  # for each computed token and each 1000 tokens before it, beyond one a row

    def seconds(self, rows: int, tokens: int, context: int, attended: float) -> float:
        """Of a step that computes `tokens` tokens in `rows` rows.

        `context` is the length of all rows together, `attended` the sum over the tokens of chunks of the
        tokens before them.
        """
        micros = self.row_us * rows + self.prefill_us * tokens
        micros += (self.kv_us * context + self.attend_us * attended) / 1e3
        return self.step_ms / 1e3 + micros / 1e6


# Fitted to graph replays of an 8B model in bfloat16 on one H200: steps of 1, 64 and 256 rows at a context of
# 250 (3.8, 5.4 and 9.4 ms), prompts of 2048 tokens (48 ms) and of 2 x 4096 (204 ms), and decode attention of
# 256 rows at 512 (4.5 ms in 36 layers). Within 15 % of each but the first.
H200_8B = StepCost(step_ms=4.5, row_us=-10.5, prefill_us=21.0, kv_us=34.0, attend_us=1.4)

MODELS: dict[str, StepCost] = {"h200-8b": H200_8B}
