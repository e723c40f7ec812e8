"""Streaming a checkpoint's tensors to where a model wants them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ...protocol.errors import ModelError
from ..models.cuts import Cut
from .safetensors_header import StoredTensor, read_header

_DERIVED = ".rotary_emb.inv_freq"  # stored by old versions of transformers, computed here


def load_weights(
    files: Sequence[Path],
    slots: Mapping[str, Tensor],
    cuts: Mapping[str, Cut],
    *,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> None:
    """Fill every tensor of `slots` from the files, converting floating dtypes; where `cuts` names one, with
    that part of what is stored.

    `on_progress` is told the fraction of bytes read. Raises ModelError naming the tensor that is missing,
    unexpected, stored twice, truncated, of a wrong shape or dtype, or not finite.
    """
    stored = _match(files, slots, cuts)
    total = sum(tensor.num_bytes for tensor in stored) or 1
    done = 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            for tensor in stored:
                if tensor.path != path:
                    continue
                file.seek(tensor.offset)
                _fill(slots[tensor.name], cuts.get(tensor.name), tensor, file.readinto)
                done += tensor.num_bytes
                on_progress(done / total)


def _match(files: Sequence[Path], slots: Mapping[str, Tensor], cuts: Mapping[str, Cut]) -> list[StoredTensor]:
    found: dict[str, StoredTensor] = {}
    for path in files:
        for tensor in read_header(path):
            if tensor.name in found:
                raise ModelError(f"{path}: tensor {tensor.name} is also in {found[tensor.name].path.name}")
            if not tensor.name.endswith(_DERIVED):
                found[tensor.name] = tensor
    for name, slot in slots.items():
        if name not in found:
            raise ModelError(f"{_place(files)}: tensor {name} is missing")
        shape = cuts[name].stored_shape(tuple(slot.shape)) if name in cuts else tuple(slot.shape)
        if found[name].shape != shape:
            raise ModelError(
                f"{found[name].path}: tensor {name} has shape {list(found[name].shape)}, "
                f"config.json makes it {list(shape)}"
            )
    for name, tensor in found.items():
        if name not in slots:
            raise ModelError(f"{tensor.path}: tensor {name} has no place in the model config.json describes")
    return list(found.values())


def _place(files: Sequence[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0].parent} ({len(files)} files)"


def _fill(
    slot: Tensor, cut: Cut | None, stored: StoredTensor, readinto: Callable[[memoryview], int | None]
) -> None:
    same = slot.dtype == stored.dtype and slot.device.type == "cpu" and slot.is_contiguous()
    direct = same and cut is None
    target = slot if direct else torch.empty(stored.shape, dtype=stored.dtype)
    view = memoryview(target.view(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    while view:
        count = readinto(view)
        if not count:
            raise ModelError(f"{stored.path}: tensor {stored.name} is truncated")
        view = view[count:]
    # A sum is finite only if every term is, and costs one pass.
    if not target.sum(dtype=torch.float32).isfinite():
        raise ModelError(f"{stored.path}: tensor {stored.name} holds NaN or infinity")
    if not direct:
        slot.copy_(target if cut is None else cut.of(target))
