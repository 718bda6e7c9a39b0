"""BN-LSTM: an LSTM with batch norm in time."""

from __future__ import annotations

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, Length, Width, fail
from roann.lab.models.recurrence import ConfiguredSystem, Factory, Source, row

EPS = 1e-5
RATE = 0.01  # of the moving averages of the population statistics


class BnLstmConfig(HiddenSettings):
    """Settings of BN-LSTM."""

    hidden_size: Width = 100  # number of hidden units, N.
    # number of steps with population statistics of their own; later steps share those of the last
    # one. The task's horizon if not given.
    max_length: Length | None = None


class Statistics(nn.Module):
    """Batch norm at each time step by its own statistics, without γ and β; `length` is T_max."""

    mean: Tensor
    var: Tensor

    def __init__(self, length: int, size: int, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(length, size, **factory))
        self.register_buffer("var", torch.ones(length, size, **factory))

    def forward(self, z: Tensor, t: int, gamma: Tensor, beta: Tensor | None = None) -> Tensor:
        """z (B, size) of step t, by the batch in training mode, else by the population."""
        k = min(t, len(self.mean) - 1)
        mean, var = self.mean[k], self.var[k]
        return F.batch_norm(z, mean, var, gamma, beta, self.training, RATE, EPS)

    def sequence(self, z: Tensor, gamma: Tensor) -> Tensor:
        """All steps of z (T, B, size); those before T_max in one call."""
        T, B, size = z.shape
        n = min(T, len(self.mean))
        mean, var = self.mean[:n].view(-1), self.var[:n].view(-1)
        units = z[:n].transpose(0, 1).reshape(B, n * size)
        early = F.batch_norm(units, mean, var, gamma.repeat(n), None, self.training, RATE, EPS)
        early = early.view(B, n, size).transpose(0, 1)
        # Unbound once: the gradient of every z[t] on its own would be an array as long as z.
        late = [self(step, n, gamma).unsqueeze(0) for step in z[n:].unbind(0)]
        return torch.cat([early, *late])

    def population(self, z: Tensor, gamma: Tensor) -> Tensor:
        """z (…, size) by the population statistics of the last step."""
        return (z - self.mean[-1]) * (gamma * torch.rsqrt(self.var[-1] + EPS))


class BnLstm(ConfiguredSystem[BnLstmConfig]):
    r"""BN-LSTM, `Cooijmans et al. 2017 <https://arxiv.org/abs/1603.09025>`_.

        f, i, o, g = BN(W_h h; γ_h) + BN(W_x x; γ_x) + b
        c' = σ(f) ⊙ c + σ(i) ⊙ tanh(g),    h' = σ(o) ⊙ tanh(BN(c'; γ_c, β_c)),    h₀, c₀ learned

    BN works per unit over the *batch at that time step*, with population statistics kept for each
    step (shared over time they degrade severely); γ, β, b are shared over time, and the path of
    c is not normalised. State (h, c), output h.

    In training mode samples of a batch are coupled, so there is no Jacobian of one of them: `step`
    always uses the population statistics of the last kept step, where the system is an LSTM with
    rows of W_h scaled by γ_h/√(var + ε). `forward` in evaluation mode equals the scan of `step`
    where the statistics do not differ from step to step, as before training.

    Count: 4N² + 4N·I + 16N (γ_h, γ_x, b 4N each; γ_c, β_c, h₀, c₀ N each), and 10N + 10 for a
    readout: 43,010 at N = 100 (the table gives none).

    Start: γ = 0.1, β = 0, b = 0 but 1 for f; W_x orthogonal; W_h the identity for g and
    semi-orthogonal for f, i, o; h₀ = c₀ = 0. The published readout starts orthogonal; the one here
    starts U(±1/√N). The published 95.4 % "psMNIST" draws its pixels *with replacement* (501 of
    784 are ever shown), so it is not comparable.

    While nothing has varied within the batch (h₀ = 0, equal inputs, as the first pixels of sMNIST),
    a step multiplies gradients by γ_hγ_c/(4ε), 250 at the start: after some fifteen such steps
    float32 overflows. The authors add noise to h₀; here there is none.

    Example:
        >>> system = BnLstm(1, BnLstmConfig(4, max_length=3))
        >>> output, state = system(torch.randn(5, 2, 1))
        >>> bool((output[-1] - state[:, :4]).abs().max() == 0)
        True
    """

    per_example = False  # for `roann.lab.distributed`: a prediction depends on the whole batch

    @torch.no_grad()
    def build(self, new: Source) -> None:
        N, T_max = self.config.hidden_size, self.config.max_length
        if T_max is None:
            fail("max_length", "the number of steps with statistics of their own", None)
        self.output_size, self.state_size = N, 2 * N
        W_x = new.drawn(nn.init.orthogonal_, 4 * N, self.input_size)
        self.W_h = new.constant(0, 4 * N, N)
        nn.init.orthogonal_(self.W_h[: 3 * N], generator=new.generator)
        nn.init.eye_(self.W_h[3 * N :])
        self.W_x = W_x
        self.b = new.constant(0, 4 * N)
        nn.init.ones_(self.b[:N])
        self.gamma_h = new.constant(0.1, 4 * N)
        self.gamma_x = new.constant(0.1, 4 * N)
        self.gamma_c = new.constant(0.1, N)
        self.beta_c = new.constant(0, N)
        self.x_0 = new.constant(0, 2 * N)
        self.norm_h, self.norm_x = (Statistics(T_max, 4 * N, **new.factory) for _ in range(2))
        self.norm_c = Statistics(T_max, N, **new.factory)

    def initial_state(self, batch: int) -> Tensor:
        """The learned (h₀, c₀)."""
        return self.x_0.expand(batch, -1)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As every system; the first step of u is step 0 of the statistics."""
        h, c = self.start(u, state).chunk(2, -1)
        W_h, outputs = self.W_h.mT, []
        drive = self.norm_x.sequence(u @ self.W_x.mT, self.gamma_x) + self.b
        for t, d in enumerate(drive.unbind(0)):
            c, o = _cell(self.norm_h(h @ W_h, t, self.gamma_h) + d, c)
            h = o * torch.tanh(self.norm_c(c, t, self.gamma_c, self.beta_c))
            outputs.append(h)
        return torch.stack(outputs), torch.cat([h, c], -1)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step, with the population statistics of the last kept step."""
        h, c = x.chunk(2, -1)
        recurrent = self.norm_h.population(h @ self.W_h.mT, self.gamma_h)
        drive = self.norm_x.population(u @ self.W_x.mT, self.gamma_x) + self.b
        c, o = _cell(recurrent + drive, c)
        h = o * torch.tanh(self.norm_c.population(c, self.gamma_c) + self.beta_c)
        return torch.cat([h, c], -1)


def _cell(a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The next c, and the output gate, from the pre-activations a in the order f, i, o, g."""
    N = c.shape[-1]
    f, i, o = torch.sigmoid(a[..., : 3 * N]).chunk(3, -1)
    return torch.addcmul(f * c, i, torch.tanh(a[..., 3 * N :])), o


BN_LSTM = row(BnLstm, BnLstmConfig(4), horizon="max_length")
