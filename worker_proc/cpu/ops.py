"""The operators of a decoder on the CPU."""

from torch import Tensor

from ...kernels import cpu as kernels


class CpuOps:
    """Those of `kernels.cpu`; shapes as in `Ops`.

    Weights are kept in two forms, one for many rows and one for a single row, while the second forms take at
    most `second_form_bytes` together. The head's costs nothing where the embeddings are the same tensor.
    """

    embed = staticmethod(kernels.embed)
    linear = staticmethod(kernels.linear)
    gated_linear = staticmethod(kernels.gated_linear)
    rms_norm = staticmethod(kernels.rms_norm)
    add_rms_norm = staticmethod(kernels.add_rms_norm)
    route = staticmethod(kernels.route)
    mix_experts = staticmethod(kernels.mix_experts)

    def __init__(self, second_form_bytes: int = 0) -> None:
        self._bytes_left = second_form_bytes

    def pack_linear(self, weight: Tensor) -> kernels.PackedLinear:
        return kernels.pack_linear(weight, keep_plain=self._keeps(weight))

    def pack_gated(self, weight: Tensor) -> kernels.PackedGated | kernels.PackedLinear:
        return kernels.pack_gated(weight, keep_plain=self._keeps(weight))

    def pack_head(self, weight: Tensor) -> kernels.PackedLinear:
        return kernels.pack_linear(weight, keep_plain=self._keeps(weight))

    def _keeps(self, weight: Tensor) -> bool:
        if weight.nbytes > self._bytes_left:
            return False
        self._bytes_left -= weight.nbytes
        return True
