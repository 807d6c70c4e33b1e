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
    """Let ``auto`` stand for a device in this process, and compute there what names no number."""
    global device_of_process
    import torch

    device_of_process = name
    device = torch.device(name)
    if is_accelerator(device) and device.index is not None:
        torch.accelerator.set_device_index(device)


def resolve_devices(text: str) -> tuple[str, ...]:
    """Return the devices that a user names by their number, or one by one with commas.

    Args:
        text: The number of accelerators of this machine to use (of cores, if it has none), or
            names such as ``cuda:0,cuda:2`` and ``cpu,cpu``.

    Raises:
        StsbenchError: This machine has fewer.
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
    """Return the name of a device; ``auto`` is the accelerator, and the processor without one."""
    import torch

    if name == "auto":
        name = device_of_process
    if name != "auto":
        return name
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type in NEVER_AUTOMATIC:
        return "cpu"
    return accelerator.type


def list_accelerators() -> list[Accelerator]:
    """Return the accelerators that torch can use here."""
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
    """Return the name of the product; torch's own name of the kind if torch does not know it."""
    import torch

    module = torch.get_device_module(device)
    return (
        str(module.get_device_name(device)) if hasattr(module, "get_device_name") else device.type
    )


def move_to(device: torch.device, array: npt.NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor on a device.

    An accelerator copies it from pinned memory, while it computes something else.

    Args:
        device: The device.
        array: The array, which a tensor on the CPU shares.
    """
    import torch

    tensor = torch.from_numpy(array)
    if is_accelerator(device):
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def free_memory_bytes(device: torch.device) -> int | None:
    """Return the bytes of an accelerator that are free; None if torch cannot tell."""
    import torch

    module = torch.get_device_module(device)
    if not hasattr(module, "mem_get_info"):
        return None
    free_bytes, _ = module.mem_get_info(device)
    # The memory that torch still reserves for deleted tensors is free too.
    unused_bytes = module.memory_reserved(device) - module.memory_allocated(device)
    return int(free_bytes + unused_bytes)


def empty_cache() -> bool:
    """Give the memory of deleted tensors back to the accelerator; return whether there is one."""
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
    """Restore the random numbers of the processor and of a device at the end of the block.

    Args:
        device: The device whose generator is used in the block; may be the processor.
    """
    import torch

    # torch's own function knows only kinds whose states are read by the number of the device.
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

    TF32 keeps ten bits of each number. By default torch does not use it.
    """
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and torch.cuda.is_available()
        and torch.get_float32_matmul_precision() != "highest"
    )
