"""A GPU's part, said by stand-ins where there is none: its memory, what is sent to it, and TF32."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from stsbench.encoders.accelerator import uses_tf32
from stsbench.encoders.base import DeviceEncoder, DeviceMemory
from stsbench.encoders.engine.drift import read_environment
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
