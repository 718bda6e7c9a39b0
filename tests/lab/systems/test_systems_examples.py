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
    finder = doctest.DocTestFinder()
    found = [
        name
        for name in NAMES
        if any(
            case.examples
            for case in finder.find(importlib.import_module(f"{models.__name__}.{name}"))
        )
    ]
    assert len(found) >= 20
