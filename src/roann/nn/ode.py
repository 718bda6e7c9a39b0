"""The roaRNN in continuous time: sequences sampled at any times."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from roann import _checks
from roann.filters import Filter, make
from roann.filters.base import full_precision
from roann.functional import BACKENDS, roa_scan, roa_step
from roann.kernels.linear import Gather, Linear
from roann.kernels.memory import MEMORIES
from roann.nn import layout, readings, solver
from roann.nn.alpha import Alpha
from roann.nn.init import initialise
from roann.nn.module import RoaModule, spec

MATRICES = ("roa", "lipschitz")
SMALL = 0.1  # N times the deviation of the entries of M_A and M_W, as their authors draw them


class RoaODE(RoaModule):
    r"""A random orthogonal additive network in continuous time, for sequences sampled at any times.

    .. math:: \tau \dot x = A x + \phi(W x + b + W_i u), \quad
        A = \alpha^{-1}((1 - \alpha) O - I), \quad \alpha = \Delta t / \tau

    Each input is held since the one before it. Without time stamps every step takes Δt = `dt`, and
    the layer is `RoaRNN` with one layer, whose parameters it shares name by name. With intervals
    Δt_k there are two readings, and one step of each is

    .. math::
        \text{isometric:}\quad& x_{k+1} = \alpha_k\, \phi(y_k) + (1 - \alpha_k)\,
            O^{\Delta t_k / \Delta t} x_k, \quad \alpha_k = \Delta t_k / \tau \\
        \text{euler:}\quad& x_{k+1} = x_k + (\Delta t_k / \tau)(A x_k + \phi(y_k))

    *isometric* keeps the theorem's interval for any sampling, with ρ the time that passed over τ;
    *euler*, the paper's appendix to the letter, keeps it only where Δt_k = Δt: Note [Two readings
    of unequal intervals] in `roann.nn.readings`.

    Args:
        input_size: I.
        hidden_size: N.
        nonlinearity: the name of φ.
        bias: whether there is b.
        batch_first: whether batched input, output and times are (B, T, …) instead of (T, B, …).
        device: where the parameters and the filter live.
        dtype: their dtype.
        rho, horizon, alpha, learn_rho: α, as in `RoaRNN`, of a step of length dt; so τ = dt / α.
        dt: Δt, in the unit of the time stamps. The paper's Δt = 1/(L−1) gives τ = 1/ρ.
        reading: "isometric" or "euler".
        method: None for one step of the reading, or an integrator of `torchdiffeq` ("dopri5",
            "rk4", …; an extra) for the differential equation behind it, for which no theorem holds.
        tolerance: relative and absolute, of an adaptive method.
        matrices: "roa", or "lipschitz" for the Lipschitz RNN of the same equation, whose A and W
            are (1−β)(M + Mᵀ) + β(M − Mᵀ) − γI with learned M (`weight_a_l0`, `weight_hh_l0`, drawn
            as `init` says, times 0.1/N); it has no filter and needs reading="euler".
        beta: β of A and W, or one for each.
        gamma: γ of A and W, or one for each.
        filter: O as in `RoaRNN`; "rotations" or "identity" for the isometric reading.
        init, generator: as in `RoaRNN`.
        backend, memory: as in `RoaRNN`, where one scan serves: not for intervals that differ from
            row to row, nor for `method`, which run as plain loops.

    Shape:
        input, hx, output and h_n as in `RoaRNN` with one layer; times and intervals (T,), or one
        column for each row, (T, B), or (B, T) if batch_first.

    Example:
        >>> ode = RoaODE(1, 6, alpha=0.1, dtype=torch.float64)
        >>> u = torch.randn(5, 2, 1, dtype=torch.float64)
        >>> regular, _ = ode(u)
        >>> stamped, _ = ode(u, times=torch.arange(5.0))
        >>> bool((regular - stamped).abs().max() < 1e-14)
        True
        >>> ode(u, intervals=torch.tensor([0.5, 0.1, 3.0, 1.0, 0.0]))[0].shape
        torch.Size([5, 2, 6])

    Reference: Appendix D of the paper.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        nonlinearity: str = "relu",
        bias: bool = True,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rho: float | Tensor = 1.0,
        horizon: float | None = None,
        alpha: float | Tensor | None = None,
        learn_rho: bool = False,
        dt: float = 1.0,
        reading: str = "isometric",
        method: str | None = None,
        tolerance: float = 1e-6,
        matrices: str = "roa",
        beta: float | Sequence[float] = 0.75,
        gamma: float | Sequence[float] = 0.001,
        filter: str | Tensor | Filter | dict[str, Any] = "rotations",
        init: str = "normal",
        generator: torch.Generator | None = None,
        backend: str = "auto",
        memory: str = "store",
    ) -> None:
        _checks.size("input_size", input_size)
        _checks.size("hidden_size", hidden_size)
        given = Alpha.given(rho, horizon, alpha, learn_rho, hidden_size)
        super().__init__(given, nonlinearity, init, device, dtype)
        self.input_size, self.hidden_size, self.state_size = input_size, hidden_size, hidden_size
        self.bias, self.batch_first = bias, batch_first
        self.dt = _checks.real("dt", dt, positive=True)
        self.reading = _checks.choice("reading", reading, readings.READINGS)
        self.method = None if method is None else solver.check(method)
        self.tolerance = _checks.real("tolerance", tolerance, positive=True)
        self.matrices = _checks.choice("matrices", matrices, MATRICES)
        self.beta, self.gamma = _pair("beta", beta, 0, 1), _pair("gamma", gamma, 0)
        self.backend = _checks.choice("backend", backend, BACKENDS)
        self.memory = _checks.choice("memory", memory, MEMORIES)
        N, I = hidden_size, input_size
        shapes = {"weight_ih": (N, I), "weight_hh": (N, N)} | ({"bias": (N,)} if bias else {})
        shapes |= {"weight_a": (N, N)} if matrices == "lipschitz" else {}
        for name, shape in shapes.items():
            p = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name + "_l0", p)
        self._add_scan("_l0", p)
        self.reset_parameters(generator)
        if matrices == "roa":
            self.filter_l0 = make(filter, N, generator=generator, device=device, dtype=dtype)
            readings.check(self.reading, self.filter_l0)
        elif self.reading != "euler":
            _checks.fail("reading", "'euler' for matrices='lipschitz'", repr(reading))

    @property
    def tau(self) -> float | Tensor:
        """τ = dt / α: a number or (N,)."""
        return self.dt / self.alpha

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the parameters anew; the filter stays, unless it came from meta without numbers."""
        others = [self._tensor("weight_ih_l0")]
        others += [self._tensor("bias_l0")] if self.bias else []
        W = self._tensor("weight_hh_l0")
        initialise(self.init, W, others, generator)
        if self.matrices == "lipschitz":
            initialise(self.init, self._tensor("weight_a_l0"), [], generator)
            with torch.no_grad():
                for M in (W, self._tensor("weight_a_l0")):
                    M *= SMALL / self.hidden_size
        self._reset(generator)

    def _maps(self) -> list[tuple[Tensor, float | Tensor]]:
        theorem = self.matrices == "roa" and self.method is None
        return [(self._tensor("weight_hh_l0"), self.alpha)] if theorem else []

    def _weight_settings(self) -> dict[str, Any]:
        names = ["dt", "reading", "method", "matrices"]
        names += ["beta", "gamma"] if self.matrices == "lipschitz" else []
        return super()._weight_settings() | {name: getattr(self, name) for name in names}

    def friction(self) -> Tensor:
        """A as a matrix (N, N), in float32 at least."""
        if self.matrices == "lipschitz":
            return _controlled(self._full("weight_a_l0"), self.beta[0], self.gamma[0])
        W = self._full("weight_hh_l0")
        O = self.filter_l0.to_dense().to(W.dtype)
        alpha = torch.as_tensor(self.alpha, dtype=W.dtype, device=W.device).expand(len(O))
        eye = torch.eye(len(O), dtype=W.dtype, device=W.device)
        return ((1 - alpha).unsqueeze(1) * O - eye) / alpha.unsqueeze(1)

    def weight(self) -> Tensor:
        """W as a matrix (N, N), in float32 at least."""
        W = self._full("weight_hh_l0")
        return W if self.matrices == "roa" else _controlled(W, self.beta[1], self.gamma[1])

    def step(self, x: Tensor, u: Tensor, interval: float | Tensor | None = None) -> Tensor:
        """The next state from x (…, N) and u (…, I) after `interval`, dt if not given.

        For x (B, N) it may be one number, or (B,) with one for each row.
        """
        dtype, kind = x.dtype, full_precision(x.dtype)
        x, u = x.to(kind), u.to(kind)
        if interval is None and self.method is None and self.matrices == "roa":
            return self._step(x, u, self.filter_l0, self.alpha).to(dtype)
        length = self.dt if interval is None else interval
        steps = torch.as_tensor(length, dtype=kind, device=x.device)
        self._fits(steps)
        return self._advance(x, u, steps).to(dtype)

    def _advance(self, x: Tensor, u: Tensor, steps: Tensor) -> Tensor:
        if self.method is None:
            alphas, O = self._taken(steps.unsqueeze(-1) / self.dt, stack=False)
            return self._step(x, u, O, alphas)
        # Time is measured in intervals, so that rows may differ.
        field, scale = self._field(u), steps.unsqueeze(-1)
        return solver.integrate(lambda y: scale * field(y), x, self.method, self.tolerance)

    def _fits(self, steps: Tensor) -> None:
        """Refuse intervals that one step of a reading cannot take."""
        if self.method is None:
            readings.fits(steps.detach().unsqueeze(-1) / self.dt * self.alpha, self.reading)

    def _step(self, x: Tensor, u: Tensor, O: Filter | Linear, alpha: float | Tensor) -> Tensor:
        return roa_step(
            x, self.weight(), O, alpha, u=u, W_i=self._full("weight_ih_l0"),
            b=self._full("bias_l0") if self.bias else None, nonlinearity=self.nonlinearity,
        )  # fmt: skip

    def _full(self, name: str) -> Tensor:
        """A parameter in float32 at least: as in a scan, the state is not rounded T times."""
        value = self._tensor(name)
        return value.to(full_precision(value.dtype))

    def _taken(self, s: Tensor, stack: bool) -> tuple[Tensor, Linear]:
        """α_k and O_k of steps of s = Δt_k/Δt, (…, 1); a stack of them from s (T, 1)."""
        if self.matrices == "lipschitz":
            return readings.free_euler(self.friction(), self.alpha, s, stack)
        if self.reading == "isometric":
            return readings.isometric(self.filter_l0, self.alpha, s)
        return readings.euler(self.filter_l0, self.alpha, s, stack)

    def _field(self, u: Tensor) -> solver.Field:
        """ẋ for a held input u: see Note [The fields behind the readings]."""
        if self.reading == "isometric":
            index = torch.arange(self.hidden_size, device=u.device)
            still = Gather(index, index)

            def turning(x: Tensor) -> Tensor:
                leaking = self._step(x, u, still, self.alpha) - x
                return (leaking + readings.generator(self.filter_l0, x)) / self.dt

            return turning
        alphas, O = self._taken(torch.ones(1, dtype=u.dtype, device=u.device), stack=False)
        return lambda x: (self._step(x, u, O, alphas) - x) / self.dt

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        times: Tensor | None = None,
        intervals: Tensor | None = None,
        last_only: bool = False,
    ) -> tuple[Tensor | PackedSequence | None, Tensor]:
        """(output, h_n) as `torch.nn.RNN`, at the times or after the intervals given.

        `times` are those of the inputs, and the first step takes dt; `intervals` are those before
        each input, the first included. For a `PackedSequence` they are padded to the longest, with
        whatever numbers.
        """
        weight = self._tensor("weight_hh_l0")
        u, form = layout.enter(input, self.batch_first, self.input_size, weight)
        x0 = layout.enter_state(hx, form, (1, self.hidden_size), weight)[0]
        u, x0 = (t.to(full_precision(t.dtype)) for t in (u, x0))
        times, intervals = (_columns(t, form) for t in (times, intervals))
        steps = readings.intervals_of(times, intervals, self.dt, form.steps, form.batch)
        if steps is not None:
            if form.ragged is not None and steps.dim() == 2:
                steps = readings.within(steps, form.ragged.lengths)
            readings.moves_on(steps, "intervals" if times is None else "times")
        if self.method is None and (steps is None or steps.dim() == 1):
            states, last = self._scan(x0, u, steps, form, last_only)
        else:
            states, last = self._loop(x0, u, steps, form)
        if full_precision(weight.dtype) != weight.dtype:
            last = last.to(weight.dtype)
            states = None if states is None else states.to(weight.dtype)
        h_n = layout.leave_state(last.unsqueeze(0), form)
        return (None if last_only or states is None else layout.leave(states, form)), h_n

    def _scan(
        self, x0: Tensor, u: Tensor, steps: Tensor | None, form: layout.Layout, last_only: bool
    ) -> tuple[Tensor | None, Tensor]:
        """One scan, with an α and an O of each step where there are intervals."""
        weight = self._full("weight_hh_l0")
        alpha, O = self.alpha, getattr(self, "filter_l0", None)
        if steps is not None or O is None:
            stamps = torch.full((form.steps,), self.dt) if steps is None else steps
            self._fits(stamps.to(weight.device))
            alpha, O = self._taken((stamps / self.dt).to(weight).unsqueeze(1), stack=True)
            self._serves(O)
        return roa_scan(
            x0, self.weight(), O, alpha, u=u, W_i=self._full("weight_ih_l0"),
            b=self._full("bias_l0") if self.bias else None, nonlinearity=self.nonlinearity,
            batch_sizes=form.batch_sizes, backend=self.backend, memory=self.memory,
            last_only=last_only,
        )  # fmt: skip

    def _serves(self, O: Linear) -> None:
        """Refuse what Euler's steps, whose linear part is not orthogonal, cannot be asked for."""
        if isinstance(O, readings.Blend):
            what = "for reading='euler' with intervals"
            if self.backend == "native":
                _checks.fail("backend", f"'auto', 'fused' or 'reference' {what}", "'native'")
            if self.memory == "reversible":
                _checks.fail("memory", f"'store' or 'checkpoint' {what}", "'reversible'")

    def _loop(
        self, x: Tensor, u: Tensor, steps: Tensor | None, form: layout.Layout
    ) -> tuple[Tensor, Tensor]:
        """Step after step, where rows differ or a solver goes its own way."""
        weight, states = self._full("weight_hh_l0"), []
        # As in a scan: the state must not be rounded T times.
        full = (
            torch.autocast(u.device.type, enabled=False)
            if _checks.autocast(u)
            else contextlib.nullcontext()
        )
        with full:
            u, x = u.to(weight.dtype), x.to(weight.dtype)
            stamps = torch.full((form.steps,), self.dt) if steps is None else steps
            steps = stamps.to(weight)
            self._fits(steps)
            inputs = u if form.ragged is None else torch.split(u, list(form.ragged.sizes))
            for k, here in enumerate(inputs):
                n = len(here)
                length = steps[k, :n] if steps.dim() == 2 else steps[k]
                new = self._advance(x[:n], here, length)
                x = new if n == x.shape[0] else torch.cat([new, x[n:]])
                states.append(new)
        return (torch.stack(states) if form.ragged is None else torch.cat(states)), x

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments that rebuild this module, as JSON can hold them."""
        names = ["input_size", "hidden_size", "bias", "batch_first", "dt", "reading", "method"]
        names += ["tolerance", "matrices", "beta", "gamma", "backend", "memory"]
        own = {name: getattr(self, name) for name in names}
        own |= {"filter": spec(self.filter_l0)} if self.matrices == "roa" else {}
        return super().settings() | own

    def extra_repr(self) -> str:
        """Sizes, α, φ, and how time is read."""
        parts = [f"{self.input_size}, {self.hidden_size}", str(self._given)]
        parts += [f"dt={self.dt:g}, nonlinearity={self.nonlinearity}, reading={self.reading}"]
        defaults: dict[str, object]
        defaults = {"method": None, "matrices": "roa", "bias": True, "batch_first": False}
        defaults |= {"backend": "auto", "memory": "store"}
        return ", ".join(
            parts
            + [f"{k}={getattr(self, k)}" for k, v in defaults.items() if getattr(self, k) != v]
        )


def _columns(t: Tensor | None, form: layout.Layout) -> Tensor | None:
    """Times or intervals as (T,) or (T, B), rows in the order of the scan."""
    if not isinstance(t, Tensor) or t.dim() != 2:
        return t
    if form.batch_first:
        return t.mT
    if form.packed is not None and form.packed.sorted_indices is not None:
        return t.index_select(1, form.packed.sorted_indices.to(t.device))
    return t


def _controlled(M: Tensor, beta: float, gamma: float) -> Tensor:
    """(1−β)(M + Mᵀ) + β(M − Mᵀ) − γI."""
    eye = torch.eye(len(M), dtype=M.dtype, device=M.device)
    return (1 - beta) * (M + M.mT) + beta * (M - M.mT) - gamma * eye


def _pair(
    argument: str, value: float | Sequence[float], low: float, high: float | None = None
) -> list[float]:
    """One number for A and one for W."""
    values = list(value) if isinstance(value, Sequence) else [value, value]
    numbers = [_checks.real(argument, v) for v in values]
    if len(numbers) != 2 or min(numbers) < low or (high is not None and max(numbers) > high):
        top = "" if high is None else f" and at most {high}"
        _checks.fail(argument, f"a number, or two (of A and W), of at least {low}{top}", value)
    return numbers
