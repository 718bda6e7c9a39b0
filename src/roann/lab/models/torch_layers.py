"""What the vanilla RNN, the LSTM and the GRU share: a layer of torch itself.

Note [Two biases]: the cells are torch's, which adds a bias to W_i u and another to W h. For the
vanilla RNN and the LSTM only their sum matters. Both are trained here, as in the paper's own
vanilla RNN, so every count is N per gate above a count with one bias.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from roann.diagnostics.systems import CELLS
from roann.lab.limits import Settings
from roann.lab.models.recurrence import ConfiguredSystem, Source

C = TypeVar("C", bound=Settings)


class TorchSystem(ConfiguredSystem[C]):
    """Abstract: a system whose sequences run in a torch layer, `core`, of one level."""

    layer: ClassVar[type[Any]]  # of `core`; takes the settings by their names
    core: nn.RNNBase

    def build(self, new: Source) -> None:
        # On the meta device torch's own first values draw no random numbers.
        options = asdict(self.config) | {"device": "meta", "dtype": new.factory.get("dtype")}
        device = new.empty().device
        self.core = self.layer(self.input_size, **options).to_empty(device=device)
        self.state_size = self.output_size = N = self.core.hidden_size
        # The first values: every gate's W orthogonal, all else U(±1/√N).
        for name, parameter in self.core.named_parameters():
            if name == "weight_hh_l0":
                with torch.no_grad():
                    for gate in parameter.chunk(len(parameter) // N):
                        nn.init.orthogonal_(gate, generator=new.generator)
            else:
                bound = 1 / math.sqrt(N)
                nn.init.uniform_(parameter, -bound, bound, generator=new.generator)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, h = self.core(u, self.start(u, state).unsqueeze(0))
        return output, h[0]

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step as diagnostics take it, which know torch's cells."""
        (one,) = CELLS[self.layer](self.core, "_l0").maps(u.unsqueeze(0))
        return one(x)
