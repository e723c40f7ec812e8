"""The feed-forward of a layer whose tokens choose among experts."""

from typing import NamedTuple

from torch import Tensor

from .cuts import Cut
from .layers import Linear, Ops
from .parameters import Parameters


class ExpertsConfig(NamedTuple):
    """How a model's experts are made and chosen, and what a checkpoint calls them."""

    count: int
    per_token: int
    intermediate_size: int
    renormalize: bool  # a token's weights sum to 1
    block: str  # name within a layer
    gate: str  # names within an expert
    up: str
    down: str
    dense_layers: frozenset[int] = frozenset()  # layers that have a plain feed-forward instead


class Experts:
    """A router and its experts."""

    def __init__(
        self, config: ExpertsConfig, params: Parameters, prefix: str, hidden: int, inner: Cut
    ) -> None:
        """`inner`: the features of each expert that are held here."""
        self._config = config
        block = f"{prefix}.{config.block}"
        self._router = Linear(params, [(f"{block}.gate", config.count)], hidden, bias=False)
        names = [f"{block}.experts.{index}" for index in range(config.count)]
        self._gate_up = [
            Linear(
                params, [(f"{name}.{config.gate}", inner), (f"{name}.{config.up}", inner)], hidden, bias=False
            )
            for name in names
        ]
        self._down = [
            Linear(params, [(f"{name}.{config.down}", hidden)], inner.across(), bias=False) for name in names
        ]

    def finish(self, ops: Ops) -> None:
        """Bring the loaded weights into the device's form."""
        for linear in (self._router, *self._gate_up, *self._down):
            linear.finish(ops)

    def __call__(self, ops: Ops, x: Tensor) -> Tensor:
        """[num_tokens, hidden_size] from as much."""
        config = self._config
        routes = ops.route(self._router(x), top_k=config.per_token, renormalize=config.renormalize)
        gate_up, down = ([linear.weight for linear in part] for part in (self._gate_up, self._down))
        return ops.mix_experts(x, routes, gate_up, down)
