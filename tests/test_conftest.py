"""The guards that every test stands behind."""

import os
import socket

import pytest
import torch

from stsbench.core import settings
from tests.conftest import HOME


def test_caches_are_fresh_and_the_users_folders_are_hidden():
    assert HOME in settings.cache_folder().parents
    assert not settings.cache_folder().exists()
    assert (settings.data_folder(), settings.corpora_folder(), settings.vectors_folder()) == (
        None,
        None,
        None,
    )


def test_small_models_run_on_one_thread():
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("address", ["192.0.2.1", "example.org"])
def test_the_network_is_out_of_reach(address):
    with (
        pytest.raises(pytest.fail.Exception, match=f"a test wanted to reach .*{address}"),
        socket.socket() as own,
    ):
        own.connect((address, 80))
    with pytest.raises(pytest.fail.Exception, match=f"reach .*{address}"):
        socket.create_connection((address, 80), timeout=0.1)


@pytest.mark.parametrize(
    ("load", "said", "policy"),
    [(0.9, None, None), (1.1, None, "passive"), (9.0, "active", "active")],
)
def test_threads_wait_asleep_only_where_others_load_the_cores(monkeypatch, load, said, policy):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setenv("OMP_WAIT_POLICY", said or "")
    if said is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    settings.share_cores()
    assert os.environ.get("OMP_WAIT_POLICY") == policy
