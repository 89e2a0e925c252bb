"""Which networks have no genome: each is refused by the name of what is in the way, before anything is trained."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor, nn

from esgd.errors import TaskError


def check_network(module: nn.Module) -> None:
    """Refuse a network that cannot be taken apart into a row and buffers, and put together again."""
    _check_kinds(module)
    _check_state(module)
    trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not trainable:
        raise TaskError(
            f"{type(module).__name__} has no trainable parameters. ESGD evolves the parameters with "
            f"requires_grad=True. Unfreeze at least one, or check what make_model returns."
        )
    _check_dtypes(trainable)
    _check_hooks(trainable)
    _check_memory(module)
    try:
        copy.deepcopy(module)
    except (RuntimeError, TypeError) as error:
        raise TaskError(
            f"{type(module).__name__} cannot be copied: {error}. Every individual is handed out as a copy of the "
            f"network. Old-style weight_norm and torch.nn.utils.prune do this; use "
            f"torch.nn.utils.parametrizations.weight_norm, and a parametrization of your own for a mask."
        ) from error


def _check_kinds(module: nn.Module) -> None:
    """Layers and tensors that are not there yet, or that cannot be written into."""
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise TaskError(
                f"{f'layer {name!r}' if name else type(module).__name__} is a torch.jit.ScriptModule. Every "
                f"individual is a copy of the network with a row written into it, and a compiled graph keeps its own. "
                f"Return the nn.Module from make_model, and script what was trained afterwards."
            )
    for kind, name, tensor in _tensors(module):
        if isinstance(tensor, nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer):
            raise TaskError(
                f"{kind} {name!r} has no shape yet. A genome needs every shape before training, and a lazy layer has "
                f"none until its first batch. Run one batch through the network inside make_model."
            )
        if tensor.is_meta:
            raise TaskError(
                f"{kind} {name!r} is on the meta device: it has a shape and no values. An individual starts from the "
                f"values that make_model gives it. Build the network on the CPU, or call to_empty(device='cpu') and "
                f"initialise it inside make_model."
            )


def _check_state(module: nn.Module) -> None:
    for name, value in module.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise TaskError(
                f"the state dict has {name!r}, a {type(value).__name__} and not a tensor. An individual is a row of "
                f"parameters and its buffers; other state would be lost when mates are averaged or a run is saved. "
                f"Keep it in a buffer (register_buffer), or outside get_extra_state if it is a constant."
            )


def _check_dtypes(trainable: dict[str, nn.Parameter]) -> None:
    for name, parameter in trainable.items():
        if parameter.is_complex():
            raise TaskError(
                f"parameter {name!r} is {parameter.dtype}. An individual is a real-valued vector (§3.3), so that "
                f"noise can be added to it. Make it a parameter of real and imaginary parts, and join them in "
                f"forward with torch.view_as_complex."
            )
    first, dtype = next((name, p.dtype) for name, p in trainable.items())
    for name, parameter in trainable.items():
        if parameter.dtype != dtype:
            raise TaskError(
                f"parameter {name!r} is {parameter.dtype} while {first!r} is {dtype}. An individual is one row "
                f"of one real dtype, because recombination averages whole rows. Convert the trainable "
                f"parameters to one floating dtype (frozen ones may keep theirs)."
            )


def _check_hooks(trainable: dict[str, nn.Parameter]) -> None:
    for name, parameter in trainable.items():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise TaskError(
                f"parameter {name!r} has a hook on its gradient. Every individual is a copy of the network, and torch "
                f"does not copy such hooks, so it would never be called. Do the same in forward (weight * mask), or "
                f"with torch.nn.utils.parametrize."
            )


def _check_memory(module: nn.Module) -> None:
    """Refuse tensors of which torch would change one with the other, and those that cannot be written into."""
    saved, by_storage = module.state_dict(keep_vars=True), dict[int, list[tuple[str, str, Tensor]]]()
    for kind, name, tensor in _tensors(module):
        if kind == "buffer" and torch._debug_has_internal_overlap(tensor) == 1:
            raise TaskError(
                f"buffer {name!r} is expanded: several of its elements are one place in memory, and nothing can be "
                f"written there. Every individual has buffers of its own. Register a copy: tensor.clone()."
            )
        if tensor.layout is torch.strided and tensor.numel():
            by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append((kind, name, tensor))
    for sharing in by_storage.values():
        change = any(tensor.requires_grad or (kind == "buffer" and name in saved) for kind, name, tensor in sharing)
        for (kind, name, tensor), (other_kind, other_name, other) in combinations(sharing, 2):
            if change and _overlap(tensor, other):
                raise TaskError(
                    f"{other_kind} {other_name!r} lies in the memory of {kind} {name!r}, but is another tensor. Rows "
                    f"and buffers are copied one by one, so the two would part. Register one of them and compute the "
                    f"other in forward, or tie them: second.weight = first.weight."
                )


def _tensors(module: nn.Module) -> Iterator[tuple[str, str, Tensor]]:
    yield from (("parameter", name, parameter) for name, parameter in module.named_parameters())
    yield from (("buffer", name, buffer) for name, buffer in module.named_buffers())


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one storage have a byte in common."""
    (begin, end), (other_begin, other_end) = _range(one), _range(other)
    if end <= other_begin or other_end <= begin:
        return False
    marks = torch.zeros(max(end, other_end), dtype=torch.bool)
    _bytes(marks, one).fill_(True)
    return bool(_bytes(marks, other).any())


def _range(tensor: Tensor) -> tuple[int, int]:
    """The first byte of the storage that a tensor looks at, and the one behind the last."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    begin = int(tensor.storage_offset()) * tensor.dtype.itemsize
    return begin, begin + (last + 1) * tensor.dtype.itemsize


def _bytes(memory: Tensor, tensor: Tensor) -> Tensor:
    """Memory of one element per byte, looked at as a tensor looks at its storage; what is expanded, once."""
    item = tensor.dtype.itemsize
    shape = [size if step else 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
    return memory.as_strided((*shape, item), (*(step * item for step in tensor.stride()), 1), _range(tensor)[0])
