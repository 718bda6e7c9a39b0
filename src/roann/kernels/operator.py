"""The scan as operators that torch's dispatcher, compiler and exporter know.

    roann::scan            states, last state, and what its adjoint needs
    roann::scan_forward    the same without a derivative, which makes a call cheaper
    roann::scan_backward   the adjoint: gradients of x0, u, W, W_i, b and α
    roann::scan_adjoint    the same without a derivative

All have a fake implementation (shapes alone) and a rule for `vmap`, and choose a kernel from
`KERNELS` by what the tensors are. The derivative of the adjoint is that of the
reference loop: the fast kernels need no second adjoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from roann import _checks
from roann.kernels import fused, native, reference
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.gradients import LEAVES, Gradients
from roann.kernels.linear import FORMS
from roann.kernels.memory import MEMORIES, Way, run_to_end
from roann.kernels.problem import Kernel, Problem
from roann.kernels.ragged import Ragged
from roann.kernels.watch import applied, without_autocast

KERNELS: dict[str, Kernel] = {"native": native, "fused": fused}  # the fastest first

Tensors = tuple[Tensor | None, ...]
Sizes = list[int] | None
_OF_O = 3  # tensors that the form of a filter has, at most
_TENSORS = "Tensor x0, Tensor? u, Tensor W, Tensor? W_i, Tensor? b, Tensor alpha, "
_TENSORS += "Tensor O0, Tensor? O1, Tensor? O2"
_REST = "str plan, SymInt steps, SymInt[]? sizes"


class Plan(NamedTuple):
    """The arguments of a scan that are not tensors.

    One string to the dispatcher: the time it takes grows with the square of the arguments' number.
    """

    phi: str
    form: str
    backend: str  # a name in `KERNELS`, or "auto"
    memory: str
    keep: str  # "nothing", the "slopes" an adjoint needs, or the "terms" to learn α as well
    output: str  # "states", or "last" where the states are not wanted

    def __str__(self) -> str:
        return " ".join(self)

    @staticmethod
    @cache
    def read(text: str) -> Plan:
        """The plan that `str` wrote."""
        return Plan(*text.split())


def scan(p: Problem, backend: str, memory: str, last_only: bool) -> tuple[Tensor | None, Tensor]:
    """(x[1] … x[T] over time or None, x[T]) by the operator."""
    tensors = p.tensors()
    keep = "nothing"
    # An exported program computes; should it be trained, its adjoint finds again what it needs.
    if torch.is_grad_enabled() and not torch.compiler.is_exporting():
        if p.alpha.requires_grad:
            keep = "terms"
        elif any(t is not None and t.requires_grad for t in tensors):
            keep = "slopes"
    output = "last" if last_only else "states"
    assert p.O.name is not None
    plan = " ".join((p.phi.name, p.O.name, backend, memory, keep, output))
    padded = tensors + (None,) * (len(LEAVES) + _OF_O - len(tensors))
    sizes = None if p.ragged is None else list(p.ragged.sizes)
    args, found, whole = (*padded, plan, p.steps, sizes), None, torch.ops.roann.scan.default
    plain = not torch.compiler.is_compiling()
    try:
        if plain and keep == "nothing":
            found = torch.ops.roann.scan_forward.default(*args)
        elif plain:
            found = applied(_Scan, *args)
        states, last = (whole(*args) if found is None else found)[:2]
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        _explain(tensors, error)
        raise
    return (None if last_only else states), last


class _Scan(torch.autograd.Function):
    """The operator and its derivative as torch registers them, without what that costs a call."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor | None, Tensor]:
        output: tuple[Tensor, Tensor, Tensor] = torch.ops.roann.scan_forward.default(*args)
        _setup(ctx, args, output)
        states, last, _ = output
        return (None if ctx.plan.output == "last" else states), last

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Tensors:
        g_states, g_last = g
        return _derivative(ctx, g_states, g_last, None)


def _explain(tensors: Tensors, error: Exception) -> None:
    """An error that names the tensor whose class does not know the operator, if there is one."""
    for name, t in zip(LEAVES, tensors, strict=False):
        if t is not None and type(t) not in (Tensor, nn.Parameter):
            why = str(error).split("\n", 1)[0]
            expected = "a plain tensor, or one of a class that knows the operator roann::scan"
            cure = f"pass plain tensors of one kind ({why})"
            _checks.fail(name, expected, type(t).__name__, cure, TypeError)


