"""The examples in the docstrings of the compared systems run and say the truth."""

import doctest
import importlib
import pkgutil

import pytest
import torch

from roann.lab import models

NAMES = [module.name for module in pkgutil.iter_modules(models.__path__)]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name):
    module = importlib.import_module(f"{models.__name__}.{name}")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        results = doctest.testmod(module, extraglobs={"torch": torch, "nn": torch.nn})
    assert results.failed == 0


def test_most_systems_have_an_example():
    found = []
    for name in NAMES:
        module = importlib.import_module(f"{models.__name__}.{name}")
        cases = doctest.DocTestFinder().find(module)
        systems = {v.__qualname__ for v in vars(module).values() if isinstance(v, type)}
        found += [c.name for c in cases if c.examples and c.name.split(".")[-1] in systems]
    assert len(found) >= 20, found
