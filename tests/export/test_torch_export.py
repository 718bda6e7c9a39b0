"""Exported programs and AOTInductor packages: any batch and any length, in and out of a file."""

import pytest
import torch

from roann import RoaRNN

D = torch.export.Dim.DYNAMIC


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


MODELS = {
    "plain": {},
    "all": {"num_layers": 2, "bidirectional": True, "batch_first": True, "nonlinearity": "tanh"},
    "dense": {"filter": "qr", "learn_rho": True},
    "double": {"dtype": torch.float64, "filter": "permutation"},
}


def made(name):
    options = {"horizon": 100, "generator": gen()} | MODELS[name]
    model = RoaRNN(3, 16, **options).eval().requires_grad_(False)
    layers = model.num_layers * (2 if model.bidirectional else 1)

    def drawn(T, B):
        shape = (B, T, 3) if model.batch_first else (T, B, 3)
        dtype = model.weight_hh_l0.dtype
        hx = torch.randn(layers, B, 16, generator=gen(2), dtype=dtype)
        return torch.randn(shape, generator=gen(1), dtype=dtype), hx

    return model, drawn


def exported(model, drawn):
    return torch.export.export(model, drawn(20, 4), dynamic_shapes=({0: D, 1: D}, {1: D}))


def held_to(call, model, drawn):
    for T, B in ((2, 3), (7, 2), (50, 65), (500, 2)):
        u, hx = drawn(T, B)
        for found, wanted in zip(call(u, hx), model(u, hx), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_program_with_a_state_survives_a_file(name, tmp_path):
    model, drawn = made(name)
    torch.export.save(exported(model, drawn), tmp_path / "model.pt2")
    held_to(torch.export.load(tmp_path / "model.pt2").module(), model, drawn)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own
@pytest.mark.parametrize("name", MODELS)
def test_a_package_of_aot_inductor(name, tmp_path):
    model, drawn = made(name)
    program, path = exported(model, drawn), str(tmp_path / "model.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    held_to(torch._inductor.aoti_load_package(path), model, drawn)
