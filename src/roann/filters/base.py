"""What a filter is: fixed data, three verbs, and a form in which kernels may consume it.

Note [The dtype of a filter]
----------------------------
O is applied once per step, so an error of its orthogonality is multiplied by T. So float buffers
have float32 at least. A module that is moved to half precision (`half()`, `bfloat16()`,
`to(dtype)`) leaves them as they are, and on the way back nothing was lost. From float64 to float32
they are rounded, as everything is. From float32 to float64 they would be orthogonal to 1e-7 only,
so they are made orthogonal to the rounding of float64: a matrix by two Newton–Schulz steps, the
vectors of reflections by their length. This changes them by about the rounding of float32, so
after `double().float()` the last bit of an entry may differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, Self, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann import _checks
from roann.kernels.linear import FORMS, Dense, Linear


class Common(TypedDict, total=False):
    """Arguments that mean the same for every filter: see `Filter`."""

    depth: int | None
    generator: torch.Generator | None
    device: torch.device | str | None
    dtype: torch.dtype | None


class Filter(nn.Module, ABC):
    """Abstract: a fixed (semi-)orthogonal map O of shape (out, in).

    O Oᵀ = I if out ≤ in, OᵀO = I if out ≥ in. Its data are persistent buffers, never parameters,
    so optimisers do not see them and `state_dict` carries them. See Note [The dtype of a filter].

    Args:
        out_features: rows of O.
        in_features: columns of O; the same as the rows if not given.
        depth: if given, a stack of that many independent filters, as a deep network needs; then
            the verbs take and return a leading dimension of that size.
        generator: where the randomness comes from; the global one if not given.
        device: where the buffers live.
        dtype: of the float buffers; float32 where it would be less.

    Shape: O is (out, in); x (…, in) gives O x (…, out).
    """

    name: ClassVar[str]
    has_powers: ClassVar[bool] = False
    _empty = False  # moved off the meta device without numbers: neither drawn nor loaded since

    def __init__(
        self,
        out_features: int,
        in_features: int | None = None,
        *,
        depth: int | None = None,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.out_features = _checks.size("out_features", out_features)
        self.in_features = _checks.size(
            "in_features", out_features if in_features is None else in_features
        )
        self.depth = None if depth is None else _checks.size("depth", depth)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        device = torch.get_default_device() if device is None else device
        if not dtype.is_floating_point:
            _checks.fail("dtype", "a floating point dtype", dtype, error=TypeError)
        for key, value in self._draw(_Source(generator, device)).items():
            kind = full_precision(dtype) if value.is_floating_point() else value.dtype
            self.register_buffer(key, value.to(device=device, dtype=kind).contiguous())

    @abstractmethod
    def _draw(self, source: _Source) -> dict[str, Tensor]:
        """The buffers, in float64 or as integers, on any device."""

    @abstractmethod
    def _core(self) -> Linear:
        """The map, possibly on more coordinates than it was asked for: see `_fit`."""

    @abstractmethod
    def _check(self, buffers: Mapping[str, Tensor]) -> None:
        """Raise ValueError unless these buffers, on the CPU, are what such a filter holds."""

    def verify(self, buffers: Mapping[str, Tensor] | None = None) -> None:
        """Raise ValueError unless `buffers` (its own, if not given) make an orthogonal map.

        Shapes, dtypes, indices, finiteness and orthogonality. `load_state_dict` asks this of what
        it is given, before it changes anything. Tensors on the meta device have nothing to check.
        """
        own = {k: t for k, t in self._buffers.items() if t is not None}
        given = own if buffers is None else buffers
        if set(given) != set(own):
            _checks.fail("filter", f"the buffers {', '.join(own)} together", ", ".join(given))
        for key, like in own.items():
            t = given[key]
            if not isinstance(t, Tensor) or t.shape != like.shape or t.layout != torch.strided:
                what = tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__
                _checks.fail(key, f"a dense tensor of shape {tuple(like.shape)}", what)
            real = like.is_floating_point() and t.is_floating_point() and t.itemsize >= 2
            if not real and t.dtype != like.dtype:
                _checks.fail(key, f"dtype {like.dtype}", t.dtype)
        if own and not any(t.is_meta for t in given.values()):
            self._check({k: t.detach().cpu() for k, t in given.items()})

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """As torch's, for buffers that pass `verify`; others change nothing and are an error."""
        given = {k: state_dict[prefix + k] for k in self._buffers if prefix + k in state_dict}
        try:
            if given:
                self.verify(given)
        except ValueError as e:
            args[-1].append(f"{prefix.removesuffix('.') or type(self).__name__}: {e}")
            return
        super()._load_from_state_dict(state_dict, prefix, *args)
        if len(given) == len(self._buffers):
            self._empty = False
        for key, value in self._buffers.items():
            if value is not None and key in given and _narrow(given[key].dtype):
                full = value.to(full_precision(value.dtype))  # `assign` keeps the dtype of the file
                self._buffers[key] = full if full.is_meta else self._sharpen(full)

    @property
    def larger(self) -> int:
        """max(out, in): a rectangular structured filter is a corner of a square one this large."""
        return max(self.out_features, self.in_features)

    def matvec(self, x: Tensor) -> Tensor:
        """O x for x of shape (…, in)."""
        core = self._core()
        full = _fit(self._full(x), self._width(core, 1))
        return core.matvec(full)[..., : self.out_features].to(x.dtype)

    def matvec_transpose(self, x: Tensor) -> Tensor:
        """Oᵀ x for x of shape (…, out)."""
        core = self._core()
        full = _fit(self._full(x), self._width(core, 0))
        return core.matvec_transpose(full)[..., : self.in_features].to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """O x, so that a filter can stand where a module is wanted."""
        return self.matvec(x)

    def to_dense(self) -> Tensor:
        """O as a matrix (out, in), or (depth, out, in)."""
        return self._core().to_dense()[..., : self.out_features, : self.in_features]

    def form(self) -> Linear:
        """How a kernel may consume it: its own form if that is in `FORMS`, else a matrix."""
        core = self._core()
        known = FORMS.get(core.name) is type(core)
        if known and (core.rectangular or self.out_features == self.in_features):
            return core
        return Dense(self.to_dense())

    @property
    def emptied(self) -> bool:
        """Whether it came from the meta device without numbers, neither drawn nor loaded since."""
        return self._empty

    def refuse_emptied(self) -> None:
        """Raise RuntimeError if it is `emptied`."""
        if self._empty:
            _checks.fail(
                "filter",
                f"a {type(self).__name__} that was drawn or loaded",
                "one emptied by to_empty, without numbers",
                "call reset_parameters() of the layer, or load_state_dict",
                RuntimeError,
            )

    def turned(self, power: Tensor) -> Linear:
        """O raised to a real power, where `has_powers`; `power` is () or (T, 1)."""
        return self._no_powers()

    def generator_of(self, x: Tensor) -> Tensor:
        """(log O) x, where `has_powers`."""
        return self._no_powers()

    def _no_powers(self) -> NoReturn:
        _checks.fail("filter", "one with real powers, such as 'broad'", repr(self.name))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw O if it came from the meta device without numbers; otherwise O stays as it is."""
        if self._empty:
            for key, value in self._draw(_Source(generator, None)).items():
                self._buffers[key].copy_(value)  # type: ignore[union-attr]
            self._empty = False

    def settings(self) -> dict[str, Any]:
        """Arguments of its own kind, beyond the common ones."""
        return {}

    def extra_repr(self) -> str:
        """Shape and settings."""
        parts = [f"{self.out_features}, {self.in_features}"]
        parts += [f"depth={self.depth}"] if self.depth is not None else []
        return ", ".join(parts + [f"{k}={v}" for k, v in self.settings().items()])

    def _width(self, core: Linear, axis: int) -> int:
        return (self.out_features, self.in_features)[axis] if core.rectangular else self.larger

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the buffers, never into less than float32: Note [The dtype of a filter]."""
        before = dict(self._buffers)

        def move(t: Tensor) -> Tensor:
            moved = fn(t)
            return t.to(moved.device) if _narrow(moved.dtype) and not _narrow(t.dtype) else moved

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        for key, old in before.items():
            new = self._buffers[key]
            if old is None or new is None or new.is_meta:
                continue
            if old.is_meta or not _kept(old, new):
                self._empty = True
            elif new.dtype == torch.float64 and old.dtype != torch.float64 and not self._empty:
                self._buffers[key] = self._sharpen(new)
        return self

    def _sharpen(self, value: Tensor) -> Tensor:
        """A buffer that came from a coarser dtype, as near to orthogonal as its own can be."""
        return value

    def _full(self, x: Tensor) -> Tensor:
        """x in the dtype of the buffers if it has half precision; O is not rounded to x."""
        if not _narrow(x.dtype):
            return x
        kinds = (b.dtype for b in self.buffers() if b.is_floating_point())
        return x.to(next(kinds, x.dtype))

    def _held(self, name: str) -> Tensor:
        """A buffer or what stands in its place; bypasses `nn.Module.__getattr__` for speed."""
        if self._empty:
            self.refuse_emptied()
        value = self._buffers.get(name)
        return getattr(self, name) if value is None else value

    def _lead(self) -> tuple[int, ...]:
        return () if self.depth is None else (self.depth,)


