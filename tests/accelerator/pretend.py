"""A pretend accelerator: a device of torch whose tensors lie in the memory of the CPU.

Its operations run on the CPU, and raise where a real device would: if tensors of two devices meet.
So code for accelerators is walked without one. It stays in a process for ever, therefore the walks
run in processes of their own (``test_walks.py``).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
MAY_MEET = {
    "aten::copy_",
    "aten::_to_copy",
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_pack_padded_sequence",
    "aten::_pad_packed_sequence",
    "aten::lstm",
    "aten::gru",
}
"""Operations that accept tensors of two devices: copies, and places or lengths in a CPU's tensor."""
OWN_KERNELS = (
    "copy_",
    "empty_strided",
    "empty.memory_format",
    "arange",
    "arange.start",
    "arange.start_step",
    "randperm",
    "linspace",
    "eye",
    "eye.m",
)


class PretendTensor(torch.Tensor):
    """A tensor of the pretend device; ``on_cpu`` holds its numbers."""

    on_cpu: torch.Tensor

    @staticmethod
    def __new__(cls, on_cpu: torch.Tensor) -> PretendTensor:
        with torch.inference_mode(False):
            tensor = torch.Tensor._make_wrapper_subclass(
                cls,
                on_cpu.shape,
                strides=on_cpu.stride(),
                storage_offset=on_cpu.storage_offset(),
                dtype=on_cpu.dtype,
                device=torch.device(NAME, 0),
            )
        tensor.on_cpu = on_cpu
        return tensor

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, values: Any) -> None:
        descriptor: Any = torch.Tensor.data
        descriptor.__set__(self, values)
        self.on_cpu = values.on_cpu

    def tolist(self) -> Any:
        return self.on_cpu.tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"PretendTensor({self.on_cpu!r})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return run_on_cpu(func, args, kwargs or {})


def run_on_cpu(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the numbers of its tensors; its tensors are of the device again."""
    values, structure = pytree.tree_flatten((args, kwargs))
    name = func._schema.name
    pretended = [value for value in values if isinstance(value, PretendTensor)]
    # A real device accepts a single number of the CPU.
    foreign = [
        value
        for value in values
        if isinstance(value, torch.Tensor) and not isinstance(value, PretendTensor) and value.dim()
    ]
    if pretended and foreign and name == "aten::_has_compatible_shallow_copy_type":
        return False
    if pretended and foreign and name not in MAY_MEET:
        raise RuntimeError(f"{name}: all tensors must be on one device, found {NAME} and cpu")
    devices = [torch.device(kwargs["device"])] if kwargs.get("device") is not None else []
    devices += [value for value in values if isinstance(value, torch.device)]
    is_of_device = devices[0].type == NAME if devices else bool(pretended)
    if name == "aten::copy_":
        is_of_device = isinstance(args[0], PretendTensor)
    cpu_args, cpu_kwargs = pytree.tree_unflatten([_without_device(v) for v in values], structure)
    if "pin_memory" in cpu_kwargs:
        cpu_kwargs["pin_memory"] = False
    pretended_by_id = {id(tensor.on_cpu): tensor for tensor in pretended}

    def wrap(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, PretendTensor):
            return value
        if not is_of_device:
            return value
        # What an operation in place returns is the tensor that it was given.
        if id(value) in pretended_by_id:
            return pretended_by_id[id(value)]
        return PretendTensor(value)

    result = func(*cpu_args, **cpu_kwargs)
    if name in ("aten::_pack_padded_sequence", "aten::_pad_packed_sequence"):
        # The numbers of sentences, and their lengths, are the processor's.
        return wrap(result[0]), result[1]
    return pytree.tree_map(wrap, result)


def _without_device(value: Any) -> Any:
    if isinstance(value, PretendTensor):
        return value.on_cpu
    if isinstance(value, torch.device) and value.type == NAME:
        return torch.device("cpu")
    return value


class PretendModule:
    """What ``torch.cuda`` is for NVIDIA's devices; it counts the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: Any) -> None:
        self.calls.append("set_device")

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float32, torch.bfloat16, torch.float16]

    def get_device_name(self, device: Any = None) -> str:
        return "Pretend 1"

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return 1 << 30, 2 << 30

    def memory_reserved(self, device: Any = None) -> int:
        return 0

    def memory_allocated(self, device: Any = None) -> int:
        return 0

    # Its random numbers are those of the CPU, so that both draw the same.
    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        self.calls.append("get_rng_state")
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def manual_seed(self, seed: int) -> None:
        pass

    def manual_seed_all(self, seed: int) -> None:
        pass

    def synchronize(self, device: Any = None) -> None:
        self.calls.append("synchronize")

    def empty_cache(self) -> None:
        self.calls.append("empty_cache")


_torch: Any = torch
"""Torch with what its types do not say."""


def set_up() -> tuple[PretendModule, list[Any]]:
    """Make the device known to torch in this process; the second value must be kept alive."""
    module = PretendModule()
    _setup_privateuseone_for_python_backend(NAME, module)
    operations = _torch.library.Library("_", "IMPL")
    operations.fallback(lambda func, *args, **kwargs: run_on_cpu(func, args, kwargs), "PrivateUse1")
    autocast = _torch.library.Library("_", "IMPL")
    autocast.fallback(_torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    # Without kernels of their own, torch fills these into an empty tensor that it enlarges, or
    # calls them where the fallback cannot be called.
    constructors = _torch.library.Library("aten", "IMPL")
    for name in OWN_KERNELS:
        packet, _, overload = name.partition(".")
        operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
        constructors.impl(name, partial(_run_operation, operation), "PrivateUse1")
    # Weights are moved in place, as on a real device: else tied weights would part.
    _torch.__future__.set_swap_module_params_on_conversion(True)
    _torch.nn.Module.load_state_dict = _loading_in_place(_torch.nn.Module.load_state_dict)
    _torch.Tensor.pin_memory = lambda tensor, device=None: tensor
    return module, [operations, autocast, constructors]


def _loading_in_place(load: Any) -> Any:
    """Load weights into the parameters that are there: a recurrent layer's cannot be swapped."""

    def load_state_dict(*arguments: Any, **options: Any) -> Any:
        _torch.__future__.set_swap_module_params_on_conversion(False)
        try:
            return load(*arguments, **options)
        finally:
            _torch.__future__.set_swap_module_params_on_conversion(True)

    return load_state_dict


def _run_operation(operation: Any, *args: Any, **kwargs: Any) -> Any:
    return run_on_cpu(operation, args, kwargs)
