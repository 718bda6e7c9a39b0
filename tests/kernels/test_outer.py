"""Sums over rows, by torch and by the compiled kernel, against float64 and its error bound."""

import pytest
import torch
from held_to import run_held_to
from hypothesis import given, settings
from hypothesis import strategies as st

from roann.kernels import fused, library, native, outer, sums
from roann.kernels.products import gram, transposed_product

KERNELS = [fused, native] if native.available() else [fused]
named = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__.rpartition(".")[2])


def normal(*shape, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=g).to(dtype)


def assert_sums(kernel, a, x, u, wanted, places=None):
    """To numbers that are there already, the products are added, each sum within its rounding."""
    rows, N = a.shape
    dtype = a.dtype
    right = {
        "W": x if places is None else x[places],
        "W_i": u,
        "b": torch.ones(rows, 1, dtype=dtype),
    }
    to = {
        name: normal(N, right[name].shape[1], dtype=dtype, seed=1) if name in wanted else None
        for name in right
    }
    to = {name: t[:, 0] if name == "b" and t is not None else t for name, t in to.items()}
    to = {name: None if t is None else t.contiguous() for name, t in to.items()}
    before = {name: None if t is None else t.clone() for name, t in to.items()}
    kernel.add_outer(a, x, u, **to, places=places)
    for name in wanted:
        exact = a.double().mT @ right[name].double()
        size = a.double().abs().mT @ right[name].double().abs()
        exact, size = (t.view_as(to[name]) for t in (exact, size))
        bound = torch.finfo(dtype).eps * (rows + 2) * (size + before[name].double().abs())
        assert bool(((to[name].double() - before[name].double() - exact).abs() <= bound).all())


sizes = st.integers(1, 70)


@named
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_sums_of_any_size(kernel, data):
    rows, N, M, I = data.draw(
        st.tuples(st.integers(0, 1300), sizes, sizes, st.integers(1, outer.FEW_INPUTS + 2))
    )
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    wanted = data.draw(st.sets(st.sampled_from(["W", "W_i", "b"]), min_size=1))
    x, u = normal(rows, M, dtype=dtype), normal(rows, I, dtype=dtype)
    if data.draw(st.booleans()):  # rows with gaps between them, and columns that are rows
        x, u = normal(rows, M + 3, dtype=dtype)[:, :M], normal(I, rows, dtype=dtype).mT
    if data.draw(st.booleans()):
        x = x[:1].expand(rows, M)
    places = None
    if rows and data.draw(st.booleans()):  # rows of x in an order of their own
        places = torch.randint(rows, (rows,), generator=torch.Generator().manual_seed(rows))
    assert_sums(kernel, normal(rows, N, dtype=dtype), x, u, wanted, places)


@named
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("N", [128, 178, sums.WIDEST_OUTER, sums.WIDEST_OUTER + 1])
def test_sums_of_many_columns(kernel, N, dtype):
    """Rows that are read where they are, and rows so far apart that they are copied."""
    a, x = normal(700, N, dtype=dtype), normal(700, N, dtype=dtype, seed=1)
    u = normal(700, 2, dtype=dtype)
    for places in (None, torch.arange(699, -1, -1)):
        assert_sums(kernel, a, x, u, {"W", "W_i", "b"}, places)


@pytest.mark.skipif(not native.available(), reason="no compiled kernel here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("N", [1, 3, 64, 65, 100, 178, 256, 500, sums.WIDEST_OUTER])
def test_a_symmetric_product_is_computed_once_and_mirrored(N, dtype):
    for rows in (1, N, 700):
        A = normal(rows, N, dtype=dtype)
        found, exact = sums.gram(A), A.double().mT @ A.double()
        assert torch.equal(found, found.mT)
        size = A.double().abs().mT @ A.double().abs()
        assert bool(((found.double() - exact).abs() <= torch.finfo(dtype).eps * rows * size).all())
    assert torch.equal(sums.gram(A.mT.contiguous().mT), found)  # columns that are rows


@pytest.mark.parametrize("product", [gram, lambda A: transposed_product(A, 2 * A)])
def test_products_serve_whoever_asks(product):
    """Gradients, transforms and stacks take torch's products; all give the same."""
    A = normal(110, 100)
    plain = product(A.unsqueeze(0))[0]  # a stack goes to torch
    torch.testing.assert_close(product(A), plain, rtol=1e-12, atol=1e-12)
    stack = torch.stack([A, 3 * A])
    torch.testing.assert_close(torch.func.vmap(product)(stack), product(stack))
    _, slope = torch.func.jvp(product, (A,), (A,))  # of a square: twice itself
    torch.testing.assert_close(slope, 2 * plain, rtol=1e-12, atol=1e-12)
    leaf = A.clone().requires_grad_()
    (g,) = torch.autograd.grad(product(leaf).sum(), leaf)
    (f,) = torch.func.vjp(product, A)[1](torch.ones(100, 100, dtype=A.dtype))
    torch.testing.assert_close(f, g)
    assert product(A.half()).dtype == torch.float16
    with torch.device("meta"):
        assert product(torch.empty(110, 100)).shape == (100, 100)


@named
def test_into_columns_that_are_rows(kernel):
    a, x, W = normal(30, 5), normal(30, 5, seed=1), torch.zeros(5, 5, dtype=torch.float64).mT
    kernel.add_outer(a, x, None, W, None, None)
    torch.testing.assert_close(W, a.mT @ x, rtol=1e-13, atol=1e-13)


@named
@pytest.mark.parametrize(("N", "M"), [(33, 47), (512, 450)])
def test_they_do_not_depend_on_the_number_of_threads(kernel, N, M):
    a, x, u = (normal(9001, n, dtype=torch.float32) for n in (N, M, 2))
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3, 5, 20):
        torch.set_num_threads(threads)
        try:
            to = [torch.zeros(N, M), torch.zeros(N, 2), torch.zeros(N)]
            kernel.add_outer(a, x, u, *to)
        finally:
            torch.set_num_threads(before)
        found.append(to)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


@named
@pytest.mark.parametrize("call", [1, 5000, 1 << 40])
@pytest.mark.parametrize("rows", [1, 15, 16, 100, 333])
def test_long_sums_are_cut(kernel, rows, call, monkeypatch):
    """So that Ctrl-C is heard between the pieces."""
    monkeypatch.setattr(outer, "CALL", call)
    assert_sums(kernel, normal(rows, 5), normal(rows, 3), normal(rows, 2), {"W", "W_i", "b"})


@pytest.mark.skipif(not native.available(), reason=f"the native kernel: {native.why_not()}")
@pytest.mark.parametrize("isa", library.ISAS)
def test_every_instruction_set(isa):
    run_held_to(isa, "native and any_size", __file__)
