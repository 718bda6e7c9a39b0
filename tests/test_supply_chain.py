"""What is installed: ranges for users, pins for tests, hashes for CI."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = (ROOT / "constraints.txt").read_text().split()
LOCK = (ROOT / "requirements-ci.txt").read_text()


def test_every_pin_has_hashes_and_nothing_else_is_installed():
    blocks = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", LOCK).strip())
    pins = [block.split()[0] for block in blocks]
    assert pins == PINS, "run `make lock`"
    for block in blocks:
        _, *hashes = block.replace("\\", "").split()
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", h) for h in hashes)


def test_no_index_is_named():
    for text in (LOCK, "\n".join(PINS), (ROOT / "Makefile").read_text()):
        assert not re.search(r"://|index-url|trusted-host", text)
    assert "--find-links" not in LOCK


def test_the_build_is_pinned():
    (setuptools,) = (pin for pin in PINS if pin.startswith("setuptools=="))
    assert PROJECT["build-system"]["requires"] == [setuptools]


def test_users_get_ranges():
    """A pin there would keep roann from being installed beside other packages."""
    groups = PROJECT["project"]["optional-dependencies"].values()
    wanted = [PROJECT["project"]["dependencies"], *groups]
    assert not [r for group in wanted for r in group if re.search(r"==|<|~=", r)]


def test_numpy_is_one_that_numba_has():
    """aeon asks for a numba that has no numpy from 2.4 on."""
    (numpy,) = (pin for pin in PINS if pin.startswith("numpy=="))
    assert tuple(map(int, numpy.removeprefix("numpy==").split("."))) < (2, 4)