def choose(p: Problem, backend: str) -> Kernel:
    """The kernel that serves a problem; an error where the one that was asked for cannot."""
    if backend == "native":
        native.demand(p)
    names = KERNELS if backend in ("auto", "native") else (backend,)
    for name in names:
        kernel = KERNELS[name]
        if kernel.supports(p):
            break
    else:
        expected, cure = "a kernel that can do this scan", "pass backend='auto'"
        _checks.fail("backend", expected, repr(backend), cure, RuntimeError)
    return kernel


def _problem(tensors: Sequence[Any], plan: Plan, steps: int, sizes: Sizes) -> Problem:
    x0, u, W, W_i, b, alpha, *of_O = tensors
    O = FORMS[plan.form](*[t for t in of_O if t is not None])
    ragged = None if sizes is None else Ragged(tuple(sizes))
    phi, terms = ACTIVATIONS[plan.phi], plan.keep == "terms"
    p = Problem(x0, u, W, W_i, b, O, alpha, phi, steps, ragged, terms)
    p.check()
    return p


def _states_wanted(plan: Plan) -> bool:
    """Whether the operator returns the states: to the user, or for its own adjoint."""
    return plan.output == "states" or (
        plan.keep != "nothing" and MEMORIES[plan.memory].needs_states
    )


