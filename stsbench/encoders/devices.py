"""Where a model runs, and in which numbers. A device says nothing of an embedding: it stands in no name and in no fingerprint."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from stsbench.encoders.seams import DeviceMemory
from stsbench.errors import CardError, EncoderError, one_line

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

DTYPES = ("float32", "bfloat16", "float16")


def check_device(name: str) -> None:
    """Refuse a device that cannot be used here, before anything is taken from the store.

    Raises:
        EncoderError: there is no such device; CardError: it is no device's name.
    """
    # These are everywhere: torch is not imported for them.
    if name not in ("auto", "cpu"):
        open_device(name)


def pick_device(name: str) -> str:
    """The device of this name; ``auto`` is a GPU where there is one."""
    import torch

    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def open_device(name: str) -> torch.device:
    """The device of this name.

    Raises:
        EncoderError: there is no such device; CardError: it is no device's name.
    """
    import torch

    try:
        device = torch.device(pick_device(name))
    except RuntimeError as error:
        raise CardError(f"'{name}' is not a device; give auto, cpu, cuda, or cuda:1 for the second GPU") from error
    try:
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        raise EncoderError(f"device '{name}' cannot be used here: {one_line(error)[:120]}") from error
    return device


def free_memory(device: torch.device, per_token: int) -> DeviceMemory | None:
    """What a GPU has left for batches whose tokens take so many bytes; None of a device without a memory of its own."""
    import torch

    if device.type != "cuda":
        return None
    # What torch holds for tensors that are gone is free too.
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return DeviceMemory(torch.cuda.get_device_name(device), torch.cuda.mem_get_info(device)[0] + unused, per_token)


def sent_to(device: torch.device, array: npt.NDArray[Any]) -> torch.Tensor:
    """An array as a tensor on a device; a GPU copies it from pinned memory, while it computes."""
    import torch

    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def uses_tf32() -> bool:
    """Whether a program has asked torch for products of float32 with ten bits alone, TF32, as GPUs offer; torch itself does not."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.get_float32_matmul_precision() != "highest"
