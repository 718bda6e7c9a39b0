"""What every filter must be: one inherited proof for all of them."""

import copy
import pickle

import pytest
import torch
from torch import nn

from roann import filters
from roann.kernels.linear import Dense, Gather, Planes, Rotation

f64 = torch.float64
SHAPES = [(1, 1), (6, 6), (7, 7), (4, 9), (9, 4), (1, 5), (5, 1)]
DEPTHS = [None, 3]


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def make(name, shape, depth=None, seed=0, dtype=f64):
    return filters.make(name, *shape, depth=depth, generator=gen(seed), dtype=dtype)


every = pytest.mark.parametrize("name", filters.FILTERS)
shaped = pytest.mark.parametrize("shape", SHAPES, ids=str)
stacked = pytest.mark.parametrize("depth", DEPTHS)


@every
@shaped
@stacked
class TestEveryFilter:
    def test_semi_orthogonal(self, name, shape, depth):
        O = make(name, shape, depth).to_dense().to(f64)
        assert O.shape == (*(() if depth is None else (depth,)), *shape)
        gram = O @ O.mT if shape[0] <= shape[1] else O.mT @ O
        eye = torch.eye(min(shape), dtype=f64)
        torch.testing.assert_close(gram, eye.expand_as(gram), rtol=0, atol=1e-14)

    def test_verbs_agree_with_the_matrix(self, name, shape, depth):
        filter, g = make(name, shape, depth), gen(1)
        lead = (3, 2) if depth is None else (depth, 2)
        x = torch.randn(*lead, shape[1], generator=g, dtype=f64)
        y = torch.randn(*lead, shape[0], generator=g, dtype=f64)
        O = filter.to_dense().to(f64)
        torch.testing.assert_close(filter.matvec(x), x @ O.mT, rtol=0, atol=1e-14)
        torch.testing.assert_close(filter(x), x @ O.mT, rtol=0, atol=1e-14)
        torch.testing.assert_close(filter.matvec_transpose(y), y @ O, rtol=0, atol=1e-14)
        form = filter.form().with_tensors(
            tuple(t.to(f64) if t.is_floating_point() else t for t in filter.form().tensors())
        )
        torch.testing.assert_close(form.matvec(x), x @ O.mT, rtol=0, atol=1e-14)
        torch.testing.assert_close(form.matvec_transpose(y), y @ O, rtol=0, atol=1e-14)
        torch.testing.assert_close(form.to_dense().to(f64), O, rtol=0, atol=1e-14)

    def test_adjoint_and_isometry(self, name, shape, depth):
        filter, g = make(name, shape, depth), gen(2)
        lead = (2,) if depth is None else (depth, 2)
        x = torch.randn(*lead, shape[1], generator=g, dtype=f64)
        y = torch.randn(*lead, shape[0], generator=g, dtype=f64)
        left = (filter.matvec(x) * y).sum()
        right = (x * filter.matvec_transpose(y)).sum()
        torch.testing.assert_close(left, right, rtol=1e-13, atol=1e-13)
        if shape[0] >= shape[1]:
            torch.testing.assert_close(filter.matvec(x).norm(), x.norm(), rtol=1e-13, atol=0)
            back = filter.matvec_transpose(filter.matvec(x))
            torch.testing.assert_close(back, x, rtol=0, atol=1e-13)

    def test_gradients_flow_through_and_not_into_it(self, name, shape, depth):
        filter = make(name, shape, depth)
        lead = (2,) if depth is None else (depth, 2)
        x = torch.randn(*lead, shape[1], generator=gen(3), dtype=f64).requires_grad_()
        assert torch.autograd.gradcheck(filter.matvec, x)
        assert torch.autograd.gradcheck(
            filter.matvec_transpose, filter.matvec(x).detach().requires_grad_()
        )
        assert not list(filter.parameters())
        assert not any(b.requires_grad for b in filter.buffers())

    def test_repeatable_and_restorable(self, name, shape, depth):
        a, b, other = (make(name, shape, depth, seed) for seed in (0, 0, 1))
        assert torch.equal(a.to_dense(), b.to_dense())
        other.load_state_dict(a.state_dict())
        assert torch.equal(a.to_dense(), other.to_dense())
        for twin in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
            assert torch.equal(a.to_dense(), twin.to_dense())

    def test_dtypes_and_meta(self, name, shape, depth):
        exact = make(name, shape, depth).to_dense().to(f64)
        for dtype in (torch.float32, torch.bfloat16):
            O = make(name, shape, depth, dtype=dtype)
            x = torch.ones(*(() if depth is None else (depth,)), 2, shape[1], dtype=dtype)
            assert O.matvec(x).dtype == dtype
            error = (O.to_dense().to(f64) - exact).abs().max()
            assert error <= 16 * torch.finfo(dtype).eps, "one seed is one filter in every dtype"
        ghost = filters.make(name, *shape, depth=depth, device="meta")
        assert all(b.is_meta for b in ghost.buffers())
        assert ghost.to_dense().shape == exact.shape
        assert make(name, shape, depth).to("meta").to_dense().is_meta


