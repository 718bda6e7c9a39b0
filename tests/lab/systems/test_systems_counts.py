"""How many numbers each system trains on psMNIST, at every published size, readout included."""

import pytest
import torch
from torch import nn

from roann.lab.models import MODELS
from roann.lab.models.antisymmetric import AntisymmetricRnnConfig
from roann.lab.models.base import SequenceSystem, count_parameters
from roann.lab.models.bn_lstm import BnLstmConfig
from roann.lab.models.cornn import CoRnnConfig
from roann.lab.models.dilated import DilatedCnnConfig, DilatedRnnConfig
from roann.lab.models.exprnn import ExpRnnConfig
from roann.lab.models.fastrnn import FastRnnConfig
from roann.lab.models.gru import GruConfig
from roann.lab.models.indrnn import DenseIndRnnConfig, IndRnnConfig, ResidualIndRnnConfig
from roann.lab.models.lem import LemConfig
from roann.lab.models.lipschitz import LipschitzRnnConfig
from roann.lab.models.lmu import LmuConfig
from roann.lab.models.lstm import LstmConfig
from roann.lab.models.nnrnn import NnRnnConfig
from roann.lab.models.nru import NruConfig
from roann.lab.models.scornn import ScoRnnConfig
from roann.lab.models.shuffling import ShufflingRnnConfig
from roann.lab.models.unicornn import UnicornnConfig
from roann.lab.models.unitary import FullCapacityURnnConfig, URnnConfig
from roann.lab.models.vanilla_rnn import VanillaRnnConfig

SIZES = [
    # torch's second bias: N per gate more than the sheet's count; see Note [Two biases].
    ("vanilla-rnn", VanillaRnnConfig(256), 68_618 + 256),
    ("lstm", LstmConfig(256), 266_762 + 4 * 256),
    ("gru", GruConfig(256), 200_714 + 3 * 256),
    ("dilated-cnn", DilatedCnnConfig(50), 46_110),
    ("dilated-cnn", DilatedCnnConfig(20), 7_650),
    ("dilated-rnn", DilatedRnnConfig(20), 7_210),
    ("dilated-rnn", DilatedRnnConfig(20, cell="gru"), 21_210),
    ("dilated-rnn", DilatedRnnConfig(20, cell="lstm"), 28_210),
    ("dilated-rnn", DilatedRnnConfig(50), 43_510),
    ("dilated-rnn", DilatedRnnConfig(50, cell="gru"), 129_510),
    ("dilated-rnn", DilatedRnnConfig(50, cell="lstm"), 172_510),
    ("urnn", URnnConfig(512), 16_394),
    ("fc-urnn", FullCapacityURnnConfig(512), 274_954),
    ("fc-urnn", FullCapacityURnnConfig(116), 16_366),
    ("bn-lstm", BnLstmConfig(100), 43_010),
    ("exprnn", ExpRnnConfig(512), 136_970),
    ("exprnn", ExpRnnConfig(170), 16_415),
    ("exprnn", ExpRnnConfig(360), 68_950),
    ("exprnn", ExpRnnConfig(722), 268_955),
    ("scornn", ScoRnnConfig(512), 136_970),
    ("lipschitz-rnn", LipschitzRnnConfig(128), 34_314),
    ("lipschitz-rnn", LipschitzRnnConfig(64), 8_970),
    ("antisymmetric-rnn", AntisymmetricRnnConfig(128), 9_674),
    ("antisymmetric-rnn", AntisymmetricRnnConfig(128, gated=True), 9_930),
    ("indrnn", IndRnnConfig(), 86_410),
    ("indrnn", IndRnnConfig(layers=12), 187_786),
    ("res-indrnn", ResidualIndRnnConfig(), 170_890),
    ("dense-indrnn", DenseIndRnnConfig(), 256_514),
    ("shuffling-rnn", ShufflingRnnConfig(1024, 32, 1), 46_154),
    ("shuffling-rnn", ShufflingRnnConfig(1024, 32, 5), 50_378),
    ("shuffling-rnn", ShufflingRnnConfig(1024, 36, 1), 50_258),
    ("shuffling-rnn", ShufflingRnnConfig(512, 64, 3), 47_882),
    ("shuffling-rnn", ShufflingRnnConfig(512, 64, 4), 52_042),
    ("nru", NruConfig(), 165_554),
    ("lmu", LmuConfig(), 102_027),
    ("cornn", CoRnnConfig(), 134_154),
    ("fastrnn", FastRnnConfig(128), 17_932),
    # 268,298 with T inside the blocks too, where N/2 more numbers would move γ and θ.
    ("nnrnn", NnRnnConfig(512), 268_298 - 256),
    ("lem", LemConfig(128), 68_362),
    ("unicornn", UnicornnConfig(), 136_202),
]


class Psmnist:
    input_size, output_size, horizon, readout = 1, 10, 784, "last"


@pytest.mark.parametrize(
    ("name", "config", "count"), SIZES, ids=[f"{name}-{count}" for name, _, count in SIZES]
)
def test_count(name, config, count):
    system = MODELS[name].build(config, Psmnist, lambda _: torch.Generator().manual_seed(0))
    assert isinstance(system, SequenceSystem)
    readout = 10 * system.output_size + 10
    assert system.effective_parameters() + readout == count
    # Nothing dead is stored: what an optimiser moves is what is counted.
    assert count_parameters(system) == system.effective_parameters()


def test_a_skew_system_stores_half_of_what_torch_s_parametrisation_does():
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(64, 64, bias=False))
    system = MODELS["exprnn"].build(
        ExpRnnConfig(64), Psmnist, lambda _: torch.Generator().manual_seed(0)
    )
    assert count_parameters(layer) == 64 * 64
    assert system.A.numel() == 64 * 63 // 2
