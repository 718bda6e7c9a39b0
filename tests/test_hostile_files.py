"""What a model file from elsewhere may do: be loaded, or be refused in one sentence."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import roann
from roann import RoaFNN, RoaRNN, RoaRNNCell

# Small layers with a large α break the hypothesis of the theorem on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")
HERE = Path(__file__).parent
linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")


def mutations(folder, first, count):
    """The record of a process that loads them; it has died if one of them could kill it."""
    run = [sys.executable, str(HERE / "hostile_files.py"), str(folder), str(first), str(count)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    out = subprocess.run(run, capture_output=True, text=True, env=env, check=False)
    number = (folder / f"number-{first}").read_text() if out.returncode else ""
    assert out.returncode == 0, f"ended by {out.returncode} at mutation {number}: {out.stderr}"
    record = json.loads(out.stdout)
    print(record)
    assert record["wrong"] == []
    assert sum(record["outcomes"].values()) == count
    return record["outcomes"]


@linux
def test_a_sample_of_mutated_files(tmp_path):
    outcomes = mutations(tmp_path, 0, 400)
    assert outcomes["refused"] > 100
    assert outcomes["loaded"] > 10


@linux
@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 21_000, 2500))
def test_mutated_files(first, tmp_path):
    outcomes = mutations(tmp_path, first, 2500)
    assert outcomes["refused"] > 1000
    assert outcomes["loaded"] > 100


def forge(file, model, tensors=None, **settings):
    """A file of `model` with other tensors or settings."""
    roann.save(model, file)
    held = load_file(file) | (tensors or {})
    about = {"class": type(model).__name__, "settings": model.settings(), "dtype": "float32"}
    about["settings"] |= settings
    meta = {"format": "roann", "version": "1", "model": json.dumps(about)}
    save_file(held, file, meta)


BAD_TENSORS = {
    "index of floats": ("permutation", {"index": torch.full((4,), 1e30)}, "index of .*int64"),
    "index below": ("permutation", {"index": torch.full((4,), -100000)}, "index: .* 0 to 3 once"),
    "index twice": ("permutation", {"index": torch.tensor([0, 1, 1, 3])}, "index: .* 0 to 3 once"),
    "inverse above": ("cycle", {"inverse": torch.full((4,), 5000)}, r"inverse: .*Cycle\(4, 4\)"),
    "partner above": ("rotations", {"partner": torch.full((4,), 5000)}, "partner: .* 0 to 3 once"),
    "partner in a cycle": ("rotations", {"partner": torch.tensor([1, 2, 3, 0])}, "longer cycles"),
    "angle": ("rotations", {"angle": torch.full((4,), torch.nan)}, "angle: .* finite"),
    "angles alike": ("rotations", {"angle": torch.ones(4)}, "angle: .* opposite"),
    "NaN": ("qr", {"matrix": torch.full((4, 4), torch.nan)}, "defect nan"),
    "infinity": ("haar", {"matrix": torch.full((4, 4), torch.inf)}, "defect (nan|inf)"),
    "stretched": ("qr", {"matrix": 1.001 * torch.eye(4)}, "defect 2.001e-03"),
    "zero": ("householder", {"vectors": torch.zeros(8, 4)}, "vectors: .* unit"),
    "vectors of NaN": ("householder", {"vectors": torch.full((8, 4), torch.nan)}, "vectors: "),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_filters_in_a_file_are_checked(case, tmp_path):
    kind, buffers, said = BAD_TENSORS[case]
    file = tmp_path / "forged.safetensors"
    named = {f"filter_l0.{key}": t for key, t in buffers.items()}
    forge(file, RoaRNN(3, 4, horizon=9, filter=kind), named)
    with pytest.raises(ValueError, match=f"path: expected .*{said}"):
        roann.load(file)


@pytest.mark.parametrize("bad", [-0.1, 1.5, torch.nan, torch.inf])
def test_alpha_in_a_file_is_checked(bad, tmp_path):
    file = tmp_path / "forged.safetensors"
    model = RoaRNN(3, 4, alpha=torch.full((4,), 0.5))
    forge(file, model, {"_alpha": torch.full((4,), bad)})
    with pytest.raises(ValueError, match=r"_alpha: expected floats in \[0, 1\]"):
        roann.load(file)


def test_weights_may_be_any_floats_and_nothing_else(tmp_path):
    file = tmp_path / "forged.safetensors"
    forge(file, RoaRNNCell(3, 4, horizon=9), {"weight_hh": torch.full((4, 4), torch.nan)})
    assert roann.load(file).weight_hh.isnan().all()
    for dtype in (torch.int32, torch.bool, torch.float8_e4m3fn):
        forge(file, RoaRNNCell(3, 4, horizon=9), {"weight_hh": torch.ones(4, 4).to(dtype)})
        with pytest.raises(ValueError, match=r"path: expected weight_hh of torch\.float32, got .*"):
            roann.load(file)


CLAIMS = [
    ("RoaFNN", {"sizes": {"run_lengths": [[1, 10**10]]}}, "sizes: .* maps in 1 runs"),
    ("RoaFNN", {"sizes": {"run_lengths": [[1, 10**10], [1, -(10**10)]]}}, "sizes: .* at least 1"),
    ("RoaFNN", {"sizes": {"run_lengths": [[1 + i % 2, 1] for i in range(9)]}}, "sizes: .* 9 runs"),
    ("RoaFNN", {"sizes": [1] * 9}, "list indices"),
    ("RoaRNN", {"num_layers": 10**10}, "num_layers: expected at most 5"),
    ("RoaRNN", {"num_layers": 1e10}, "num_layers: expected an int"),
    ("RoaRNN", {"hidden_size": 10**30}, "."),
    ("RoaRNN", {"input_size": 10**10}, "size mismatch for weight_ih_l0"),
    ("RoaRNN", {"bias": "no"}, "bias: expected true or false, got no"),
]


@linux
def test_claims_are_held_to_the_file_before_anything_is_made(tmp_path):
    """In a process with little room: 888 bytes that claim 10¹⁰ layers once took 7 GB."""
    models = {"RoaFNN": RoaFNN([1, 1, 1]), "RoaRNN": RoaRNN(3, 4, horizon=9)}
    for name, model in models.items():
        roann.save(model, tmp_path / name)
    for number, (name, settings, _) in enumerate(CLAIMS):
        forge(tmp_path / str(number), models[name], **settings)
    code = f"""
