"""The golden vectors of every compared system: states after six steps, from given weights.

Those of the vanilla RNN, the LSTM and the GRU stand beside the paper's own models.
"""

import pytest
import torch
from given_weights import F, filled, inputs, rng, skew_entries
from torch import Tensor

from roann.lab.models.antisymmetric import AntisymmetricRnn, AntisymmetricRnnConfig
from roann.lab.models.bn_lstm import BnLstm, BnLstmConfig
from roann.lab.models.cornn import CoRnn, CoRnnConfig
from roann.lab.models.dilated import DilatedCnn, DilatedCnnConfig, DilatedRnn, DilatedRnnConfig
from roann.lab.models.exprnn import ExpRnn, ExpRnnConfig
from roann.lab.models.fastrnn import FastRnn, FastRnnConfig
from roann.lab.models.highway import Highway, HighwayConfig
from roann.lab.models.indrnn import IndRnn, IndRnnConfig
from roann.lab.models.leaky_esn import LeakyEsn, LeakyEsnConfig
from roann.lab.models.lem import Lem, LemConfig
from roann.lab.models.lipschitz import LipschitzRnn, LipschitzRnnConfig
from roann.lab.models.lmu import Lmu, LmuConfig, delay_network
from roann.lab.models.lru import LinearRecurrence
from roann.lab.models.nnrnn import NnRnn, NnRnnConfig, above_blocks
from roann.lab.models.nru import Nru, NruConfig
from roann.lab.models.recurrence import Source
from roann.lab.models.residual_mlp import ResidualMlp, ResidualMlpConfig
from roann.lab.models.scornn import ScoRnn, ScoRnnConfig
from roann.lab.models.shuffling import ShufflingRnn, ShufflingRnnConfig
from roann.lab.models.unicornn import Unicornn, UnicornnConfig
from roann.lab.models.unitary import (
    FullCapacityURnn,
    FullCapacityURnnConfig,
    URnn,
    URnnConfig,
    restricted_unitary,
)

A = skew_entries(3 * F(1, 4, 4))  # of skew(M) = triu(M, 1) − triu(M, 1)ᵀ


def close(found: Tensor, wanted: str | list[float]) -> None:
    numbers = [float(word) for word in wanted.split()] if isinstance(wanted, str) else wanted
    assert found.flatten().tolist() == pytest.approx(numbers, abs=1e-9, rel=0)


def dilated_rnn():
    first = {
        "layers__0__core__weight_hh_l0": F(1, 4, 4),
        "layers__0__core__weight_ih_l0": F(2, 4, 2),
        "layers__0__core__bias_ih_l0": F(3, 4),
    }
    second = {
        "layers__1__core__weight_hh_l0": F(4, 4, 4),
        "layers__1__core__weight_ih_l0": F(5, 4, 4),
        "layers__1__core__bias_ih_l0": F(6, 4),
    }
    return filled(DilatedRnn(2, DilatedRnnConfig(4, (1, 2)), rng()), **first, **second)


def dilated_cnn():
    return filled(
        DilatedCnn(2, DilatedCnnConfig(4, (1, 2)), rng()),
        K__0=torch.cat([F(2, 4, 2), F(1, 4, 2)], 1),
        b__0=F(3, 4),
        K__1=torch.cat([F(5, 4, 4), F(4, 4, 4)], 1),
        b__1=F(6, 4),
    )


def urnn():
    return filled(
        URnn(2, URnnConfig(4), rng()),
        theta=5 * F(1, 3, 4),
        reflections=torch.stack([F(k, 4) for k in (2, 3, 4, 5)]).view(2, 2, 4),
        permutation=torch.tensor([2, 0, 3, 1]),
        V=torch.cat([F(6, 4, 2), F(7, 4, 2)]),
        b=0.1 * F(8, 4),
        h_0=torch.zeros(8),
    )


