"""Records whose every derived number is known."""

from benchmarks.cases import CASES
from benchmarks.record import Record, Row

ENVIRONMENT = {
    "cpu": "Example(R) Processor 9000",
    "cores": 2,
    "memory_bytes": 24_000_000_000,
    "machine": "x86_64",
    "system": "Linux",
    "python": "3.11.0",
    "torch": "2.13.0",
    "mkl": True,
    "roann": "0.1.0",
    "kernel": "native",
    "isa": "avx512",
    "why_not_native": None,
    "flushes_denormals": True,
    "load_before": 0.25,
}


def made_record(quick=False, **seconds):
    """psMNIST at N = 178, trained: qr takes 2 s, nn.RNN 3 s, the limit 1.5 s, unless told."""
    taken = {"roann qr": 2.0, "nn.RNN": 3.0, "nn.LSTM": 8.0, "peak": 1.0, "limit": 1.5}
    taken |= {name.replace("_", " "): s for name, s in seconds.items()}
    flops = {"roann qr": 1000, "nn.RNN": 600, "peak": 1000, "limit": 1000}
    rows = [
        Row(
            "psmnist-178",
            "train",
            name,
            s,
            784,
            [s, 1.5 * s, 1.1 * s],
            versus="nn.RNN",
            flops=flops.get(name),
            sizes={"T": 784, "B": 100, "N": 178, "I": 1},
        )
        for name, s in taken.items()
    ]
    settings = {"rounds": 3, "threads": 2, "quick": quick, "cases": list(CASES)}
    return Record(ENVIRONMENT, settings, rows, {"lab": "not installed"})
