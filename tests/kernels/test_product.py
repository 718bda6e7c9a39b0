"""Every fast path against the plain loop: states and every gradient, over the whole product."""

import itertools

import pytest
import torch

from roann import filters
from roann.functional import roa_scan
from roann.kernels import native, reference
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.memory import MEMORIES
from roann.kernels.problem import Problem

N, I = 5, 3
LENGTHS, BATCHES = (1, 2, 7, 129), (1, 3, 65)
SIZES = list(itertools.product(LENGTHS, BATCHES))
ALPHAS = ("scalar", "vector")
KINDS = list(itertools.product(filters.FILTERS, ACTIVATIONS, (True, False), ALPHAS))
# At T = 1 there is no contraction to undo a step by: the reversible mode says so, rightly.
pytestmark = pytest.mark.filterwarnings("ignore::roann.kernels.memory.DriftWarning")
BACKENDS = ("fused", "native") if native.available() else ("fused",)


def case(name, phi, bias, alpha, T, B, seed):
    """float64 tensors of one problem; parameters require gradients."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    O = filters.make(name, N, generator=g, dtype=torch.float64)
    level = 0.9 / T  # ρ = 0.9: gradients of order one at every length
    a = torch.full((), level, dtype=torch.float64)
    if alpha == "vector":
        a = level * (0.5 + torch.rand(N, generator=g, dtype=torch.float64))
    leaves = {
        "x0": normal(B, N),
        "u": normal(T, B, I),
        "W": normal(N, N),
        "W_i": normal(N, I),
        "b": normal(N) if bias else None,
        "alpha": a,
    }
    return {k: v for k, v in leaves.items() if v is not None}, O, phi


def smooth_enough(leaves, O, phi, T):
    """Whether no pre-activation is so near a kink that float32 may fall on its other side."""
    p = Problem(
        leaves["x0"], leaves["u"], leaves["W"], leaves["W_i"], leaves.get("b"), O.form(),
        leaves["alpha"], ACTIVATIONS[phi], T,
    )  # fmt: skip
    states, _ = reference.scan(p)
    y = torch.cat([p.x0.unsqueeze(0), states[:-1]]) @ p.W.mT + p.u @ p.W_i.mT
    y = y if p.b is None else y + p.b
    return phi not in ("relu", "leaky_relu") or float(y.abs().min()) > 2e-5


def solve(leaves, O, phi, dtype, **how):
    """States, last state, and the gradients of a loss that reads both."""
    tensors = {k: v.to(dtype).clone().requires_grad_() for k, v in leaves.items()}
    O = O.to(dtype)
    rest = {k: tensors[k] for k in ("u", "W_i", "b") if k in tensors}
    states, last = roa_scan(
        tensors["x0"], tensors["W"], O, tensors["alpha"], nonlinearity=phi, **rest, **how
    )
    weight = torch.linspace(-1, 1, states.numel(), dtype=dtype).reshape(states.shape)
    ((weight * states).sum() + last.square().sum()).backward()
    return {"states": states.detach()} | {k: v.grad for k, v in tensors.items()}


def growth(leaves, phi, T):
    """What the theorem allows a perturbation to grow by: (1 + α (rσ − 1))^T, at least one."""
    sigma = float(torch.linalg.matrix_norm(leaves["W"], 2))
    return max(1.0, (1 + float(leaves["alpha"].max()) * (ACTIVATIONS[phi].r * sigma - 1)) ** T)


def compare(found, truth, scale, grown, dtype, T, what):
    eps = torch.finfo(dtype).eps
    for key, exact in truth.items():
        # Each of T steps adds a rounding of a sum of about 2N + I terms, which the later steps may
        # make grow; gradients go both ways.
        allowed = 2 * eps * (T + 2 * N + I) * grown * max(1.0, scale[key])
        error = float((found[key].double() - exact).abs().max())
        assert error <= allowed, f"{what}: {key} is off by {error:.2e}, allowed {allowed:.2e}"


def check(name, phi, bias, alpha, T, B, dtype):
    seed = hash_free_seed(name, phi, bias, alpha, T, B)
    while True:
        leaves, O, phi = case(name, phi, bias, alpha, T, B, seed)
        leaves = {k: v.to(dtype).double() for k, v in leaves.items()}
        O = O.to(dtype).double()
        if smooth_enough(leaves, O, phi, T):
            break
        seed += 1
    truth = solve(leaves, O, phi, torch.float64, backend="reference")
    scale = {k: float(v.abs().max()) for k, v in truth.items()}
    # α's gradient is a sum of terms of both signs: rounding is measured by their sizes.
    spread = leaves | {"alpha": leaves["alpha"].expand(T, N).clone()}
    by_step = solve(spread, O, phi, torch.float64, backend="reference")["alpha"]
    scale["alpha"] = float(by_step.abs().sum())
    for backend, memory in itertools.product(BACKENDS, MEMORIES):
        found = solve(leaves, O, phi, dtype, backend=backend, memory=memory)
        compare(found, truth, scale, growth(leaves, phi, T), dtype, T, f"{backend}/{memory}")


def hash_free_seed(*parts):
    """A seed from the case itself, the same in every process."""
    return sum(ord(c) * 31**i for i, c in enumerate(repr(parts))) % 2**31


@pytest.mark.parametrize(("name", "phi", "bias", "alpha"), KINDS)
def test_fast_equals_plain(name, phi, bias, alpha):
    """A turning window of the sizes: every size meets every filter and every activation."""
    at = KINDS.index((name, phi, bias, alpha))
    for turn, dtype in enumerate((torch.float64, torch.float32)):
        T, B = SIZES[(at + turn + 2 * (at // 24)) % len(SIZES)]
        check(name, phi, bias, alpha, T, B, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "phi", "bias", "alpha"), KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fast_equals_plain_everywhere(name, phi, bias, alpha, dtype):
    for T, B in SIZES:
        check(name, phi, bias, alpha, T, B, dtype)
