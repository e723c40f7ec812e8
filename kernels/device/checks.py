"""What a wrapper checks before it launches: a kernel reads raw memory and would not notice."""

import torch
from torch import Tensor


def check(
    name: str,
    tensor: Tensor,
    *,
    dim: int | None = None,
    dtype: torch.dtype | tuple[torch.dtype, ...] | None = None,
    contiguous: bool = False,
) -> None:
    """Raises ValueError, naming the tensor, unless it has `dim` dimensions, one of the dtypes and a last
    dimension without gaps (with `contiguous`: no gap anywhere)."""
    if dim is not None and tensor.dim() != dim:
        raise ValueError(f"{name} must have {dim} dimensions, it has shape {tuple(tensor.shape)}")
    if dtype is not None:
        allowed = dtype if isinstance(dtype, tuple) else (dtype,)
        if tensor.dtype not in allowed:
            wanted = " or ".join(str(d) for d in allowed)
            raise ValueError(f"{name} must be {wanted}, it is {tensor.dtype}")
    if contiguous and not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, its strides are {tensor.stride()}")
    if tensor.dim() and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(
            f"{name} must have stride 1 in its last dimension, its strides are {tensor.stride()}"
        )


def check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Raises ValueError, naming the tensor, unless it has exactly this shape."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, it has {tuple(tensor.shape)}")


def check_same_device(**tensors: Tensor | None) -> None:
    """Raises ValueError, naming the tensor, when one of them lies on another device than the first."""
    device = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        device = device or tensor.device
        if tensor.device != device:
            raise ValueError(f"{name} must be on {device}, it is on {tensor.device}")


def new_output(name: str, shape: tuple[int, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """An uninitialized tensor for a result.

    Raises RuntimeError while a graph is being captured: its memory would belong to the graph's pool, where
    later replays overwrite it. The caller passes `out` then.
    """
    if like.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{name} must be passed in while a graph is captured")
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)
