"""Layers from the meta device: to_empty, then reset_parameters or load_state_dict."""

import copy

import pytest
import torch
from torch import nn

from roann import Roa, RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell, filters


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


ALPHA = torch.tensor([0.01, 0.02, 0.03, 0.04])
MAKERS = {
    "rnn": lambda **kw: RoaRNN(3, 4, 2, bidirectional=True, alpha=0.01, **kw),
    "rnn, vector alpha": lambda **kw: RoaRNN(3, 4, alpha=ALPHA, **kw),
    "rnn, learned": lambda **kw: RoaRNN(3, 4, alpha=ALPHA, learn_rho=True, **kw),
    "cell": lambda **kw: RoaRNNCell(3, 4, alpha=0.01, **kw),
    "layer": lambda **kw: RoaLayer(3, 4, alpha=0.01, **kw),
    "deep": lambda **kw: RoaFNN([3, 4, 4, 4, 2, 2], alpha=0.01, **kw),
    "deep, recycled": lambda **kw: RoaFNN([4, 4, 3, 4, 3, 4], alpha=0.01, recycle=True, **kw),
}
FILTERS = ["broad", "qr", "haar", "permutation", "rotations", "householder"]


def inputs(name):
    features = 4 if name == "deep, recycled" else 3
    return torch.randn(5, 2, features, generator=gen(9))


def answer(model, u):
    output = model(u[0] if isinstance(model, RoaRNNCell) else u)
    return output[0] if isinstance(output, tuple) else output


def tensors(model):
    return {k: v for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("name", MAKERS)
def test_reset_parameters_after_to_empty_is_construction(name, filter):
    """Parameters and filters: the same generator gives what direct construction gives."""
    direct = MAKERS[name](filter=filter, generator=gen())
    model = MAKERS[name](filter=filter, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        for t in tensors(model).values():
            if t.is_floating_point() and t.shape != ALPHA.shape:
                t.fill_(float("nan"))  # what memory may hold
    model.reset_parameters(gen())
    for (key, a), b in zip(tensors(direct).items(), tensors(model).values(), strict=True):
        assert torch.equal(a, b), key
    u = inputs(name)
    assert torch.equal(answer(model, u), answer(direct, u))


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("name", MAKERS)
def test_a_forward_without_a_filter_is_refused(name, filter):
    model = MAKERS[name](filter=filter, device="meta").to_empty(device="cpu")
    for p in model.parameters():
        nn.init.zeros_(p)
    with pytest.raises(RuntimeError, match=r"filter: expected a .* that was drawn or loaded"):
        answer(model, inputs(name))
    direct = MAKERS[name](filter=filter, generator=gen())
    for assign in (False, True):
        twin = copy.deepcopy(model)
        twin.load_state_dict(direct.state_dict(), assign=assign)
        assert torch.equal(answer(twin, inputs(name)), answer(direct, inputs(name)))


@pytest.mark.parametrize("name", MAKERS)
def test_filters_that_hold_data_are_never_drawn_again(name):
    model = MAKERS[name](generator=gen())
    before = [f.to_dense().clone() for f in model.modules() if isinstance(f, filters.Filter)]
    ghost = MAKERS[name](device="meta").to_empty(device="cpu")
    ghost.load_state_dict(model.state_dict())
    for m in (model, ghost):
        m.reset_parameters(gen(1))
        now = [f.to_dense() for f in m.modules() if isinstance(f, filters.Filter)]
        assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True))


def test_a_given_alpha_comes_back_from_meta():
    model = MAKERS["rnn, vector alpha"](device="meta").to_empty(device="cpu")
    assert torch.equal(model.alpha, ALPHA)


def test_continuous_time_and_wrapped_modules():
    ode = RoaODE(3, 4, alpha=0.01, device="meta").to_empty(device="cpu")
    ode.reset_parameters(gen())
    direct, u = RoaODE(3, 4, alpha=0.01, generator=gen()), inputs("ode")
    assert torch.equal(ode(u)[0], direct(u)[0])
    f = nn.Linear(3, 3)
    roa = Roa(f, alpha=0.5, device="meta")
    roa.filter.to_empty(device="cpu")
    with pytest.raises(RuntimeError, match="filter: expected a Broad that was drawn or loaded"):
        roa(u)
    roa.reset_parameters(gen())
    assert torch.equal(roa(u), Roa(f, alpha=0.5, generator=gen())(u))


