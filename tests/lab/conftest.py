"""A run sets torch up for itself; every test leaves torch as it was."""

import pytest
import torch
from ranks import Group


@pytest.fixture(autouse=True)
def torch_as_found():
    threads, generator = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(generator)
    torch.set_flush_denormal(False)


@pytest.fixture
def group(tmp_path):
    """Makes groups of ranks that the test itself starts, as torchrun would."""
    made = []

    def make(world: int) -> Group:
        made.append(Group(world, tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()
