"""Small problems must meet every turn of the memory modes, so stretches are as short as √T."""

import pytest

from roann.kernels import memory


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch):
    monkeypatch.setattr(memory, "STRETCH", 1)
    monkeypatch.setattr(memory, "BLOCK", 200)
