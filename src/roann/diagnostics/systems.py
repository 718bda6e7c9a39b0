"""How a model becomes a chain of maps.

Our layers tell their maps (`roann.nn.maps`), torch's stand in the table `CELLS`, and anything else
offers `step`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann import _checks
from roann.diagnostics.maps import FunctionMap, GraphMap, Map, RoaMap
from roann.kernels.activations import Activation
from roann.kernels.linear import Linear
from roann.nn.maps import HasRoaMaps, RoaMaps, Scan


@runtime_checkable
class Steppable(Protocol):
    """Anything that can step. It may also offer `state_size`, `initial_state(B)` and `read(x)`.

    `transformable = False` says that `torch.func` cannot follow a step, such as one of `RoaFlow`.
    """

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """The next flat state (…, S) from x (…, S) and u (…, I)."""


class Cell(NamedTuple):
    """One recurrence: one layer in one direction of a recurrent model."""

    state_size: int  # S, of the flat state
    maps: Callable[[Tensor], Sequence[Map]]  # from the inputs (T, …, I) to the T maps they drive
    read: Callable[[Tensor], Tensor]  # the part of a state that the layer above, or output, sees


class Roa(NamedTuple):
    """What the theorems need of a layer of ours."""

    weights: tuple[Tensor, ...]
    alpha: float | Tensor
    phi: Activation
    widths: tuple[int, ...] | None  # in depth
    max_norm: float | None  # a cap that holds for the weights in every forward pass
    covered: str  # the inputs they speak of, in words


@dataclass(frozen=True)
class Recurrence:
    """A recurrent model as cells in torch's order (layer 0, its reverse, layer 1, …)."""

    cells: tuple[Cell, ...]
    directions: int
    batch_first: bool
    like: Tensor | None
    input_size: int | None = None
    stacked: bool = False  # whether hx has a leading dimension, with an entry for each cell

    def enter(self, inputs: Tensor) -> Tensor:
        """The inputs as (T, …, I), in the dtype of the parameters."""
        if not isinstance(inputs, Tensor) or inputs.dim() < 2:
            got = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
            _checks.fail("inputs", "a tensor (T, I) or (T, B, I) of unpacked sequences", got)
        u = inputs.transpose(0, 1) if self.batch_first and inputs.dim() == 3 else inputs
        if u.shape[0] == 0:
            _checks.fail("inputs", "at least one time step", tuple(inputs.shape))
        if self.input_size not in (None, u.shape[-1]):
            _checks.fail(
                "inputs", f"a last dimension of input_size={self.input_size}", tuple(inputs.shape)
            )
        return u if self.like is None else u.to(self.like.device, self.like.dtype)

    def run(
        self, inputs: Tensor, x0: Sequence[Tensor], cells: int | None = None
    ) -> tuple[list[list[Tensor]], list[Sequence[Map]], Tensor]:
        """States x_0 … x_T and maps of each cell, and the output, laid out as the inputs.

        `cells` stops after that many cells. A reverse cell has its own time, from the end.
        """
        u = self.enter(inputs)
        states: list[list[Tensor]] = []
        maps: list[Sequence[Map]] = []
        for first in range(0, len(self.cells) if cells is None else cells, self.directions):
            outputs = []
            for d in range(self.directions):
                cell = self.cells[first + d]
                chain = cell.maps(u.flip(0) if d else u)
                path = follow(chain, x0[first + d])
                seen = torch.stack([cell.read(x) for x in path[1:]])
                outputs.append(seen.flip(0) if d else seen)
                states.append(path)
                maps.append(chain)
            u = torch.cat(outputs, -1) if self.directions == 2 else outputs[0]
        return states, maps, u.transpose(0, 1) if self.batch_first and u.dim() == 3 else u


class Run(NamedTuple):
    """A model run step by step: states x_0 … x_M and maps by recurrence, and the output."""

    states: list[list[Tensor]]
    maps: list[Sequence[Map]]
    output: Tensor
    cells: tuple[Cell, ...]  # none of a feed-forward model, which counts as one recurrence


