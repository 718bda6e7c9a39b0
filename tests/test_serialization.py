"""One file, all of the model, nothing else: save and load."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import roann
from roann import (
    RoaEuler,
    RoaFlow,
    RoaFNN,
    RoaLayer,
    RoaODE,
    RoaRNN,
    RoaRNNCell,
    filters,
    multiscale,
)

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


Q = filters.Haar(4, generator=gen(9)).to_dense()
MODELS = {
    "rnn": lambda: RoaRNN(3, 4, 2, bidirectional=True, horizon=9, generator=gen()),
    "rnn, vector alpha": lambda: RoaRNN(3, 4, alpha=torch.linspace(0, 1, 4), generator=gen()),
    "rnn, given filter": lambda: RoaRNN(3, 4, horizon=9, filter=Q, generator=gen()),
    "rnn, householder": lambda: RoaRNN(
        3, 4, horizon=9, filter={"name": "householder", "reflections": 2}, generator=gen()
    ),
    "rnn, double": lambda: RoaRNN(3, 4, horizon=9, dtype=torch.float64, generator=gen()),
    "cell": lambda: RoaRNNCell(3, 4, horizon=9, filter="rotations", generator=gen()),
    "layer": lambda: RoaLayer(3, 4, horizon=9, bias=False, generator=gen()),
    "deep": lambda: RoaFNN([3] * 3000 + [2], rho=5.0, filter="permutation", generator=gen()),
    "rnn, learned": lambda: RoaRNN(
        3, 4, 2, alpha=multiscale(4, 5, 50), learn_rho=True, generator=gen()
    ),
    "deep, learned": lambda: RoaFNN([3, 3, 3, 2], learn_rho=True, generator=gen()),
    "ode": lambda: RoaODE(3, 4, horizon=9, dt=0.25, generator=gen()),
    "euler": lambda: RoaEuler(3, 4, alpha=0.1, filter="qr", generator=gen()),
    "flow": lambda: RoaFlow(3, 4, alpha=0.1, method="rk4", learn_rho=True, generator=gen()),
    "recycled": lambda: RoaFNN([3, 3, 3, 2, 3, 3], recycle=True, generator=gen()),
}


def answer(model):
    x = torch.randn(5, 2, 3, generator=gen(1)).to(next(model.parameters()).dtype)
    out = model(x[0] if isinstance(model, RoaRNNCell) else x)
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.parametrize("kind", MODELS)
def test_round_trip(kind, tmp_path):
    model = MODELS[kind]()
    file = tmp_path / "model.safetensors"
    roann.save(model, file)
    twin = roann.load(file)
    assert type(twin) is type(model)
    assert torch.equal(answer(twin), answer(model))
    assert repr(twin) == repr(model)
    assert twin.settings() == model.settings()
    assert [p.requires_grad for p in twin.parameters()] == [True] * len(list(model.parameters()))
    assert [f.name for f in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("kind", ["ode", "euler", "flow"])
def test_files_from_before_the_layers_in_continuous_time_were_three(tmp_path, kind):
    """They say RoaODE, with settings that told the three apart."""
    model, file = MODELS[kind](), tmp_path / "model.safetensors"
    settings = {"backend": "auto", "memory": "store", "tolerance": 1e-6, "beta": [0.75, 0.75]}
    settings |= {"reading": model.reading, "method": model.method, "gamma": [0.001, 0.001]}
    settings |= {"matrices": "roa"} | model.settings()
    about = {"class": "RoaODE", "settings": settings, "dtype": "float32"}
    metadata = {"format": "roann", "version": "1", "model": json.dumps(about)}
    tensors = {k: v.clone() for k, v in model.state_dict().items() if k != "_extra_state"}
    save_file(tensors, file, metadata)
    again, u = roann.load(file), torch.randn(5, 2, 3, generator=gen(1))
    assert type(again) is type(model)
    gaps = torch.tensor([0.5, 0.1, 1.0, 0.0, 0.2]) * model.dt
    assert torch.equal(again(u, intervals=gaps)[0], model(u, intervals=gaps)[0])


def test_fresh_process(tmp_path):
    model = MODELS["rnn"]()
    file = tmp_path / "model.safetensors"
    roann.save(model, file)
    code = f"import roann, torch; m = roann.load({str(file)!r}); print(float(m.weight_hh_l0.sum()))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(out.stdout) == pytest.approx(model.weight_hh_l0.sum().item(), rel=1e-6)


def test_damage_is_named(tmp_path):
    file = tmp_path / "model.safetensors"
    roann.save(MODELS["cell"](), file)
    whole = file.read_bytes()
    for cut in (0, 5, 40, len(whole) - 3):
        file.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="path: expected a whole safetensors file"):
            roann.load(file)
    with pytest.raises(FileNotFoundError, match="no such file"):
        roann.load(tmp_path / "nothing")
    save_file({"x": torch.zeros(1)}, file)
    with pytest.raises(ValueError, match="which is something else's"):
        roann.load(file)
    save_file({"x": torch.zeros(1)}, file, {"format": "roann", "version": "99", "model": "{}"})
    with pytest.raises(ValueError, match="of version 99; upgrade roann"):
        roann.load(file)


def test_foreign_contents_are_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    roann.save(MODELS["cell"](), file)
    tensors = load_file(file)
    about = {"class": "os.system", "settings": {}, "dtype": "float32"}
    meta = {"format": "roann", "version": "1"}
    save_file(tensors, file, meta | {"model": json.dumps(about)})
    with pytest.raises(ValueError, match="class in the file: expected one of 'RoaRNN'"):
        roann.load(file)
    about = {"class": "RoaRNNCell", "settings": MODELS["cell"]().settings(), "dtype": "float32"}
    del tensors["bias"]
    save_file(tensors, file, meta | {"model": json.dumps(about)})
    with pytest.raises(ValueError, match=r"tensors of a RoaRNNCell.*bias"):
        roann.load(file)
    for text in (
        "not json",
        "[]",
        '{"class": "RoaRNNCell"}',
        json.dumps(about | {"dtype": "load"}),
    ):
        save_file(tensors, file, meta | {"model": text})
        with pytest.raises(ValueError, match="path: expected"):
            roann.load(file)


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "model.safetensors"
    roann.save(MODELS["cell"](), file)
    before = file.read_bytes()

    def full_disk(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        roann.save(MODELS["layer"](), file)
    assert file.read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_place_that_is_not_there_is_named_as_it_was_given(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        roann.save(MODELS["cell"](), tmp_path / "no" / "model.safetensors")
    assert caught.value.filename == str(tmp_path / "no" / "model.safetensors")


def test_only_modules_are_saved(tmp_path):
    with pytest.raises(TypeError, match=r"model: expected an nn\.Module, got dict"):
        roann.save({"x": torch.zeros(1)}, tmp_path / "x")


def test_what_could_not_be_loaded_is_not_written(tmp_path):
    cell = MODELS["cell"]()
    cell.filter.angle[0] += 1
    with pytest.raises(ValueError, match="angle: expected opposite angles"):
        roann.save(cell, tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", MODELS)
def test_every_dtype_comes_back(kind, dtype, tmp_path):
    model = MODELS[kind]().to(dtype)
    roann.save(model, tmp_path / "model.safetensors")
    twin = roann.load(tmp_path / "model.safetensors")
    for (name, a), (other, b) in zip(
        model.state_dict().items(), twin.state_dict().items(), strict=True
    ):
        assert name == other
        if torch.is_tensor(a):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
        else:
            assert a == b