def urnn_matrix() -> Tensor:
    system = urnn()
    W = restricted_unitary(system.theta, system.reflections, system.permutation)
    return W(torch.eye(4, dtype=torch.float64)).mT.detach()


def antisymmetric(gated: bool):
    W = F(1, 4, 4)
    config = AntisymmetricRnnConfig(4, epsilon=0.1, gamma=0.01, gated=gated)
    V, b = (F(2, 4, 2), F(4, 4, 2)), (F(3, 4), F(5, 4))
    rows = 2 if gated else 1
    return filled(
        AntisymmetricRnn(2, config, rng()),
        A=skew_entries(W - W.T),
        V=torch.cat(V[:rows]),
        b=torch.cat(b[:rows]),
    )


def leaky_esn(form: str):
    system = LeakyEsn(2, LeakyEsnConfig(4, leak=0.3, form=form), rng())
    return filled(system, W=F(1, 4, 4), W_in=F(2, 4, 2), b=F(3, 4))


STATES = {
    "dilated rnn": (dilated_rnn, "-0.428967557 0.305993379 0.586882780 -0.245667989"),
    "dilated cnn": (dilated_cnn, "0 0.187338785 0.632652716 0"),
    "uRNN": (
        urnn,
        """-0.348667901 0.153972208 -0.088500915 0.348120230
        -0.111117050 -0.255069442 0.574222293 -0.998046019""",
    ),
    "expRNN": (
        lambda: filled(ExpRnn(2, ExpRnnConfig(4), rng()), A=A, W_i=F(2, 4, 2), b=0.1 * F(3, 4)),
        "-0.713555795 0.416557872 0.405611439 -1.183267723",
    ),
    "scoRNN": (
        lambda: filled(
            ScoRnn(2, ScoRnnConfig(4, negative=2), rng()), A=A, W_i=F(2, 4, 2), b=0.1 * F(3, 4)
        ),
        "0.186496942 0.046267624 0 -0.464725744",
    ),
    "Lipschitz": (
        lambda: filled(
            LipschitzRnn(2, LipschitzRnnConfig(4, 0.1, 0.75, 0.001), rng()),
            M_A=F(1, 4, 4),
            M_W=F(2, 4, 4),
            U=F(3, 4, 2),
            b=F(4, 4),
        ),
        "-0.205780278 -0.165407048 -0.072193647 0.144512390",
    ),
    "antisymmetric": (
        lambda: antisymmetric(False),
        "0.009821767 -0.152620549 -0.262546471 -0.063164444",
    ),
    "antisymmetric, gated": (
        lambda: antisymmetric(True),
        "0.002119909 -0.059684179 -0.155178621 -0.055063922",
    ),
    "coRNN": (
        lambda: filled(
            CoRnn(2, CoRnnConfig(4, dt=0.1, gamma=1.5, epsilon=2.0), rng()),
            W=torch.cat([F(1, 4, 4), F(2, 4, 4)], 1),
            V=F(3, 4, 2),
            b=F(4, 4),
        ),
        """-0.036147777 -0.064470509 -0.006749809 0.044967965
        -0.061116613 -0.077607313 -0.102545307 0.094870198""",
    ),
    "FastRNN": (
        lambda: filled(FastRnn(2, FastRnnConfig(4), rng()), U=F(1, 4, 4), W=F(2, 4, 2), b=F(3, 4)),
        "0.017386757 -0.039415704 -0.114613161 -0.034714089",
    ),
    "leaky ESN": (
        lambda: leaky_esn("common"),
        "-0.076834207 -0.058744142 -0.317721719 -0.328040072",
    ),
    "leaky ESN, 2007": (
        lambda: leaky_esn("jaeger2007"),
        "-0.540909686 -0.609177480 -0.260728255 -1.582346566",
    ),
    "nnRNN": (
        lambda: filled(
            NnRnn(2, NnRnnConfig(4), rng()),
            A=A,
            theta=torch.tensor([0.5, 1.2], dtype=torch.float64),
            gamma=torch.tensor([1.0, 0.9], dtype=torch.float64),
            T=F(4, 4, 4)[tuple(above_blocks(4, torch.device("cpu")))],
            W_i=F(2, 4, 2),
            b=0.1 * F(3, 4),
        ),
        "-1.183223903 0.256062996 -0.038697607 -1.551076729",
    ),
    "shuffling": (
        lambda: filled(
            ShufflingRnn(2, ShufflingRnnConfig(4, width=3, layers=1), rng()),
            W_r__0=F(1, 3, 2),
            b_r__0=F(2, 3),
            W_r__1=F(3, 4, 3),
            b_r__1=F(4, 4),
            W_s=F(5, 4, 2),
            b_s=F(6, 4),
        ),
        "0 0 0 0.236531222",
    ),
    "NRU": (
        lambda: filled(
            Nru(2, NruConfig(4, memory_size=4, heads=4), rng()),
            W_x=F(1, 4, 10)[:, :2],
            W_h=F(1, 4, 10)[:, 2:],
            b_h=F(2, 4),
            W_q=torch.cat([F(3, 8, 8), F(5, 8, 8), F(7, 4, 8), F(9, 4, 8)]),
            b_q=torch.cat([F(4, 8), F(6, 8), F(8, 4), F(10, 4)]),
        ),
        "0 1.885697206 0 0 0.105328481 -0.402931724 -2.010189934 1.695277821",
    ),
    "LMU": (
        lambda: filled(
            Lmu(2, LmuConfig(4, 3, theta=4.0), rng(), dtype=torch.float64),
            e_x=F(1, 2),
            e_h=F(2, 4),
            e_m=F(3, 3),
            W_x=F(4, 4, 2),
            W_h=F(5, 4, 4),
            W_m=F(6, 4, 3),
        ),
        """0.582538942 -0.146496805 -0.406058501 0.354722341
        -0.371733151 0.392016352 0.067893259""",
    ),
    "LEM": (
        lambda: filled(
            Lem(2, LemConfig(4, dt=0.3), rng()),
            V=F(1, 16, 2),
            b_V=F(2, 16),
            W=F(3, 12, 4),
            b_W=F(4, 12),
            W_z=F(5, 4, 4),
            b_z=F(6, 4),
        ),
        """-0.167323140 -0.207633377 0.145637309 0.140028122
        0.021240740 0.113742177 0.252080377 -0.171736291""",
    ),
    "UnICORNN": (
        lambda: filled(
            Unicornn(2, UnicornnConfig(4, 1, dt=0.2, alpha=3.0), rng()),
            w=2 * F(1, 1, 4),
            V__0=F(2, 4, 2),
            b=F(3, 1, 4),
            c=F(4, 1, 4),
        ),
        """-0.030063507 0.041914915 0.076994495 -0.012863019
        -0.028518962 0.051514252 0.231944149 0.081656679""",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_state_after_six_steps(name):
    make, wanted = STATES[name]
    system = make()
    _, state = system(inputs())
    if name == "dilated rnn" or name == "dilated cnn":
        state = system.read(state)  # its state is a shift register
    close(state, wanted)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (dilated_cnn, 4.843297690),
        (STATES["shuffling"][0], 0.847626468),
    ],
    ids=["dilated cnn", "shuffling"],
)
def test_sum_of_the_outputs_over_time(make, wanted):
    assert make()(inputs())[0].sum().item() == pytest.approx(wanted, abs=1e-9)


