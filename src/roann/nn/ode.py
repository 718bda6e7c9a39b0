"""The roaRNN in continuous time, for sequences sampled at any times, by two kinds of steps."""

from __future__ import annotations

from typing import final

from torch import Tensor

from roann import _checks
from roann.kernels.linear import Linear
from roann.nn import readings
from roann.nn.continuous import ContinuousModule


@final
class RoaODE(ContinuousModule):
    r"""A random orthogonal additive network in continuous time, for sequences sampled at any times.

    .. math:: x_{k+1} = \alpha_k\, \phi(W x_k + \gamma \odot (W_i u_{k+1} + b)) + (1 - \alpha_k)\,
        O^{\Delta t_k / \Delta t} x_k, \quad \alpha_k = \Delta t_k / \tau

    Each input is held since the one before it. Without time stamps every step takes Δt = `dt`, and
    the layer is `RoaRNN` with one layer, whose parameters it shares name by name. With intervals
    Δt_k the state turns by the time that passed. Every step is isometric up to its nonlinear part,
    so the theorem's interval holds for any sampling, with ρ the time that passed over τ: Note [Two
    readings of unequal intervals] in `roann.nn.readings`. `RoaEuler` is the paper's appendix to the
    letter, and `RoaFlow` solves the differential equation behind either.

    Args:
        input_size: I.
        hidden_size: N.
        nonlinearity: the name of φ.
        bias: whether there is b.
        batch_first: whether batched input, output and times are (B, T, …) instead of (T, B, …).
        device: where the parameters and the filter live.
        dtype: their dtype.
        dt: Δt, in the unit of the time stamps. The paper's Δt = 1/(L−1) gives τ = 1/ρ.
        backend, memory: as in `RoaRNN`, where one scan serves: not for intervals that differ from
            row to row, which run as a plain loop.
        **options: rho, horizon, alpha, learn_rho, filter, init, gain, max_norm and generator, as in
            `RoaRNN`. α is that of a step of length dt, so τ = dt / α. The filter must have real
            powers: a designed spectrum, "rotations" or "identity".

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

    reading = "isometric"

    def _taken(self, s: Tensor, stack: bool) -> tuple[Tensor, Linear]:
        return readings.isometric(self.filter_l0, self.alpha, s)


@final
class RoaEuler(ContinuousModule):
    r"""The paper's differential equation by explicit Euler steps of any lengths.

    .. math:: \tau \dot x = A x + \phi(W x + \gamma \odot (W_i u + b)), \quad
        A = \alpha^{-1}((1 - \alpha) O - I), \quad \alpha = \Delta t / \tau

    .. math:: x_{k+1} = x_k
        + (\Delta t_k / \tau)(A x_k + \phi(W x_k + \gamma \odot (W_i u_{k+1} + b)))

    Each input is held since the one before it. Without time stamps every step takes Δt = `dt`, and
    the layer is `RoaRNN` with one layer, whose parameters it shares name by name. A step of another
    length is not isometric, so the theorem holds for intervals of `dt` alone: Note [Two readings of
    unequal intervals] in `roann.nn.readings`. `RoaODE` keeps it under any sampling.

    Args:
        input_size, hidden_size, nonlinearity, bias, batch_first, device, dtype, dt: as in `RoaODE`.
        backend, memory: as in `RoaRNN`; with intervals there is no native kernel and no reversible
            memory.
        **options: as in `RoaODE`, with any filter.

    Shape: as in `RoaODE`.

    Example:
        >>> euler = RoaEuler(1, 6, alpha=0.1, filter="qr", gain=1.0, dtype=torch.float64)
        >>> u, x = torch.randn(2, 1).double(), torch.randn(2, 6).double()
        >>> y = x @ euler.weight().T + u @ euler.weight_ih_l0.T + euler.bias_l0
        >>> by_hand = x + 0.5 / euler.tau * (x @ euler.friction().T + torch.relu(y))
        >>> bool((euler.step(x, u, interval=0.5) - by_hand).abs().max() < 1e-14)
        True

    Reference: Appendix D of the paper.
    """

    reading = "euler"

    def _taken(self, s: Tensor, stack: bool) -> tuple[Tensor, Linear]:
        if stack:  # the linear part of these steps is not orthogonal
            what = "for RoaEuler with intervals"
            if self.backend == "native":
                _checks.fail("backend", f"'auto', 'fused' or 'reference' {what}", "'native'")
            if self.memory == "reversible":
                _checks.fail("memory", f"'store' or 'checkpoint' {what}", "'reversible'")
        return readings.euler(self.filter_l0, self.alpha, s, stack)
