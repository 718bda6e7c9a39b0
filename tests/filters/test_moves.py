"""Filters that are moved: to other dtypes and back, and off the meta device."""

import copy

import pytest
import torch
from torch import nn

from roann import filters

f64 = torch.float64
SHAPES = [(6, 6), (4, 9), (9, 4)]
every = pytest.mark.parametrize("name", filters.FILTERS)
shaped = pytest.mark.parametrize("shape", SHAPES, ids=str)
stacked = pytest.mark.parametrize("depth", [None, 3])
DRAWN = [n for n in filters.FILTERS if n not in ("identity", "cycle")]


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def make(name, shape, depth=None, **options):
    return filters.make(name, *shape, depth=depth, generator=gen(), **options)


def defect(filter):
    """The largest entry of |O Oᵀ − I|, or of |OᵀO − I|."""
    O = filter.to_dense().to(f64)
    gram = O @ O.mT if O.shape[-2] <= O.shape[-1] else O.mT @ O
    return float((gram - torch.eye(gram.shape[-1], dtype=f64)).abs().max())


def bits(filter):
    return {k: v.clone() for k, v in filter.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


@every
@shaped
@stacked
class TestEveryMove:
    @pytest.mark.parametrize("start", [torch.float32, f64])
    @pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
    def test_half_precision_and_back_loses_nothing(self, name, shape, depth, start, half):
        filter = make(name, shape, depth, dtype=start)
        before = bits(filter)
        for there in (lambda m: m.to(half), lambda m: m.to("cpu", half), lambda m: m.type(half)):
            there(filter)
            assert same(before, bits(filter)), "never rounded to half precision"
        filter.to(start)
        assert same(before, bits(filter))
        assert defect(filter) <= 16 * torch.finfo(start).eps

    def test_made_in_half_precision_it_has_float32(self, name, shape, depth):
        wide = make(name, shape, depth, dtype=torch.float32)
        for half in (torch.float16, torch.bfloat16):
            assert same(bits(wide), bits(make(name, shape, depth, dtype=half)))

    def test_double_after_float_is_orthogonal_to_double_rounding(self, name, shape, depth):
        exact = make(name, shape, depth, dtype=f64).to_dense().to(f64)
        filter = make(name, shape, depth, dtype=torch.float32).double()
        assert defect(filter) <= 16 * torch.finfo(f64).eps
        error = float((filter.to_dense().to(f64) - exact).abs().max())
        assert error <= 16 * torch.finfo(torch.float32).eps, "and it is the same filter"
        filter.float().half().double()
        assert defect(filter) <= 16 * torch.finfo(f64).eps

    @pytest.mark.parametrize("start", [torch.float32, f64])
    def test_half_precision_input_is_multiplied_in_full(self, name, shape, depth, start):
        filter = make(name, shape, depth, dtype=start)
        lead = (2,) if depth is None else (depth, 2)
        x = torch.randn(*lead, shape[1], generator=gen(1), dtype=torch.bfloat16)
        y = torch.randn(*lead, shape[0], generator=gen(2), dtype=torch.bfloat16)
        O = filter.to_dense().to(f64)
        pairs = ((filter.matvec(x), x.to(f64) @ O.mT), (filter.matvec_transpose(y), y.to(f64) @ O))
        for got, exact in pairs:
            assert got.dtype == torch.bfloat16
            scale = float(exact.abs().max())
            assert float((got.to(f64) - exact).abs().max()) <= torch.finfo(got.dtype).eps * scale

    def test_from_meta_it_is_refused_until_it_is_drawn(self, name, shape, depth):
        ghost = make(name, shape, depth, device="meta")
        assert ghost.to_dense().is_meta
        ghost.to_empty(device="cpu")
        for use in (ghost.to_dense, ghost.form, lambda: ghost.matvec(torch.ones(1, shape[1]))):
            with pytest.raises(
                RuntimeError, match=r"filter: expected a \w+ that was drawn or load"
            ):
                use()
        twin = copy.deepcopy(ghost)
        ghost.reset_parameters(gen())
        expected = bits(make(name, shape, depth))
        assert same(expected, bits(ghost)), "as if constructed with the same generator"
        ghost.reset_parameters(gen(1))
        assert same(expected, bits(ghost)), "data are never drawn again"
        twin.load_state_dict(expected)
        assert same(expected, bits(twin))
        twin.to_dense()

    def test_from_meta_by_assignment(self, name, shape, depth):
        ghost, expected = make(name, shape, depth, device="meta"), bits(make(name, shape, depth))
        ghost.load_state_dict(expected, assign=True)
        assert same(expected, bits(ghost))
        ghost.to_dense()


def test_a_matrix_of_your_own_from_meta_must_be_loaded():
    O = filters.Haar(4, generator=gen()).to_dense()
    ghost = filters.Given(O, device="meta").to_empty(device="cpu")
    ghost.reset_parameters(gen())
    with pytest.raises(RuntimeError, match="expected a Given that was drawn or loaded"):
        ghost.matvec(torch.ones(4))
    ghost.load_state_dict({"matrix": O})
    assert torch.equal(ghost.to_dense(), O)


def test_a_partly_loaded_filter_stays_refused():
    ghost = filters.Rotations(4, device="meta").to_empty(device="cpu")
    with pytest.raises(RuntimeError, match="expected the buffers angle, partner together"):
        ghost.load_state_dict({"angle": torch.zeros(4)}, strict=False)
    with pytest.raises(RuntimeError, match="expected a Rotations that was drawn"):
        ghost.to_dense()


@pytest.mark.parametrize("name", ["qr", "householder"])
def test_what_was_never_orthogonal_is_not_changed(name):
    filter = make(name, (4, 4), dtype=torch.float32)
    state = {k: 2 * v for k, v in bits(filter).items()}
    for key, value in state.items():
        getattr(filter, key).copy_(value)
    filter.double()
    assert all(torch.equal(v, state[k].double()) for k, v in bits(filter).items())


def test_half_precision_weights_of_older_files_become_orthogonal_in_float32():
    filter = make("haar", (4, 4))
    half = {k: v.half() for k, v in bits(filter).items()}
    for assign in (False, True):
        filter.load_state_dict(half, assign=assign)
        assert filter.matrix.dtype == torch.float32
        torch.testing.assert_close(filter.matrix, half["matrix"].float(), rtol=0, atol=1e-3)
        filter.verify()


def test_other_moves_are_torchs_own():
    filter = make("qr", (4, 4))
    matrix = filter.matrix
    model = nn.Sequential(filter)
    model.share_memory()
    assert filter.matrix.is_shared()
    model.to(torch.float32)
    assert filter.matrix is matrix
    assert model.to("meta")[0].matrix.is_meta


@pytest.mark.parametrize("name", DRAWN)
def test_old_pickles_have_no_mark(name):
    filter = make(name, (4, 4))
    assert "_empty" not in vars(filter)
    assert filter.to_dense().shape == (4, 4)
