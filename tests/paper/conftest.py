"""A run sets torch up for itself; every test leaves torch as it was."""

import pytest
import torch


@pytest.fixture(autouse=True)
def torch_as_found():
    threads, generator = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(generator)
    torch.set_flush_denormal(False)
