"""A layer on a stream: state in, state out, with the weights prepared once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from roann import _checks
from roann.filters.base import full_precision
from roann.functional import as_form, roa_scan, step
from roann.nn import layout
from roann.nn.maps import Scan
from roann.nn.rnn import RoaRNN


class StreamingRoa:
    r"""A `RoaRNN` on a stream, a step or a chunk at a time.

    .. math:: x_{k+1} = \alpha\, \phi(W x_k + W_i u_{k+1} + b) + (1 - \alpha)\, O x_k

    The cap on W, the gain on W_i and b, α and the filter are computed when the stream is made, not
    at every step. They are computed again if a parameter or buffer of the model has changed.

    The object holds no state: what a call returns as `h_n` is the next call's `hx`. So one object
    serves any number of streams. Nothing of a stream is kept, so memory does not grow with its
    length. Results carry no graph, and dropout is off, as in `model.eval()`.

    `stream(input, hx)` takes a chunk and gives what `model(input, hx)` does, bit for bit. Chunks
    that follow each other give what one pass over the whole sequence does: bit for bit with the
    reference kernel, and with the native one where every chunk has more than four rows (steps times
    batch) and so has the whole; otherwise to rounding. `stream.step` takes one step, through the
    kernel for single steps, and is equal to rounding. Of a layer in half precision h_n is float32,
    so that no state is rounded on its way.

    Args:
        model: the layer, with any number of layers and one direction.

    Shape:
        As `RoaRNN`: input (T, B, I), (B, T, I) if batch_first, (T, I), or a `PackedSequence`; of
        `step` (B, I) or (I,). hx and h_n are (num_layers, B, N) or (num_layers, N). The output of
        `step` is (B, N) or (N,).

    Example:
        >>> rnn = roann.RoaRNN(3, 8, num_layers=2, horizon=100)
        >>> stream, u = StreamingRoa(rnn), torch.randn(100, 1, 3)
        >>> output, h = stream(u[:60])
        >>> for u_k in u[60:]:
        ...     output, h = stream.step(u_k, h)
        >>> bool((h - rnn(u)[1]).abs().max() < 1e-5)
        True

    Reference: Eq. (19) of the paper.
    """

    def __init__(self, model: RoaRNN) -> None:
        if not isinstance(model, RoaRNN):
            cure = "a RoaRNNCell is one step already"
            _checks.fail("model", "a RoaRNN", type(model).__name__, cure, TypeError)
        if model.bidirectional:
            cure = "its second scan starts at the end, which a stream does not have"
            _checks.fail("model", "a RoaRNN of one direction", "a bidirectional one", cure)
        self.model = model
        self.refresh()

    def refresh(self) -> None:
        """Compute the weights again.

        A stream does so by itself when a parameter or buffer was replaced, moved or changed in
        place. Call this after a change that torch does not count: through `.data`, or in place
        under `torch.inference_mode()`.
        """
        model = self.model
        self._watch = _Watch(model)
        with torch.no_grad():
            self._like = model._tensor("weight_hh_l0").detach()
            self._dtype = self._like.dtype
            self._real = full_precision(self._dtype)
            self._zero = self._like.new_zeros((), dtype=self._real)
            self._scans = tuple(_fixed(scan, self._real) for scan in model.roa_maps().scans)
        self._shape = model.num_layers, model.hidden_size

    def step(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(output, h_n) of one step: the last layer's state, and the states of all layers."""
        if self._watch.changed():
            self.refresh()
        if not isinstance(input, Tensor):
            got = f"a {type(input).__name__}"
            _checks.fail("input", "a tensor, (B, I) or (I,)", got, error=TypeError)
        *lead, I = input.shape
        if len(lead) > 1:
            cure = "pass a chunk to stream(input, hx)"
            _checks.fail("input", "one step, (B, I) or (I,)", f"{len(lead) + 1} dimensions", cure)
        if self.model.input_size != I:
            _checks.fail("input", f"{self.model.input_size} features", I, error=RuntimeError)
        layers, N = self._shape
        x = self._state(hx, (layers, *lead, N))
        u = self._entered(input)
        states = []
        for layer, scan in enumerate(self._scans):
            new = step(x[layer], u, scan.W, scan.W_i, scan.b, scan.O, scan.alpha, scan.phi)
            states.append(new)
            u = self._rounded(new)
        return (u if self._dtype is self._real else u.to(self._dtype)), torch.stack(states)

    def __call__(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """(output, h_n) of a chunk, exactly as `RoaRNN`."""
        if self._watch.changed():
            self.refresh()
        with torch.no_grad():
            model = self.model
            u, form = layout.enter(input, model.batch_first, model.input_size, self._like)
            if hx is not None and isinstance(hx, Tensor) and hx.dtype == self._dtype:
                hx = hx.to(self._real)
            x0 = layout.enter_state(hx, form, self._shape, self._zero)
            u, lasts = u.to(self._real), []
            for scan, own in zip(self._scans, x0, strict=True):
                states, last = roa_scan(
                    own, scan.W, scan.O, scan.alpha,
                    u=u, W_i=scan.W_i, b=scan.b, nonlinearity=scan.phi.name,
                    batch_sizes=form.batch_sizes, backend=model.backend,
                )  # fmt: skip
                assert states is not None
                u = self._rounded(states)
                lasts.append(last)
            h_n = layout.leave_state(torch.stack(lasts), form)
            return layout.leave(u.to(self._dtype), form), h_n

    def _state(self, hx: Tensor | None, wanted: tuple[int, ...]) -> Tensor:
        """The state before a step, in full precision and without a graph."""
        if hx is None:
            return self._zero.new_zeros(wanted)
        if not isinstance(hx, Tensor) or hx.shape != wanted:
            _checks.state(hx, wanted)
        if hx.dtype is not self._real:
            _checks.same_dtype("hx", hx, self._like)
            hx = hx.to(self._real)
        return hx.detach() if hx.requires_grad else hx

    def _entered(self, u: Tensor) -> Tensor:
        """The input of a step, in full precision and without a graph."""
        if u.dtype is not self._dtype:
            _checks.same_dtype("input", u, self._like)
        u = u if u.dtype is self._real else u.to(self._real)
        return u.detach() if u.requires_grad else u

    def _rounded(self, states: Tensor) -> Tensor:
        """What the next layer reads: of a layer in half precision, rounded states."""
        if self._dtype is self._real:
            return states
        return states.to(self._dtype).to(self._real)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"


def _fixed(scan: Scan, dtype: torch.dtype) -> Scan:
    """A scan with its tensors as the kernels read them: in one dtype, without a graph."""

    def fixed(t: Tensor) -> Tensor:
        return t.detach().to(dtype).contiguous()

    assert scan.W_i is not None
    O, alpha = as_form(scan.O, dtype), scan.alpha
    return Scan(
        fixed(scan.W),
        O.with_tensors(tuple(t.detach().contiguous() for t in O.tensors())),
        fixed(alpha) if isinstance(alpha, Tensor) else alpha,
        scan.phi,
        None if scan.b is None else fixed(scan.b),
        fixed(scan.W_i),
    )


class _Watch:
    """Notices when a tensor of a module is replaced, moved or changed in place."""

    def __init__(self, model: nn.Module) -> None:
        self._seen: list[tuple[dict[str, Any], str, object]] = []
        self._placed: list[tuple[Tensor, int]] = []
        self._counted: list[tuple[Tensor, int]] = []
        self._kept: list[Tensor] = []  # so that their memory is not given to another tensor
        for module in model.modules():
            for held in (module._parameters, module._buffers, module._modules):
                self._seen += [(held, name, value) for name, value in held.items()]
                tensors = [t for t in held.values() if isinstance(t, Tensor)]
                self._placed += [(t, t.data_ptr()) for t in tensors]
                # torch does not count changes in place of inference tensors.
                self._counted += [(t, t._version) for t in tensors if not t.is_inference()]
                self._kept += [t.detach() for t in tensors]

    def changed(self) -> bool:
        """Whether anything has."""
        for held, name, value in self._seen:
            if held.get(name) is not value:
                return True
        for t, address in self._placed:
            if t.data_ptr() != address:
                return True
        # A loop, because a generator takes longer to make than to run.
        for t, version in self._counted:  # noqa: SIM110
            if t._version != version:
                return True
        return False
