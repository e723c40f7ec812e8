"""What the shared decoder needs to know of a model, and how it is read from config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...protocol.errors import ModelError
from .experts import ExpertsConfig
from .rope import RopeConfig, read_rope

Json = Mapping[str, Any]

_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_SLIDING, _FULL = "sliding_attention", "full_attention"


class LayerGroup(NamedTuple):
    """Layers that share a block table."""

    window: int  # positions they attend to, 0 for all
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and traits of a decoder-only transformer."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    tied_head: bool
    rope: RopeConfig
    dtype: str | None  # as config.json says, None when it does not
    initializer_range: float
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    fused: bool = False  # the checkpoint has qkv_proj and gate_up_proj
    activation: str = "silu"  # or "gelu_tanh"
    windows: tuple[int, ...] = ()  # positions each layer attends to, 0 for all; () for all in all layers
    local_rope: RopeConfig | None = None  # of the layers in `local_layers`
    local_layers: frozenset[int] = frozenset()
    attention_scale: float | None = None  # of query-key products; 1 / sqrt(head_dim) without
    attention_softcap: float = 0.0  # 0 is off
    logit_softcap: float = 0.0
    embed_scale: float = 1.0
    norm_offset: float = 0.0  # added to the weights of norms, which are kept in float32 then
    post_norms: bool = False  # attention and feed-forward end with a norm too
    experts: ExpertsConfig | None = None

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The layers by KV group: those that share a window, in the order of their first layers."""
        windows = self.windows or (0,) * self.num_layers
        return tuple(
            LayerGroup(window, tuple(i for i, other in enumerate(windows) if other == window))
            for window in dict.fromkeys(windows)
        )

    @property
    def ropes(self) -> tuple[RopeConfig, ...]:
        """The rotary embeddings: that of most layers, and that of the local ones if there are any."""
        return (self.rope,) if self.local_rope is None else (self.rope, self.local_rope)

    def within(self, max_len: int) -> "ModelConfig":
        """The same model for contexts of at most `max_len` tokens, where a window as long hides nothing."""
        windows = tuple(0 if window >= max_len else window for window in self.windows)
        return replace(self, windows=windows)

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def num_weights(self) -> int:
        """About how many, leaving out vectors."""
        attention = self.hidden_size * 2 * (self.q_size + self.kv_size)
        mlp = self.num_layers * self.intermediate_size
        if self.experts is not None:
            num_dense = len(self.experts.dense_layers)
            experts = self.experts.count * self.experts.intermediate_size
            mlp = num_dense * self.intermediate_size + (self.num_layers - num_dense) * experts
        tables = (1 if self.tied_head else 2) * self.vocab_size * self.hidden_size
        return self.num_layers * attention + 3 * self.hidden_size * mlp + tables


def read_common(config: Json, *, rope: RopeConfig | None = None, **traits: Any) -> ModelConfig:
    """Read the fields that all Llama-like models share; `rope` is read too unless it is given.

    Raises ModelError that names a wrong one.
    """
    if "quantization_config" in config:
        method = config["quantization_config"].get("quant_method", "unknown")
        raise ModelError(f"config.json: weights quantized with {method!r} are not supported")
    num_heads = positive(config, "num_attention_heads")
    num_kv_heads = positive(config, "num_key_value_heads", num_heads)
    hidden_size = positive(config, "hidden_size")
    if num_heads % num_kv_heads:
        raise ModelError(
            f"config.json: num_attention_heads ({num_heads}) must be a multiple of "
            f"num_key_value_heads ({num_kv_heads})"
        )
    experts = traits.get("experts")
    if experts is not None and experts.per_token > experts.count:
        raise ModelError(
            f"config.json: num_experts_per_tok ({experts.per_token}) is more than {experts.count} experts"
        )
    head_dim = positive(config, "head_dim", hidden_size // num_heads)
    dtype = config.get("dtype") or config.get("torch_dtype")
    return ModelConfig(
        architecture=config["architectures"][0],
        vocab_size=positive(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=positive(config, "intermediate_size"),
        num_layers=positive(config, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        tied_head=bool(config.get("tie_word_embeddings", False)),
        rope=rope or read_rope(config, head_dim),
        dtype=None if dtype is None else str(dtype).removeprefix("torch."),
        initializer_range=float(config.get("initializer_range", 0.02)),
        activation=_activation(config),
        **traits,
    )


def read_windows(config: Json, *, default: int | None = None) -> tuple[int, ...]:
    """The windows of a model all of whose layers have the one that `sliding_window` names, if any."""
    window = config.get("sliding_window", default)
    return (_window(window),) * positive(config, "num_hidden_layers") if window is not None else ()


def read_layer_windows(config: Json, slides: Callable[[int], bool], *, default: int) -> tuple[int, ...]:
    """The windows of a model whose `layer_types` say which layers have the one of `sliding_window`.

    Without that list `slides` says it of a layer's index. `default` is the window of a config without a name.
    """
    num_layers, window = positive(config, "num_hidden_layers"), config.get("sliding_window", default)
    if window is None:
        return ()
    types = config.get("layer_types") or [_SLIDING if slides(index) else _FULL for index in range(num_layers)]
    if len(types) != num_layers or not set(types) <= {_SLIDING, _FULL}:
        raise ModelError(f"config.json: layer_types must name {_SLIDING} or {_FULL} for {num_layers} layers")
    return tuple(_window(window) if kind == _SLIDING else 0 for kind in types)


def _window(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"config.json: sliding_window must be a positive integer, got {value!r}")
    return value


def positive(config: Json, name: str, default: int | None = None) -> int:
    """A size that config.json names. Raises ModelError that names it when it is none."""
    value = config.get(name)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"config.json: {name} must be a positive integer, got {value!r}")
    return value


def _activation(config: Json) -> str:
    key = "hidden_act" if config.get("hidden_activation") is None else "hidden_activation"
    name = config.get(key, "silu")
    if name not in _ACTIVATIONS:
        raise ModelError(f"config.json: {key} {name!r} is not supported, only {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]
