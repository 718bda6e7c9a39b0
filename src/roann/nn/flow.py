"""The differential equations behind the layers in continuous time, by torchdiffeq, an extra."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Unpack, final

import torch
from torch import Tensor

from roann import _checks
from roann.kernels.linear import Gather, Linear
from roann.nn import layout, readings
from roann.nn.continuous import ContinuousModule
from roann.nn.module import Options

Field = Callable[[Tensor], Tensor]


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
        input_size, hidden_size, nonlinearity, bias, batch_first, device, dtype, dt: as in `RoaODE`.
        reading: "isometric" or "euler".
        method: an integrator of `torchdiffeq`: "dopri5", "rk4", …
        tolerance: relative and absolute, of an adaptive method.
        **options: as in `RoaODE`; the equation of Euler's steps takes any filter.

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

    transformable: ClassVar[bool] = False  # a solver cannot be followed by `torch.func`
    _defaults: ClassVar[dict[str, object]] = {
        "bias": True, "batch_first": False, "reading": None, "method": None, "tolerance": 1e-6,
    }  # fmt: skip

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
        self.method = _known(method)
        self.tolerance = _checks.real("tolerance", tolerance, positive=True)
        super().__init__(
            input_size, hidden_size, nonlinearity, bias, batch_first, device, dtype,
            dt=dt, **options,
        )  # fmt: skip

    def _maps(self) -> list[tuple[Tensor, float | Tensor]]:
        return []

    def roa_maps(self) -> None:  # type: ignore[override]
        """None: a solver takes steps of its own."""

    def _fits(self, steps: Tensor) -> None:
        """A solver takes intervals of any length."""

    def _taken(self, s: Tensor, stack: bool) -> tuple[Tensor, Linear]:
        return readings.euler(self.filter_l0, self.alpha, s, stack)

    def _advance(self, x: Tensor, u: Tensor, steps: Tensor) -> Tensor:
        # Time is measured in intervals, so that rows may differ.
        field, scale = self._field(u), steps.unsqueeze(-1)
        return _integrate(lambda y: scale * field(y), x, str(self.method), self.tolerance)

    def _field(self, u: Tensor) -> Field:
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


def _known(method: str) -> str:
    """`method` if torchdiffeq is there and knows it."""
    try:
        _integrate(lambda x: -x, torch.zeros(1), method, 1e-3)
    except ValueError as error:
        if "method" not in str(error):
            raise
        _checks.fail("method", "a method of torchdiffeq, such as 'dopri5' or 'rk4'", repr(method))
    return method


def _integrate(field: Field, x: Tensor, method: str, tolerance: float) -> Tensor:
    """x(1) from ẋ = field(x), x(0) = x; differentiable through the solver's own steps."""
    try:
        from torchdiffeq import odeint  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            f"method: expected torchdiffeq to be installed for {method!r}; pip install roann[ode]"
        ) from error
    time = torch.tensor([0.0, 1.0], dtype=x.dtype, device=x.device)
    path: Tensor = odeint(
        lambda _, y: field(y), x, time, method=method, rtol=tolerance, atol=tolerance
    )
    return path[-1]