import os, resource, roann
for name in {list(models)}:
    roann.load(os.path.join({str(tmp_path)!r}, name))
size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE") + (32 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
for number in range({len(CLAIMS)}):
    try:
        roann.load(os.path.join({str(tmp_path)!r}, str(number)))
    except ValueError as error:
        print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for line, (_, _, said) in zip(out.stdout.splitlines(), CLAIMS, strict=True):
        assert re.match(f"path: expected .*{said}", line), line


@pytest.mark.parametrize("depth", [900, 100_000])
def test_deep_json_is_refused(depth, tmp_path):
    file = tmp_path / "forged.safetensors"
    deep = "[" * depth + "]" * depth
    for text in (
        deep,
        f'{{"class": "RoaRNN", "dtype": "float32", "settings": {{"alpha": {deep}}}}}',
    ):
        save_file({"x": torch.zeros(1)}, file, {"format": "roann", "version": "1", "model": text})
        with pytest.raises(ValueError, match="path: expected"):
            roann.load(file)


def test_versions_of_any_length_are_refused(tmp_path):
    file = tmp_path / "forged.safetensors"
    save_file({"x": torch.zeros(1)}, file, {"format": "roann", "version": "9" * 5000, "model": ""})
    with pytest.raises(ValueError, match="path: expected a file of version 1 or older"):
        roann.load(file)


def test_a_loaded_model_does_not_need_its_file(tmp_path):
    """Tensors mapped from a file that is cut off later would end the process with SIGBUS."""
    file = tmp_path / "model.safetensors"
    roann.save(RoaRNN(3, 64, horizon=9), file)
    code = f"""
import os, roann, torch
rnn = roann.load({str(file)!r})
os.truncate({str(file)!r}, 0)
print(rnn(torch.ones(5, 2, 3))[0].isfinite().all().item())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "True"