@every
def test_module_apply_still_means_modules(name):
    seen = []
    model = nn.Sequential(nn.Linear(2, 3), make(name, (3, 3)))
    model.apply(lambda m: seen.append(type(m)))
    assert len(seen) == 3
    assert type(model[1]).apply is nn.Module.apply


@every
def test_another_seed_is_another_filter(name):
    same = torch.equal(make(name, (8, 8), seed=0).to_dense(), make(name, (8, 8), seed=1).to_dense())
    drawn = {"qr", "haar", "permutation", "rotations", "householder"}
    assert same == (name not in drawn)


def test_kernels_are_told_the_structure():
    forms = {n: type(make(n, (6, 6)).form()) for n in filters.FILTERS}
    assert forms == {
        "broad": Planes,
        "still": Planes,
        "slow": Planes,
        "spread": Planes,
        "qr": Dense,
        "haar": Dense,
        "permutation": Gather,
        "identity": Gather,
        "cycle": Gather,
        "rotations": Rotation,
        "householder": Dense,
    }
    assert all(type(make(n, (6, 4)).form()) is Dense for n in filters.FILTERS)


def test_permutations_are_integers():
    P = make("permutation", (5, 5))
    assert {b.dtype for b in P.buffers()} == {torch.int64}
    assert P.half().index.dtype == torch.int64


def test_the_papers_qr_is_plain_qr_of_uniform():
    D = 2 * torch.rand(6, 6, generator=gen(5), dtype=f64) - 1
    O = filters.QR(6, generator=gen(5), dtype=f64).to_dense()
    assert torch.equal(O, torch.linalg.qr(D)[0])


def test_haar_moments_and_qr_is_not_haar():
    """Haar entries have mean 0 and variance 1/N; without the sign fix the diagonal is biased."""
    N, many = 4, 20_000
    haar = filters.Haar(N, depth=many, generator=gen(6), dtype=f64).to_dense()
    qr = filters.QR(N, depth=many, generator=gen(6), dtype=f64).to_dense()
    noise = (1 / N / many) ** 0.5  # standard deviation of a mean entry
    assert float(haar.mean(0).abs().max()) < 5 * noise
    assert float((haar.square().mean(0) - 1 / N).abs().max()) < 5 * noise
    assert float(qr.mean(0).abs().max()) > 20 * noise
    trace = haar.diagonal(dim1=-2, dim2=-1).sum(-1)  # E tr² = 1 under Haar
    assert float(trace.square().mean()) == pytest.approx(1, abs=0.05)


def test_rotations_turn_by_real_powers():
    O = make("rotations", (7, 7))
    third = O.turned(torch.tensor(1 / 3, dtype=f64))
    x = torch.randn(7, generator=gen(7), dtype=f64)
    thrice = third.matvec(third.matvec(third.matvec(x)))
    torch.testing.assert_close(thrice, O.matvec(x), rtol=0, atol=1e-14)


def test_householder_determinant_is_the_parity():
    for k in (1, 2, 3):
        O = filters.Householder(5, reflections=k, generator=gen(8), dtype=f64).to_dense()
        assert float(torch.linalg.det(O)) == pytest.approx((-1) ** k)


def test_given_is_checked():
    O = filters.Haar(4, generator=gen(9), dtype=f64).to_dense()
    assert torch.equal(filters.make(O, 4).to_dense(), O)
    with pytest.raises(ValueError, match=r"defect 1\.000e-02"):
        filters.make(_stretched(), 2)
    with pytest.raises(ValueError, match=r"shape \(4, 4\), got \(3, 3\)"):
        filters.make(torch.eye(3), 4)
    with pytest.raises(TypeError, match="floating point"):
        filters.make(torch.eye(3, dtype=torch.int64), 3)
    with pytest.raises(ValueError, match="a tensor"):
        filters.Given([[1.0]])
    with pytest.raises(ValueError, match="defect nan"):
        filters.make(torch.full((2, 2), float("nan")), 2)


def _stretched():
    """OᵀO − I has the largest entry 0.01."""
    return torch.diag(torch.tensor([1.0, 1.01**0.5], dtype=f64))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("qrr", 3), ValueError, "did you mean 'qr'"),
        ((3, 3), ValueError, "filter: expected one of"),
        (("qr", 0), ValueError, "out_features: expected at least 1"),
        (("qr", 2.0), TypeError, "out_features: expected an int"),
        (({"name": "householder", "reflections": 0}, 3), ValueError, "reflections: .* at least 1"),
    ],
)
def test_bad_filters(arguments, error, match):
    with pytest.raises(error, match=match):
        filters.make(*arguments)


def test_integer_dtype_is_refused():
    with pytest.raises(TypeError, match="dtype: expected a floating point dtype"):
        filters.make("qr", 3, dtype=torch.int32)
