"""Layers in several processes: parameters divided by FSDP2, and a network split by depth."""

import os
import re
import sys
from pathlib import Path

import pytest
import torch
from ranks import Group

import roann

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


def ranked(folder: Path, code: str, *words: str, size: int = 2) -> list[str]:
    """What each rank of a script prints; ranks are forked, as `ranks` explains."""
    group = Group(size, folder)
    try:
        return group.call(execute, str(folder), code, words).end()
    finally:
        group.close()


def execute(folder: str, code: str, words: tuple[str, ...]) -> None:
    os.chdir(folder)
    sys.argv = ["script.py", *words]
    torch.set_num_threads(1)
    exec(compile(code, "script.py", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("kind", ["rnn", "fnn"])
def test_parameters_divided_by_fsdp_train_as_whole_ones(tmp_path, kind):
    assert ranked(tmp_path, SHARDED, kind)[0].endswith("same\n")


@pytest.mark.parametrize("layers", [1000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_pipeline_over_two_processes_trains_as_one_network(tmp_path, layers):
    """The script of the page; the same ten steps of the two stages in a row, in one process."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    _, printed = ranked(tmp_path, code, str(layers))
    losses = [float(line.split()[-1]) for line in printed.splitlines()]
    whole = torch.nn.Sequential(
        *(
            roann.RoaFNN(
                [2] * (layers // 2 + 1), horizon=layers, generator=torch.Generator().manual_seed(k)
            )
            for k in range(2)
        )
    )
    optimizer = torch.optim.Adam(whole.parameters(), lr=0.1)
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    for step in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(whole(x), x.flip(-1))
        assert losses[step] == pytest.approx(loss.item(), rel=1e-4)
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]
    for k, stage in enumerate(whole):
        saved = torch.load(tmp_path / f"stage-{k}.pt", weights_only=True)
        torch.testing.assert_close(saved["weight_0"], stage.weight_0.detach(), rtol=0, atol=2e-3)
