"""Sound as series: WAV files, frames of samples, log-mel frames."""

from __future__ import annotations

import io
import math
import wave
from typing import NamedTuple

import torch
from torch import Tensor

FLOOR = 1e-6  # the power below which all is silence


class Sound(NamedTuple):
    """Samples (T,) in [-1, 1), and how many there are in a second."""

    samples: Tensor
    rate: int


def read_wav(data: bytes) -> Sound:
    """The sound of a WAV file with one channel of 16 bits; anything else is a ValueError."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            raw = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"not a WAV file: {error or 'it ends too early'}") from None
    if (channels, width) != (1, 2):
        raise ValueError(f"expected one channel of 16 bits, got {channels} of {8 * width}")
    if len(raw) < 2:
        raise ValueError("expected at least one sample, got none")
    values = torch.frombuffer(bytearray(raw[: len(raw) // 2 * 2]), dtype=torch.int16)
    return Sound(values.float() / 2**15, rate)


def frames(sound: Sound, seconds: float = 0.01) -> Tensor:
    """The samples in frames that follow each other, (T, samples of a frame); the last padded."""
    size = max(1, round(seconds * sound.rate))
    padded = torch.nn.functional.pad(sound.samples, (0, -len(sound.samples) % size))
    return padded.reshape(-1, size)


def mel_filters(bands: int, bins: int, rate: int) -> Tensor:
    """Triangles evenly spaced in mel = 2595 log10(1 + f / 700), (bins, bands)."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2, dtype=torch.float64) / 2595) - 1)
    f = torch.linspace(0, rate / 2, bins, dtype=torch.float64).unsqueeze(1)
    rise = (f - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - f) / (edges[2:] - edges[1:-1])
    return torch.minimum(rise, fall).clamp(min=0).float()


def log_mel(sound: Sound, bands: int = 40, seconds: float = 0.01, window: float = 0.025) -> Tensor:
    """Log power in mel bands, a frame every `seconds` from a Hann window, (T, bands)."""
    hop, size = round(seconds * sound.rate), round(window * sound.rate)
    n_fft = 2 ** math.ceil(math.log2(size))
    spectrum = torch.stft(
        sound.samples, n_fft, hop, size, torch.hann_window(size), pad_mode="constant",
        return_complex=True,
    )  # fmt: skip
    power = spectrum.abs().square().T  # (T, bins)
    return torch.log(power @ mel_filters(bands, power.shape[1], sound.rate) + FLOOR)
