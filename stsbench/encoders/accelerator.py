"""Devices with a memory of their own, by what torch can do with any of them: GPUs and the like.

No code elsewhere names a kind of accelerator. Torch has one module per kind (``torch.cuda``,
``torch.xpu``, ``torch.mps``), with functions of the same names; a kind may lack some of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.core.errors import StsbenchError

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch


class Accelerator(NamedTuple):
    """One accelerator of this machine, for people."""

    device: str
    """Torch's name, for example ``cuda:1``."""
    description: str
    """The product with its memory, as far as torch knows it."""


def is_accelerator(device: torch.device) -> bool:
    """Return whether a device computes apart from the processor, in a memory of its own."""
    return device.type not in ("cpu", "meta")


def has_flash_attention(device: torch.device) -> bool:
    """Return whether kernels of flash attention exist for a kind of device."""
    return device.type == "cuda"


NEVER_AUTOMATIC = ("mps",)
"""Kinds that are used only if they are named: no score of ours was ever compared on them."""


device_of_process = "auto"
"""The device that ``auto`` stands for in this process; ``auto`` itself if it is to be found."""


def use_device(name: str) -> None:
    """Make a device the one that the name ``auto`` stands for in this process.

    If it is an accelerator with a number, such as ``cuda:1``, torch also uses it wherever code
    names only the kind, such as ``cuda``.
    """
    global device_of_process
    import torch

    device_of_process = name
    device = torch.device(name)
    if is_accelerator(device) and device.index is not None:
        torch.accelerator.set_device_index(device)


def resolve_devices(text: str) -> tuple[str, ...]:
    """Return the names of the devices that a user asks for.

    Args:
        text: Either how many accelerators of this machine to use (how many times the processor,
            if it has none), or names with commas, such as ``cuda:0,cuda:2`` or ``cpu,cpu``; it
            is not checked whether there are such devices.

    Returns:
        One of torch's names per device; the same name may occur several times.

    Raises:
        StsbenchError: The number is larger than that of this machine's devices, or 0.
    """
    if not text.isdecimal():
        return tuple(resolve_device_name(name.strip()) for name in text.split(","))
    available = [accelerator.device for accelerator in list_accelerators()]
    available = available or ["cpu"] * (os.cpu_count() or 1)
    if not 1 <= int(text) <= len(available):
        raise StsbenchError(
            f"`devices={text}`: this machine has {len(available)}, from {available[0]} to "
            f"{available[-1]}"
        )
    return tuple(available[: int(text)])


def resolve_device_name(name: str) -> str:
    """Return torch's name of a device, for a user's name of it.

    The name ``auto`` stands for the device that was set for this process, otherwise for the
    accelerator of this machine, otherwise for the processor. Any other name is returned unchanged,
    whether or not there is such a device.
    """
    import torch

    if name == "auto":
        # This is "auto" too if no device was set.
        name = device_of_process
    if name != "auto":
        return name
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    # Kinds that are used only if a user names them: Apple's (mps).
    if accelerator is None or accelerator.type in NEVER_AUTOMATIC:
        return "cpu"
    return accelerator.type


def list_accelerators() -> list[Accelerator]:
    """Return the name and a description of each accelerator, such as a GPU, that torch can use."""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return []
    module = torch.get_device_module(accelerator)
    accelerators = []
    for number in range(torch.accelerator.device_count()):
        device = f"{accelerator.type}:{number}"
        description = "an accelerator"
        if hasattr(module, "get_device_properties"):
            properties = module.get_device_properties(number)
            memory = properties.total_memory / (1 << 30)
            description = f"{properties.name}, {memory:.0f} GB"
        accelerators.append(Accelerator(device, description))
    return accelerators


def device_product_name(device: torch.device) -> str:
    """Return the name of a device's product, for example ``NVIDIA H100``.

    It is torch's name of the kind of device, such as ``mps``, if torch cannot tell the product.
    """
    import torch

    # The module for this kind of device, such as torch.cuda; not all have the same functions.
    module = torch.get_device_module(device)
    if not hasattr(module, "get_device_name"):
        return device.type
    return str(module.get_device_name(device))


def move_to(device: torch.device, array: npt.NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor on a device.

    An accelerator copies it while it computes something else. This needs pinned memory, which the
    operating system does not move.

    Args:
        device: The device.
        array: The array. On the CPU the tensor shares its memory.
    """
    import torch

    tensor = torch.from_numpy(array)
    if is_accelerator(device):
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def free_memory_bytes(device: torch.device) -> int | None:
    """Return the number of free bytes in an accelerator's memory; None if torch cannot tell."""
    import torch

    # The module for this kind of device, such as torch.cuda; not all have the same functions.
    module = torch.get_device_module(device)
    if not hasattr(module, "mem_get_info"):
        return None
    free_bytes, _total_bytes = module.mem_get_info(device)
    # The memory that torch still reserves for deleted tensors is free too.
    unused_bytes = module.memory_reserved(device) - module.memory_allocated(device)
    return int(free_bytes + unused_bytes)


def empty_cache() -> bool:
    """Free the memory of an accelerator that torch keeps for deleted tensors.

    Returns:
        Whether this was done: there is an accelerator, and torch has the function for its kind.
    """
    # If torch has not been imported, it keeps no memory, and need not be imported for this.
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return False
    module = torch.get_device_module(accelerator)
    if not hasattr(module, "empty_cache"):
        return False
    module.empty_cache()
    return True


def synchronize(device: torch.device) -> None:
    """Wait until an accelerator has done all that it was given; a processor has at once."""
    import torch

    if is_accelerator(device):
        torch.get_device_module(device).synchronize()


@contextmanager
def fork_rng(device: torch.device) -> Iterator[None]:
    """Restore the state of torch's random numbers, of the processor and of a device, at the end.

    So random numbers that are drawn within the block do not change those after it.

    Args:
        device: The device whose generator is used in the block; may be the processor.
    """
    import torch

    # Torch's own function, below, restores the processor's state. For other devices it works only
    # if their kind reads the state by the number of the device, so that is done here.
    module = torch.get_device_module(device) if is_accelerator(device) else None
    device_state = module.get_rng_state() if module is not None else None
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            if module is not None:
                module.set_rng_state(device_state)


def uses_tf32() -> bool:
    """Return whether a program has set torch to multiply float32 in TF32 on a GPU.

    TF32 keeps ten bits of each number's fraction, not 23. By default torch does not use it.
    """
    # If torch has not been imported, no program has set this.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return False
    return bool(torch.get_float32_matmul_precision() != "highest")
