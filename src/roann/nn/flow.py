"""The differential equations behind the layers in continuous time, solved by torchdiffeq."""

from __future__ import annotations

from typing import ClassVar, Unpack, final

import torch
from torch import Tensor

from roann import _checks
from roann.kernels.linear import Gather, Linear
from roann.nn import layout, readings, solver
from roann.nn.continuous import ContinuousModule
from roann.nn.maps import RoaMaps
from roann.nn.module import Options


@final
class RoaFlow(ContinuousModule):
    r"""The differential equation behind `RoaODE` or `RoaEuler`, integrated by a solver.

    .. math::
        \text{isometric:}\quad& \dot x = (\log O)\, x / \Delta t
            + (\phi(W x + \gamma \odot (W_i u + b)) - x) / \tau \\
        \text{euler:}\quad& \dot x = (A x + \phi(W x + \gamma \odot (W_i u + b))) / \tau, \quad
            A = \alpha^{-1}((1 - \alpha) O - I)

    Each input is held since the one before it. No theorem holds, and the second equation forgets:
    Note [The fields behind the readings] in `roann.nn.readings`. It needs the extra `[ode]`.

    Args:
        input_size: I.
        hidden_size: N.
        nonlinearity: the name of φ.
        bias: whether there is b.
        batch_first: whether batched input, output and times are (B, T, …) instead of (T, B, …).
        device: where the parameters and the filter live.
        dtype: their dtype.
        dt: Δt, in the unit of the time stamps. The paper's Δt = 1/(L−1) gives τ = 1/ρ.
        reading: "isometric" or "euler".
        method: an integrator of `torchdiffeq`: "dopri5", "rk4", …
        tolerance: relative and absolute, of an adaptive method.
        **options: rho, horizon, alpha, learn_rho, filter, init, gain, max_norm and generator, as in
            `RoaRNN`. α is that of a step of length dt, so τ = dt / α. The isometric equation takes
            a filter that has real powers: a designed spectrum, "rotations" or "identity".

    Shape: as in `RoaODE`.

    Example:
        >>> flow = RoaFlow(1, 6, alpha=0.1, tolerance=1e-9, dtype=torch.float64)
        >>> for p in flow.parameters():
        ...     _ = torch.nn.init.zeros_(p)  # no nonlinear part: a rotation that decays
        >>> x, u = torch.randn(2, 6).double(), torch.zeros(2, 1).double()
        >>> after = flow.step(x, u, interval=3.0)
        >>> bool((after.norm(dim=1) / x.norm(dim=1) - 2.718281828 ** (-0.3)).abs().max() < 1e-7)
        True

    Reference: Appendix D of the paper.
    """

    _shown: ClassVar[dict[str, object]] = {"reading": None, "method": None, "tolerance": 1e-6}

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
        dt: float = 1.0,
        reading: str = "isometric",
        method: str = "dopri5",
        tolerance: float = 1e-6,
        **options: Unpack[Options],
    ) -> None:
        self.reading = _checks.choice("reading", reading, readings.READINGS)
        self.method = solver.check(method)
        self.tolerance = _checks.real("tolerance", tolerance, positive=True)
        super().__init__(
            input_size,
            hidden_size,
            nonlinearity,
            bias,
            batch_first,
            device,
            dtype,
            dt=dt,
            **options,
        )

    def _maps(self) -> list[tuple[Tensor, float | Tensor]]:
        return []

    def roa_maps(self) -> RoaMaps | None:
        """None: a solver takes steps of its own."""
        return None

    def _fits(self, steps: Tensor) -> None:
        """A solver takes intervals of any length."""

    def _taken(self, s: Tensor, stack: bool) -> tuple[Tensor, Linear]:
        return readings.euler(self.filter_l0, self.alpha, s, stack)

    def _advance(self, x: Tensor, u: Tensor, steps: Tensor) -> Tensor:
        # Time is measured in intervals, so that rows may differ.
        field, scale = self._field(u), steps.unsqueeze(-1)
        return solver.integrate(lambda y: scale * field(y), x, str(self.method), self.tolerance)

    def _field(self, u: Tensor) -> solver.Field:
        """ẋ for a held input u: see Note [The fields behind the readings]."""
        if self.reading == "isometric":
            index = torch.arange(self.hidden_size, device=u.device)
            still = Gather(index, index)

            def turning(x: Tensor) -> Tensor:
                leaking = self._step(x, u, still, self.alpha) - x
                return (leaking + self.filter_l0.generator_of(x)) / self.dt

            return turning
        alphas, O = self._taken(torch.ones(1, dtype=u.dtype, device=u.device), stack=False)
        return lambda x: (self._step(x, u, O, alphas) - x) / self.dt

    def _scan(
        self, x0: Tensor, u: Tensor, steps: Tensor | None, form: layout.Layout, last_only: bool
    ) -> tuple[Tensor | None, Tensor]:
        return self._loop(x0, u, steps, form)
