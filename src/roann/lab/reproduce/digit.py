"""The paper's Fig. 4: a digit, its pixels in reading order, and the same pixels permuted."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from roann.lab.checkpoint import replace_file
from roann.lab.data import DataError, load_mnist
from roann.lab.figures import digit_sequence
from roann.lab.report import Exhibit
from roann.lab.reproduce.plan import Scale
from roann.lab.tasks.mnist import PERMUTATIONS

FILE = "digit.json"
_log = logging.getLogger(__name__)


def main(scale: Scale, folder: Path) -> None:
    """Write the first training image and the paper's order of pixels to a record."""
    try:
        images = load_mnist().train_images
    except DataError as error:
        _log.warning("Fig. 4 is left out: %s", error)
        return
    folder.mkdir(parents=True, exist_ok=True)
    record = {"image": images[0].tolist(), "permutation": PERMUTATIONS["nengo"]()}
    replace_file(folder / FILE, (json.dumps(record, separators=(",", ":")) + "\n").encode())


def digit_exhibits(path: Path) -> list[Exhibit]:
    """The picture from its record; none without."""
    if not path.is_file():
        return []
    record = json.loads(path.read_bytes())
    pixels = [[value / 255 for value in row] for row in record["image"]]
    return [
        Exhibit(
            "A digit as a sequence (Fig. 4)",
            "The first training digit, its 784 pixels in reading order, and in the fixed random "
            "order in which the network sees them, one at a time.",
            digit_sequence(pixels, record["permutation"]),
            wide=True,
        )
    ]
