# %%
# # Stream, export, deploy
#
# A trained layer leaves Python's training loop in three ways: as a stream in the same process, as
# a file for another runtime, or with the package itself in a wheel.

import sys
import time

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import torch

import roann
from roann.estimators import RoaClassifier
from roann.export import Graph, add_rnn

QUICK = "--quick" in sys.argv  # fewer measurements, to see that the script runs
torch.manual_seed(0)
rnn = roann.RoaRNN(3, 64, num_layers=2, horizon=1000).eval()

# %%
# ## Stream
#
# `StreamingRoa` takes one step, or a chunk of steps, and hands the state on. It computes the cap
# on $W$, the gain, α and the filter once, not at every step, and again if you train, load or move
# the model.

stream = roann.StreamingRoa(rnn)
u = torch.randn(1000, 1, 3)  # (time, batch, input)

output, state = stream(u[:900])  # a chunk, from a state of zeros
for u_k in u[900:]:
    output, state = stream.step(u_k, state)  # one step

print("stream and whole pass agree:", bool((state - rnn(u)[1]).abs().max() < 1e-5))

# %%
# The object holds no state, so one object serves many streams: keep one `state` for each, or stack
# them as a batch. Nothing is kept from step to step, so memory stays flat. Results carry no graph,
# and dropout is off.
#
# | call | compared with one pass of `rnn` over the whole sequence |
# |---|---|
# | chunks, `backend="reference"` | equal bit for bit |
# | chunks of more than four rows (steps times batch), native kernel | equal bit for bit |
# | shorter chunks, `backend="fused"`, `stream.step` | equal to rounding |
#
# A layer in half precision streams a float32 state, so nothing is rounded on its way. A
# bidirectional layer is refused: its second scan starts at the end, which a stream does not have.
#
# A change that torch does not count is not noticed: writing through `.data`, or in place under
# `torch.inference_mode()`. Call `stream.refresh()` after one.
#
# Measure the latency on the machine that will run it. Look at the slow steps too, not at the
# median alone: a live stream waits for them.