def test_ind_rnn_of_two_layers():
    config = IndRnnConfig(hidden_size=4, layers=2, horizon=6, batch_norm=False)
    system = filled(
        IndRnn(2, config, rng()),
        W__0=F(1, 4, 2),
        b__0=F(2, 4),
        cells__0__u=2 * F(3, 4),
        W__1=F(4, 4, 4),
        b__1=F(5, 4),
        cells__1__u=2 * F(6, 4),
    )
    output, state = system(inputs())
    close(state[0, 4:], "0 0 0.900323936 0.449082523")
    assert output.sum().item() == pytest.approx(6.087531530, abs=1e-9)


def test_bn_lstm_with_the_statistics_of_its_batch():
    system = filled(
        BnLstm(2, BnLstmConfig(4, max_length=6), rng()),
        W_h=F(1, 16, 4),
        W_x=F(2, 16, 2),
        gamma_h=0.1 + F(3, 16),
        gamma_x=0.1 + F(4, 16),
        gamma_c=0.1 + F(5, 4),
        b=F(6, 16),
        beta_c=F(7, 4),
    )
    output, _ = system.train()(inputs(batch=3))
    close(output[-1, 0], "-0.039614861 0.182145811 0.134215526 -0.255405121")


def test_trace_of_the_unitary_matrix():
    trace = torch.trace(urnn_matrix())
    assert trace.real.item() == pytest.approx(0.496565207, abs=1e-9)
    assert trace.imag.item() == pytest.approx(-0.758128269, abs=1e-9)