def test_every_module_resets_itself_as_fsdp_asks():
    """FSDP calls to_empty and reset_parameters of every module with tensors of its own."""
    model = nn.Sequential(RoaRNN(3, 4, alpha=0.01, device="meta"))
    for module in model.modules():
        if [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            module.to_empty(device="cpu", recurse=False)
            module.reset_parameters()
    O = model[0].filter_l0.to_dense()
    assert float((O @ O.T - torch.eye(4)).abs().max()) < 1e-6
    direct = RoaRNN(3, 4, alpha=0.01, generator=gen())
    model[0].load_state_dict(direct.state_dict())
    assert torch.equal(model(inputs("rnn"))[0], direct(inputs("rnn"))[0])


@pytest.mark.parametrize("filter", ["broad", "rotations", "qr"])
def test_the_gain_comes_with_the_numbers_of_the_filter(filter):
    """Also if the filter gets them on its own, after the layer."""
    kw = {"alpha": 0.01, "filter": filter}
    rnn = RoaRNN(3, 4, device="meta", **kw)
    for module in rnn.modules():
        module.to_empty(device="cpu", recurse=False)
        module.reset_parameters(gen())
    drawn = RoaRNN(3, 4, generator=gen(), **(kw | {"filter": rnn.filter_l0}))
    assert torch.equal(rnn(inputs("rnn"))[0], drawn(inputs("rnn"))[0])
    emptied = RoaRNN(3, 4, device="meta", **kw).to_empty(device="cpu")
    emptied.filter_l0.load_state_dict(rnn.filter_l0.state_dict())
    emptied = emptied.to("cpu", torch.float64)
    wanted = drawn.gain_of("_l0").double()
    torch.testing.assert_close(emptied.gain_of("_l0"), wanted, rtol=1e-6, atol=0)


def test_an_ensemble_around_a_model_without_numbers():
    models = [RoaRNN(3, 4, alpha=0.01, generator=gen(seed)) for seed in range(3)]
    state = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    u = inputs("rnn")
    call = lambda *state: torch.func.functional_call(base, state, (u,))[0]  # noqa: E731
    outputs = torch.vmap(call)(*state)
    for model, output in zip(models, outputs, strict=True):
        torch.testing.assert_close(output, model(u)[0], rtol=1e-5, atol=1e-6)


def test_a_default_device_without_numbers_changes_no_setting():
    """The horizon of the filter follows from α, wherever tensors are made."""
    with torch.device("meta"):
        ghost = RoaRNN(3, 4, alpha=0.01)
        real = RoaRNN(3, 4, alpha=0.01, device="cpu", generator=gen())
    direct = RoaRNN(3, 4, alpha=0.01, generator=gen())
    assert ghost.settings() == real.settings() == direct.settings()
    assert torch.equal(real(inputs("rnn"))[0], direct(inputs("rnn"))[0])


def test_the_default_device_is_that_of_the_filter_too():
    with torch.device("meta"):
        rnn = RoaRNN(3, 8, horizon=99)
    assert {t.device.type for t in rnn.state_dict().values() if t.dtype != torch.uint8} == {"meta"}
    rnn.to_empty(device="cpu")
    with pytest.raises(RuntimeError, match="one emptied by to_empty"):
        rnn(torch.zeros(4, 2, 3))
    rnn.reset_parameters(torch.Generator().manual_seed(0))
    direct = RoaRNN(3, 8, horizon=99, generator=torch.Generator().manual_seed(0))
    for key, value in direct.state_dict().items():
        assert torch.equal(rnn.state_dict()[key], value), key


@pytest.mark.parametrize("filter", ["broad", "qr", "permutation", "rotations", "householder"])
def test_a_real_layer_that_was_emptied_is_refused_until_it_is_drawn(filter):
    rnn = RoaRNN(3, 8, horizon=99, filter=filter).to_empty(device="cpu")
    with pytest.raises(RuntimeError, match="by to_empty, without numbers"):
        rnn(torch.zeros(4, 2, 3))
    rnn.reset_parameters()
    rnn.filter_l0.verify()
    moved = RoaRNN(3, 8, horizon=99, filter=filter).double().float().half().to("cpu")
    moved.filter_l0.verify()
    assert moved(torch.zeros(4, 2, 3).half())[0].shape == (4, 2, 8)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("here", "there"), [("cpu", "meta"), ("meta", "cpu")])
def test_an_input_on_another_device_is_refused(name, here, there):
    model = MAKERS[name](generator=gen()).to(here)
    with pytest.raises(RuntimeError, match="device"):
        answer(model, inputs(name).to(there))


def test_a_state_on_another_device_is_refused():
    model = RoaRNN(3, 4, horizon=100)
    with pytest.raises(
        RuntimeError, match=r"hx: expected device cpu, .* move it with .to\('cpu'\)"
    ):
        model(inputs("rnn"), torch.zeros(1, 2, 4, device="meta"))