def latencies(step, n=2000 if not QUICK else 20):
    """Microseconds of each of n steps."""
    state, found = torch.zeros(2, 1, 64), []
    for u_k in torch.randn(n, 1, 3):
        began = time.perf_counter()
        _, state = step(u_k, state)
        found.append(1e6 * (time.perf_counter() - began))
    return torch.tensor(found[n // 10 :])  # the first steps warm up


def whole_layer(u_k, state):
    with torch.no_grad():
        return rnn(u_k[None], state)


figure, ax = plt.subplots(figsize=(6, 2.5), layout="constrained")
for name, step in (("stream.step", stream.step), ("rnn(u_k[None], state)", whole_layer)):
    micros = latencies(step)
    slow = micros.quantile(0.99)
    print(f"{name:<22} median {micros.median():4.0f} µs, slowest of a hundred {slow:5.0f} µs")
    ax.ecdf(micros, label=name)
ax.set(xlabel="latency of a step, µs", ylabel="share of the steps", xscale="log")
ax.legend()
figure.savefig("deploy.svg")

# %%
# ![Share of the steps that take at most so long](deploy.svg)
#
# The benchmark `python -m benchmarks --cases streaming` compares with `torch.nn.RNNCell` and ONNX
# Runtime.
#
# ## ONNX
#
# `pip install "roann[onnx]"`, then:

roann.export_onnx(rnn, "rnn.onnx")

# %%
# The file has inputs `input` and `hx` and outputs `output` and `h_n`, shaped as in `rnn`. It takes
# any batch size and any length: each layer and direction is one `Scan` node, not an unrolled loop,
# so the file has the size of the weights. The cap, the gain, α and the filter are constants in it.
# All filters, activations, layers, directions and `batch_first` are supported, in float32 and
# float64. Over 500 steps in float32 the states agree with the layer's to a part in 100,000 of the
# largest. The file needs opset 18, which ONNX Runtime has since 1.14.

session = onnxruntime.InferenceSession("rnn.onnx")
u, hx = torch.randn(70, 5, 3), torch.zeros(2, 5, 64)
output, h_n = session.run(None, {"input": u.numpy(), "hx": hx.numpy()})
print("ONNX Runtime agrees:", bool((torch.from_numpy(output) - rnn(u, hx)[0]).abs().max() < 1e-5))

# %%
# `lengths=True` adds an input for sequences of unequal length, padded at the end. Beyond a row's
# length the output is zero; `h_n` is the state at its own last step, and a reverse scan begins
# there.

roann.export_onnx(rnn, "padded.onnx", lengths=True)
session = onnxruntime.InferenceSession("padded.onnx")
lengths = torch.tensor([70, 3, 20, 70, 1])
given = {"input": u.numpy(), "hx": hx.numpy(), "lengths": lengths.numpy()}
output, h_n = session.run(None, given)
print(
    "unequal lengths agree:",
    bool((torch.from_numpy(h_n)[:, 1] - rnn(u[:3, 1])[1]).abs().max() < 1e-5),
)

# %%
# To call a step in a loop of your own, export the step, or a `RoaRNNCell`:

roann.export_onnx(rnn, "step.onnx", step=True)  # input (B, I), hx (layers, B, N)
roann.export_onnx(roann.RoaRNNCell(3, 64, horizon=1000), "cell.onnx")  # input (B, I), hx (B, N)

# %%
# **A whole model.** `roann.export.add_rnn` adds a layer to a graph under construction, and
# `Graph.node` adds any node of ONNX around it. A model with a method `onnx_graph` is exported by
# `export_onnx` as a layer is:


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = rnn, torch.nn.Linear(64, 4)

    def forward(self, u):
        return self.out(self.rnn(u, last_only=True)[1][-1])

    def onnx_graph(self, *, lengths=False):
        graph = Graph()
        ends = graph.input("lengths", ["batch"], torch.int64) if lengths else None
        u = graph.input("input", ["time", "batch", 3])
        _, h_n = add_rnn(graph, self.rnn, u, lengths=ends)
        top = graph.node("Gather", h_n, graph.constant(1), axis=0)
        weights = [graph.constant(t) for t in (self.out.weight, self.out.bias)]
        graph.output("scores", graph.node("Gemm", top, *weights, transB=1), ["batch", 4])
        return graph


model = Classifier()
roann.export_onnx(model, "classifier.onnx")
(scores,) = onnxruntime.InferenceSession("classifier.onnx").run(None, {"input": u.numpy()})
print("the whole model agrees:", bool((torch.from_numpy(scores) - model(u)).abs().max() < 1e-5))

# %%
# **A fitted estimator** has that method: `export_onnx` writes its scaling, its treatment of missing
# values, its networks and its answers.

X = np.random.default_rng(0).normal(size=(40, 60)).cumsum(1)
trend = np.where(X[:, -1] > X[:, 0], "up", "down")
estimator = RoaClassifier(hidden_size=16, max_epochs=10, random_state=0).fit(X, trend)
roann.export_onnx(estimator, "estimator.onnx")
longer = np.random.default_rng(1).normal(size=(5, 90, 1)).cumsum(1)
session = onnxruntime.InferenceSession("estimator.onnx")
probabilities, labels = session.run(None, {"input": longer})
wanted = estimator.predict_proba(longer)
print("the estimator agrees:", bool(np.abs(probabilities - wanted).max() < 1e-5), labels[:2])

# %%
# [Estimators](../estimators.md) lists the inputs and outputs of each.
#
# The exporters of `torch.onnx` do not know the operator `roann::scan`, or record one length only;
# use `export_onnx`.
#
# ## torch.export and AOTInductor
#
# `torch.export` takes any batch size and any length. The program calls the operator `roann::scan`,
# so a process that loads it must `import roann`.

D = torch.export.Dim.DYNAMIC
rnn.requires_grad_(False)
program = torch.export.export(rnn, (u, hx), dynamic_shapes=({0: D, 1: D}, {1: D}))
torch.export.save(program, "rnn.pt2")
loaded = torch.export.load("rnn.pt2").module()
print(
    "the exported program agrees:",
    bool((loaded(u[:9], hx)[0] - rnn(u[:9], hx)[0]).abs().max() < 1e-5),
)

# %%
# AOTInductor compiles such a program ahead of time. It needs a C++ compiler, and the package,
# loaded from Python with `roann` imported, gives the same numbers. The scan is still our kernel,
# so this is worth it only for what surrounds the layer:
#
# ```py
# path = torch._inductor.aoti_compile_and_package(program, package_path="compiled.pt2")
# compiled = torch._inductor.aoti_load_package(path)
# ```
#
# A C++ process without Python cannot run either file, because the operator is registered from
# Python. Use ONNX there.
#
# ## A wheel
#
# `make wheel` writes a binary wheel to `dist/`. It holds the compiled kernel with the code for
# every instruction set (baseline, AVX2, AVX-512), which is chosen when it is loaded. The wheel is
# named after the oldest glibc it runs on, and serves every Python from 3.11 on. The target machine
# needs no compiler:
#
# ```sh
# make wheel
# pip install dist/roann-*.whl
# python -m roann.info    # kernel   native (avx512)
# ```
#
# A wheel built on a newer Linux asks for a newer glibc. For older systems, run `make wheel` on an
# older one, such as a manylinux image.