def _scan(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    *tensors, text, steps, sizes = args
    plan = Plan.read(text)
    p = _problem(tensors, plan, steps, sizes).readable()
    kernel = choose(p, plan.backend)
    states = kept = None
    with without_autocast(p.x0):
        if plan.keep != "nothing":
            memory = MEMORIES[plan.memory]
            states, last, kept = memory.forward(kernel, p, not _states_wanted(plan))
        elif plan.output == "last":
            last = run_to_end(kernel, p)
        else:
            states, _ = kernel.forward(p, False)
            last = p.final(states).clone()
    nothing = p.x0.new_empty
    return nothing(0) if states is None else states, last, nothing(0) if kept is None else kept


def _scan_fake(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    *tensors, text, steps, sizes = args
    plan = Plan.read(text)
    p = _problem(tensors, plan, steps, sizes)
    N = p.W.shape[-2]
    kept = p.x0.new_empty(0)
    if plan.keep != "nothing":
        shape, dtype = MEMORIES[plan.memory].room(choose(p, plan.backend), p)
        kept = p.x0.new_empty(shape, dtype=dtype)
    states = p.x0.new_empty(p.shape(N) if _states_wanted(plan) else (0,))
    return states, p.x0.new_empty(p.x0.shape[0], N), kept


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, text, ctx.steps, ctx.sizes = inputs
    ctx.plan = Plan.read(text)
    states, _, kept = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(kept, *([states] if ctx.plan.output == "last" else []))
    stored = states if MEMORIES[ctx.plan.memory].needs_states else None
    ctx.save_for_backward(stored, kept, *tensors)


def _derivative(ctx: Any, g_states: Tensor | None, g_last: Tensor | None, _: Any) -> Tensors:
    saved = ctx.saved_tensors  # read once: under torch.utils.checkpoint that recomputes them
    wanted = list(ctx.needs_input_grad[: len(LEAVES)])
    deeper, ops = torch.is_grad_enabled(), torch.ops.roann
    call = ops.scan_backward.default if deeper else ops.scan_adjoint.default
    found = call(g_states, g_last, *saved, str(ctx.plan), ctx.steps, ctx.sizes, wanted)
    grads = tuple(g if need else None for g, need in zip(found, wanted, strict=True))
    return grads + (None,) * (_OF_O + 3)


def _scan_backward(*args: Any) -> tuple[Tensor, ...]:
    g_states, g_last, states, kept, *tensors, text, steps, sizes, wanted = args
    plan = Plan.read(text)
    kept_nothing = plan.keep == "nothing"
    if kept_nothing:
        plan = plan._replace(keep="terms" if wanted[LEAVES.index("alpha")] else "slopes")
    p = _problem(tensors, plan, steps, sizes).readable()
    kernel, memory = choose(p, plan.backend), MEMORIES[plan.memory]
    with without_autocast(p.x0):
        if kept_nothing:
            states, _, kept = memory.forward(kernel, p, True)
        grads = Gradients.wanted(p, wanted)
        grads.x0 = memory.backward(Way(kernel, p, g_states, grads), states, kept, g_last)
    return tuple(
        getattr(grads, name) if need else p.x0.new_empty(0)
        for name, need in zip(LEAVES, wanted, strict=True)
    )


def _scan_backward_fake(*args: Any) -> tuple[Tensor, ...]:
    wanted, tensors = args[-1], args[4 : 4 + len(LEAVES)]
    return tuple(
        t.new_empty(t.shape) if need else tensors[0].new_empty(0)
        for t, need in zip(tensors, wanted, strict=True)
    )


def _setup_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    g_states, g_last, _, _, *tensors, text, ctx.steps, ctx.sizes, ctx.wanted = inputs
    ctx.plan = Plan.read(text)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(g_states, g_last, *tensors)


def _second_derivative(ctx: Any, *g: Tensor | None) -> Tensors:
    """The derivative of the adjoint: that of the reference loop's, by operations of torch."""
    deeper = torch.is_grad_enabled()
    with torch.enable_grad():
        # Gradients with respect to views: x0 may depend on W, and that path is not of this scan.
        own: list[Any] = [None if t is None else t.view_as(t) for t in ctx.saved_tensors]
        g_states, g_last, *tensors = own
        for i, need in enumerate(ctx.wanted):
            if need and not tensors[i].requires_grad:
                tensors[i] = tensors[i].detach().requires_grad_()
        ends = reference.scan(_problem(tensors, ctx.plan, ctx.steps, ctx.sizes))
        leaves = [t for t, need in zip(tensors, ctx.wanted, strict=False) if need]
        first = _grad(ends, leaves, (g_states, g_last), create_graph=True)
        directions = [v for v, need in zip(g, ctx.wanted, strict=True) if need]
        asked = ctx.needs_input_grad
        places = [i for i in (0, 1, *range(4, 4 + len(LEAVES))) if asked[i]]
        inputs = (g_states, g_last, None, None, *tensors)
        second = _grad(first, [inputs[i] for i in places], directions, create_graph=deeper)
    found: list[Tensor | None] = [None] * len(asked)
    for i, grad in zip(places, second, strict=True):
        found[i] = grad
    return tuple(found)


def _grad(
    outputs: Sequence[Tensor | None],
    inputs: Sequence[Tensor | None],
    directions: Sequence[Tensor | None],
    create_graph: bool,
) -> Tensors:
    """`torch.autograd.grad` where outputs and directions may be missing."""
    pairs = [
        (o, v)
        for o, v in zip(outputs, directions, strict=True)
        if o is not None and v is not None and o.requires_grad
    ]
    if not pairs or not inputs:
        return (None,) * len(inputs)
    ends, along = zip(*pairs, strict=True)
    return torch.autograd.grad(ends, inputs, along, create_graph=create_graph, allow_unused=True)  # type: ignore[arg-type]


def _one_by_one(name: str) -> Callable[..., tuple[tuple[Tensor, ...], tuple[int, ...]]]:
    """A rule for `vmap`: the operator once for each example."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        operator = getattr(torch.ops.roann, name)
        found = []
        for i in range(info.batch_size):
            pairs = zip(args, in_dims, strict=True)
            found.append(operator(*(a.select(d, i) if isinstance(d, int) else a for a, d in pairs)))
        stacked = tuple(torch.stack(each) for each in zip(*found, strict=True))
        return stacked, (0,) * len(stacked)

    return rule


def _register() -> None:
    """Tell torch of the operators."""
    library: Any = _library
    forth = f"({_TENSORS}, {_REST}) -> (Tensor, Tensor, Tensor)"
    back = f"(Tensor? g_states, Tensor? g_last, Tensor? states, Tensor kept, {_TENSORS}, "
    back += f"{_REST}, bool[] wanted) -> ({', '.join(['Tensor'] * len(LEAVES))})"
    for name, schema, serve, fake in (
        ("scan", forth, _scan, _scan_fake),
        ("scan_forward", forth, _scan, _scan_fake),
        ("scan_backward", back, _scan_backward, _scan_backward_fake),
        ("scan_adjoint", back, _scan_backward, _scan_backward_fake),
    ):
        library.define(name + schema)
        library.impl(name, serve, "CompositeExplicitAutograd")
        torch.library.register_fake(f"roann::{name}", fake, lib=library)
        torch.library.register_vmap(f"roann::{name}", _one_by_one(name), lib=library)
    for name, differentiate, prepare in (
        ("scan", _derivative, _setup),
        ("scan_backward", _second_derivative, _setup_backward),
    ):
        torch.library.register_autograd(
            f"roann::{name}", differentiate, setup_context=prepare, lib=library
        )


_library = torch.library.Library("roann", "DEF")  # type: ignore[no-untyped-call]
_register()
