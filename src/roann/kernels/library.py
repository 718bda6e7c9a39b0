"""The compiled library of `native.cpp` through ctypes: its structs, and where it is.

Built with the package where a C++ compiler is found; `why_not` says why it is absent. Two
environment variables, read once: `ROANN_NATIVE=0` turns it off, and
`ROANN_ISA=baseline|avx2|avx512` asks for less than the processor offers.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from roann.kernels.activations import ACTIVATIONS
from roann.kernels.linear import FORMS

ISAS = ("baseline", "avx2", "avx512")
_NUMBER, _ARRAY = ctypes.c_int64, ctypes.c_void_p


def _fields(*groups: tuple[type, str]) -> list[tuple[str, type]]:
    return [(name, kind) for kind, names in groups for name in names.split()]


class Args(ctypes.Structure):
    """`struct Args` of native_problem.h, field by field."""

    _fields_ = _fields(
        (_NUMBER, "op dtype isa layout phi filter slopes threads T B N I rounds begin end"),
        (_ARRAY, "x0 u W W_i b alpha"),
        (_NUMBER, "x0_row u_step u_row W_step b_step alpha_step alpha_unit"),
        (_ARRAY, "O0 O1 O2"),
        (_NUMBER, "O_step"),
        (_ARRAY, "starts states slope g_states"),
        (_NUMBER, "g_step g_row"),
        (_ARRAY, "a lambda0 after moved g_W g_b packed"),
    )


class Outer(ctypes.Structure):
    """`struct Outer` of native_outer.h, field by field."""

    _fields_ = _fields(
        (_NUMBER, "dtype isa threads rows N M I"),
        (_ARRAY, "a x u"),
        (_NUMBER, "a_row x_row u_row symmetric"),
        (_ARRAY, "W W_i b sums places"),
    )


OTHER_BUILD = "it was built from another version of roann; reinstall roann"


class Library:
    """The loaded shared library and the ISA it is to use."""

    def __init__(self, path: Path, isa: str | None) -> None:
        dll = ctypes.CDLL(str(path))
        shared = {
            "args_size": ctypes.sizeof(Args),
            "outer_size": ctypes.sizeof(Outer),
            "filters": 1 + max(form.code for form in FORMS.values() if form.code is not None),
            "phis": 1 + max(phi.code for phi in ACTIVATIONS.values()),
        }
        for name in (*shared, "isa", "lanes", "run", "outer", "outer_bytes", "method"):
            if not hasattr(dll, f"roann_{name}"):
                raise OSError(OTHER_BUILD)
            getattr(dll, f"roann_{name}").restype = ctypes.c_int64
        if any(getattr(dll, f"roann_{name}")() != here for name, here in shared.items()):
            raise OSError(OTHER_BUILD)
        dll.roann_lanes.argtypes = [ctypes.c_int64, ctypes.c_int64]
        dll.roann_free.restype = None
        self.path, self.run, self.free = path, dll.roann_run, dll.roann_free
        self.outer, self.outer_bytes = dll.roann_outer, dll.roann_outer_bytes
        best = dll.roann_isa()
        self.isa = best if isa is None else ISAS.index(isa)
        if self.isa > best:
            raise OSError(
                f"ROANN_ISA={isa} asks for more than this processor has; unset it or set it to "
                f"one of {', '.join(ISAS[: best + 1])}"
            )
        self.lanes = tuple(dll.roann_lanes(self.isa, d) for d in range(2))


@cache
def _load() -> tuple[Library | None, str]:
    if os.environ.get("ROANN_NATIVE") == "0":
        return None, "it is turned off by ROANN_NATIVE=0; unset that variable to use it"
    name = os.environ.get("ROANN_ISA") or None
    if name is not None and name not in ISAS:
        return None, f"ROANN_ISA must be one of {', '.join(ISAS)}, not {name!r}"
    here = Path(__file__).parent
    paths = [here / f"_native{suffix}" for suffix in EXTENSION_SUFFIXES]
    built = [path for path in paths if path.exists()]
    if not built:
        return None, "it was not built; install a C++17 compiler (gcc or clang) and reinstall roann"
    newest = max(built, key=lambda path: path.stat().st_mtime)  # a checkout may hold an old build
    try:
        return Library(newest, name), ""
    except (OSError, AttributeError) as error:
        return None, f"it could not be loaded: {error}"


def available() -> bool:
    """Whether the compiled kernel can be used in this process."""
    return _load()[0] is not None


def why_not() -> str:
    """Why the compiled kernel cannot be used, as the end of a sentence; empty if it can."""
    return _load()[1]


def isa() -> str:
    """The instruction set in use: one of `ISAS`. Only if `available()`."""
    return ISAS[library().isa]


def library() -> Library:
    """The library; an error that says why if there is none."""
    found, reason = _load()
    if found is None:
        raise RuntimeError(f"the native kernel cannot be used: {reason}")
    return found