def run(model: object, inputs: Tensor, hx: Any, layer: int | None = None, *, graph: bool) -> Run:
    """Run a model, as far as recurrence `layer` if given; with a graph from its first states on."""

    def first(x: Tensor) -> Tensor:
        return x.detach().requires_grad_() if graph else x

    maps = feed_forward(model)
    if maps is not None:
        path = follow(maps, first(inputs))
        return Run([path], [maps], path[-1], ())
    of = recurrence(model)
    if layer is not None:
        within(layer, of.cells)
    x0 = [first(x) for x in initial_states(model, of, inputs, hx)]
    upto = None if layer is None else (layer // of.directions + 1) * of.directions
    return Run(*of.run(inputs.detach(), x0, upto), of.cells)


def within(layer: int, among: Sequence[object]) -> None:
    """Refuse an index of a layer that is not there."""
    if not 0 <= layer < len(among):
        _checks.fail("layer", f"an index below {len(among)}", layer)


def follow(maps: Sequence[Map], x0: Tensor) -> list[Tensor]:
    """x_0, x_1, …, x_M."""
    path = [x0]
    for f in maps:
        path.append(f(path[-1]))
    return path


def feed_forward(model: object) -> list[Map] | None:
    """The maps of a feed-forward model, ours or a list of functions; None if it is neither."""
    if isinstance(model, list | tuple):
        if not model or not all(map(callable, model)):
            _checks.fail("model", "at least one function, and only functions, in a list", model)
        return [FunctionMap(layer) for layer in model]
    told = _told(model)
    if told is None or told.recurrent:
        return None
    return [step for scan in told.scans for step in _in_depth(scan)]


def recurrence(model: object) -> Recurrence:
    """The cells of a recurrent model, or of anything that offers `step`."""
    told = _told(model)
    if told is not None and told.recurrent:
        cells = tuple(_over_time(scan) for scan in told.scans)
        W, W_i = told.scans[0].W, cast(Tensor, told.scans[0].W_i)
        return Recurrence(cells, told.directions, told.batch_first, W, W_i.shape[1], told.stacked)
    make = next((row for kind, row in CELLS.items() if isinstance(model, kind)), None)
    if make is not None and isinstance(model, nn.RNNBase):
        directions = 2 if model.bidirectional else 1
        ends = ("", "_reverse")[:directions]
        suffixes = [f"_l{k}{end}" for k in range(model.num_layers) for end in ends]
        cells = tuple(make(model, suffix) for suffix in suffixes)
        like = _like(model)
        return Recurrence(cells, directions, model.batch_first, like, model.input_size, True)
    if make is not None and isinstance(model, nn.RNNCellBase):
        return Recurrence((make(model, ""),), 1, False, _like(model), model.input_size)
    if isinstance(model, Steppable):
        size = int(getattr(model, "state_size", 0))
        read = getattr(model, "read", None) or (lambda x: x)
        like = _like(model) if isinstance(model, nn.Module) else None
        kind = FunctionMap if getattr(model, "transformable", True) else GraphMap
        return Recurrence((_function_cell(size, model.step, read, kind),), 1, False, like)
    return _checks.fail(
        "model",
        "RoaRNN, RoaFNN, their cells, torch.nn's RNN, GRU, LSTM, a list of functions or an object "
        "with step(x, u)",
        type(model).__name__,
        error=TypeError,
    )


def initial_states(model: object, of: Recurrence, inputs: Tensor, hx: Any) -> list[Tensor]:
    """x_0 of every cell, from `hx` in the model's own form, or the model's default."""
    u = of.enter(inputs)
    lead = u.shape[1:-1]
    if isinstance(hx, tuple):  # LSTM: (h_0, c_0)
        hx = torch.cat(hx, -1)
    if hx is not None:
        return list(hx) if of.stacked else [hx]
    own = getattr(model, "initial_state", None)
    if own is not None:
        return [own(lead[0] if lead else 1).reshape(*lead, -1)]
    if not of.cells[0].state_size:
        _checks.fail("hx", "the first state of a model without state_size", None, "pass hx=x0")
    return [u.new_zeros(*lead, cell.state_size) for cell in of.cells]


def roa(model: object, layer: int = 0) -> Roa | None:
    """What the theorems need of one layer of ours; None for other systems."""
    told = _told(model)
    if told is None:
        return None
    if told.recurrent:
        within(layer, told.scans)
        scan = told.scans[layer]
        return Roa((scan.W,), scan.alpha, scan.phi, None, told.max_norm, told.covered)
    first, weights = told.scans[0], tuple(scan.W for scan in told.scans)
    widths = (weights[0].shape[-1], *(W.shape[-2] for W in weights for _ in W))
    alpha = first.alpha
    if isinstance(alpha, Tensor) and alpha.dim() == 2:  # a row for each map
        alpha = torch.cat([cast(Tensor, scan.alpha) for scan in told.scans])
    return Roa(weights, alpha, first.phi, widths, told.max_norm, told.covered)


def _told(model: object) -> RoaMaps | None:
    """The maps of a layer that tells them."""
    return model.roa_maps() if isinstance(model, HasRoaMaps) else None


def _in_depth(scan: Scan) -> list[Map]:
    W, O, alpha = scan.W, *_as_weights(scan)
    alphas = alpha if alpha.dim() == 2 else [alpha] * len(W)
    b = [None] * len(W) if scan.b is None else scan.b
    return [RoaMap(W[k], O.at(k), alphas[k], scan.phi, b[k]) for k in range(len(W))]


def _over_time(scan: Scan) -> Cell:
    W, W_i, b = scan.W, cast(Tensor, scan.W_i), scan.b
    O, alpha = _as_weights(scan)

    def maps(u: Tensor) -> Sequence[Map]:
        drives = u @ W_i.mT if b is None else u @ W_i.mT + b
        return [RoaMap(W, O, alpha, scan.phi, drive) for drive in drives]

    return Cell(W.shape[0], maps, lambda x: x)


def _as_weights(scan: Scan) -> tuple[Linear, Tensor]:
    """O and α in the dtype of W."""
    dtype = scan.W.dtype
    tensors = (t.to(dtype) if t.is_floating_point() else t for t in scan.O.tensors())
    return scan.O.with_tensors(tuple(tensors)), torch.as_tensor(scan.alpha, dtype=dtype)


def _like(model: nn.Module) -> Tensor | None:
    return next(model.parameters(), None)


def _function_cell(
    size: int,
    step: Callable[[Tensor, Tensor], Tensor],
    read: Callable[[Tensor], Tensor],
    kind: type[FunctionMap] = FunctionMap,
) -> Cell:
    return Cell(size, lambda u: [kind(step, u_k) for u_k in u], read)


class _Weights(NamedTuple):
    """A cell of torch.nn: W_i, W, their biases, and the projection of an LSTM."""

    W_i: Tensor
    W: Tensor
    b_i: Tensor | None
    b: Tensor | None
    W_p: Tensor | None

    @classmethod
    def of(cls, model: nn.Module, suffix: str) -> _Weights:
        """Those whose names end in `suffix`."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return cls(*(getattr(model, name + suffix, None) for name in names))  # type: ignore[arg-type]


def _rnn(model: nn.Module, suffix: str) -> Cell:
    w = _Weights.of(model, suffix)
    phi = torch.relu if cast(str, model.nonlinearity) == "relu" else torch.tanh

    def step(x: Tensor, u: Tensor) -> Tensor:
        return phi(F.linear(u, w.W_i, w.b_i) + F.linear(x, w.W, w.b))

    return _function_cell(w.W.shape[1], step, lambda x: x)


def _gru(model: nn.Module, suffix: str) -> Cell:
    w = _Weights.of(model, suffix)

    def step(x: Tensor, u: Tensor) -> Tensor:
        r_u, z_u, n_u = F.linear(u, w.W_i, w.b_i).chunk(3, -1)
        r_x, z_x, n_x = F.linear(x, w.W, w.b).chunk(3, -1)
        r, z = torch.sigmoid(r_u + r_x), torch.sigmoid(z_u + z_x)
        return (1 - z) * torch.tanh(n_u + r * n_x) + z * x

    return _function_cell(w.W.shape[1], step, lambda x: x)


def _lstm(model: nn.Module, suffix: str) -> Cell:
    w, N = _Weights.of(model, suffix), cast(int, model.hidden_size)
    out = N if w.W_p is None else w.W_p.shape[0]

    def step(x: Tensor, u: Tensor) -> Tensor:
        h, c = x[..., :out], x[..., out:]
        i, f, g, o = (F.linear(u, w.W_i, w.b_i) + F.linear(h, w.W, w.b)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return torch.cat([h if w.W_p is None else h @ w.W_p.mT, c], -1)

    return _function_cell(out + N, step, lambda x: x[..., :out])


# torch's recurrent layers and cells: how each becomes one cell, from the suffix of its names.
CELLS: dict[type[nn.Module], Callable[[nn.Module, str], Cell]] = {
    nn.RNN: _rnn,
    nn.RNNCell: _rnn,
    nn.GRU: _gru,
    nn.GRUCell: _gru,
    nn.LSTM: _lstm,
    nn.LSTMCell: _lstm,
}
