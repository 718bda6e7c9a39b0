"""Layers in several processes: the loop of the guide, and parameters divided by FSDP2."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

GUIDE = Path(__file__).parent.parent / "docs" / "scale.md"

SHARDED = """
import sys
import torch, torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
import roann

kind = sys.argv[1]

def made(seed):
    torch.manual_seed(seed)
    if kind == "rnn":
        return roann.RoaRNN(3, 8, horizon=20)
    return roann.RoaFNN([8] * 7)

def trained(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(3):
        rng = torch.Generator().manual_seed(step)
        x = torch.randn((20, 4, 3) if kind == "rnn" else (4, 8), generator=rng)
        y = model(x)
        (y[0] if kind == "rnn" else y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
full = StateDictOptions(full_state_dict=True)
plain = trained(made(0))
model = trained(fully_shard(made(0), mesh=mesh))
assert all(isinstance(p, DTensor) for p in model.parameters())
assert sum(p.to_local().numel() for p in model.parameters()) < sum(
    p.numel() for p in plain.parameters()
)
state = get_model_state_dict(model, options=full)
torch.testing.assert_close(
    {k: v for k, v in state.items() if isinstance(v, torch.Tensor)},
    {k: v for k, v in plain.state_dict().items() if isinstance(v, torch.Tensor)},
)
if dist.get_rank() == 0:
    torch.save(state, "sharded.pt")
dist.barrier()
again = fully_shard(made(0), mesh=mesh)
set_model_state_dict(again, torch.load("sharded.pt", weights_only=True), options=full)
for one, other in zip(model.parameters(), again.parameters(), strict=True):
    assert torch.equal(one.to_local(), other.to_local())
whole = made(0)
whole.load_state_dict(torch.load("sharded.pt", weights_only=True))
if dist.get_rank() == 0:
    print("same")
dist.destroy_process_group()
"""


def torchrun(folder: Path, code: str, *words: str) -> str:
    (folder / "loop.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", "loop.py", *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_loop_of_the_guide(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    out = torchrun(tmp_path, code)
    assert float(re.findall(r"^loss ([0-9.]+)$", out, re.MULTILINE)[0]) < 0.01
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    assert "head.weight" in state


@pytest.mark.parametrize("kind", ["rnn", "fnn"])
def test_parameters_divided_by_fsdp_train_as_whole_ones(tmp_path, kind):
    assert "same" in torchrun(tmp_path, SHARDED, kind)