def test_one_cayley_step_is_one_step_of_sgd():
    system = filled(FullCapacityURnn(2, FullCapacityURnnConfig(4), rng()))
    system.set_base(urnn_matrix())
    G = torch.complex(F(9, 4, 4), F(10, 4, 4))
    torch.sum(system.recurrent_matrix() * G.conj()).real.backward()
    torch.optim.SGD([system.K], lr=0.5).step()
    for _ in range(2):
        row = system.recurrent_matrix()[0]
        close(row.real, "0.425445838 0.264943794 0.698790024 0.281442026")
        close(row.imag, "0.108917564 0.051199937 0.156375973 -0.377287158")
        system.rebase_()  # moves the step into B and changes nothing


def test_matrices_of_the_delay_network():
    A_bar, B_bar = delay_network(3, 4.0)
    close(
        A_bar,
        """0.763323208 -0.205303087 -0.064704005
        0.615909260 0.212117953 -0.278471464
        -0.323520025 0.464119107 0.167069392""",
    )
    close(B_bar, "0.236676792 -0.615909260 0.323520025")


def test_outputs_of_the_linear_recurrent_unit():
    unit = LinearRecurrence(2, 4, 0.1, 0.9, Source(rng())).double()
    lam = torch.polar(torch.exp(-F(1, 4).exp()), F(2, 4).exp())
    filled(
        unit,
        nu=F(1, 4),
        theta=F(2, 4),
        gamma=torch.log(1 - lam.abs() ** 2) / 2,
        B=torch.stack([F(3, 4, 2), F(4, 4, 2)]),
        C=torch.stack([F(5, 2, 4), F(6, 2, 4)]),
        D=F(7, 2),
    )
    y, _ = unit(inputs(), torch.zeros(1, 8, dtype=torch.float64))
    close(y[-1], "-0.250193525 -0.379088291")


def test_highway_of_three_layers():
    W = torch.stack([torch.cat([F(10 + k, 4, 4), F(20 + k, 4, 4)]) for k in range(3)])
    b = torch.stack([torch.cat([F(30 + k, 4), torch.full((4,), -2.0)]) for k in range(3)])
    net = filled(Highway([4, 4, 4, 4, 1], HighwayConfig(5, 4), rng()), W=W, b=b)
    close(net.trunk(F(9, 4)), "0.112892520 -0.057623818 -0.214048788 -0.066895537")


def test_residual_mlp_of_three_layers():
    W = torch.stack([F(10 + k, 4, 4) for k in range(3)])
    b = torch.stack([F(30 + k, 4) for k in range(3)])
    net = filled(ResidualMlp([4, 4, 4, 4, 1], ResidualMlpConfig(5, 4), rng()), W=W, b=b)
    close(net.trunk(F(9, 4)), "0.197892548 0.533051363 -0.394450638 0.855309741")