class _Source:
    """Random numbers in float64, from one generator, wherever it lives; shapes only on meta."""

    def __init__(
        self, generator: torch.Generator | None, device: torch.device | str | None
    ) -> None:
        self.generator = generator
        meta = device is not None and torch.device(device).type == "meta"
        home = "cpu" if generator is None else generator.device
        self.device = torch.device("meta") if meta else torch.device(home)

    def uniform(self, *shape: int) -> Tensor:
        """U(0, 1)."""
        if self.device.type == "meta":
            return torch.empty(shape, dtype=torch.float64, device="meta")
        return torch.rand(shape, generator=self.generator, dtype=torch.float64, device=self.device)

    def normal(self, *shape: int) -> Tensor:
        """N(0, 1)."""
        if self.device.type == "meta":
            return torch.empty(shape, dtype=torch.float64, device="meta")
        return torch.randn(shape, generator=self.generator, dtype=torch.float64, device=self.device)

    def permutations(self, *shape: int) -> Tensor:
        """A uniformly random order of the last dimension: (…, n) integers."""
        return self.uniform(*shape).argsort(-1)


def _kept(old: Tensor, new: Tensor) -> bool:
    """Whether a buffer that was moved still has its numbers; `to_empty` leaves it without."""
    if new is old or type(new) is not Tensor:
        return True
    return torch.equal(new.to("cpu"), old.to("cpu", new.dtype))


def _narrow(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype.itemsize < 4


def full_precision(dtype: torch.dtype) -> torch.dtype:
    """`dtype`, or float32 in place of a half precision one."""
    return torch.float32 if _narrow(dtype) else dtype


def rounding(dtype: torch.dtype, n: int) -> float:
    """How far entries of O Oᵀ may lie from those of I when O is kept in `dtype`.

    Rounding unit vectors changes their products by 2 eps at most. The rest is for O made in
    float32, or once kept in it: 10 eps for each of n terms.
    """
    return 2 * torch.finfo(dtype).eps + 10 * n * torch.finfo(torch.float32).eps


def _fit(x: Tensor, width: int) -> Tensor:
    """x with zeros up to `width` coordinates."""
    return x if x.shape[-1] >= width else F.pad(x, (0, width - x.shape[-1]))
