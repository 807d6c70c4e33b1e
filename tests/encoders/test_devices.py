"""A GPU's part, said by stand-ins where there is none: its memory, what is sent to it, TF32 and attention without padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from stsbench.core import provenance as machine
from stsbench.encoders.accelerator import uses_tf32
from stsbench.encoders.base import DeviceEncoder, DeviceMemory
from stsbench.encoders.engine.drift import read_environment
from stsbench.encoders.transformer import cpu_kernels as kernels
from tests.encoders.fakes import Plain
from tests.encoders.tiny import make_encoder


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """What torch says where there is a GPU."""
    facts = {
        "is_available": lambda: True,
        "get_device_name": lambda device: "a GPU",
        "mem_get_info": lambda device: (5000, 9000),
        "memory_reserved": lambda device: 800,
        "memory_allocated": lambda device: 300,
    }
    for name, said in facts.items():
        monkeypatch.setattr(torch.cuda, name, said)
    return torch.device("cuda")


def test_memory_is_what_is_free_and_what_torch_keeps_unused(gpu, tiny):
    encoder = make_encoder(tiny, "bert")
    assert isinstance(encoder, DeviceEncoder) and encoder.device_memory() is None
    depth, width = encoder.backbone.depth, encoder.backbone.width
    encoder.backbone.device = gpu
    assert encoder.device_memory() == DeviceMemory("a GPU", 5500, 4 * width * (depth + 25))


@pytest.fixture
def tf32() -> Iterator[None]:
    """A program has asked for TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def test_tf32_is_off_and_is_told_where_a_program_turns_it_on(gpu, request):
    assert not uses_tf32() and "float32" not in read_environment(Plain())
    request.getfixturevalue("tf32")
    assert uses_tf32() and read_environment(Plain())["float32"] == "tf32", (
        "stored embeddings are compared"
    )


@pytest.mark.parametrize(
    ("dtype", "supports", "there", "used"),
    [
        (torch.bfloat16, True, True, True),
        (torch.float16, True, True, True),
        (torch.float32, True, True, False),
        (torch.bfloat16, False, True, False),
        (torch.bfloat16, True, False, False),
    ],
)
def test_attention_without_padding_where_it_is_offered(monkeypatch, dtype, supports, there, used):
    chosen: list[str] = []

    class Model:
        _supports_flash_attn = supports

        def __init__(self) -> None:
            self.dtype = dtype

        def set_attn_implementation(self, name: str) -> None:
            chosen.append(name)

    monkeypatch.setattr(kernels, "is_flash_attn_2_available", lambda: there)
    model: Any = Model()
    kernels.use_flash_attention(model)
    assert chosen == ["flash_attention_2"] * used
    monkeypatch.setattr(
        machine, "version_of", lambda package: "2.8" if there and package == "flash-attn" else ""
    )
    assert read_environment(Plain()).get("flash-attn") == ("2.8" if there else None)
