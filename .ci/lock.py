"""Write requirements-ci.txt: every pin of constraints.txt, with the hashes of its wheels.

`make lock` runs this after a change of constraints.txt. The hashes are those that pip's index
lists for Linux and macOS, and those of the files that pip takes on this machine: a CPU build of
torch from elsewhere is another file under the same version.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from pip._internal.models.index import PyPI

ROOT = Path(__file__).parent.parent
PINS, LOCK = ROOT / "constraints.txt", ROOT / "requirements-ci.txt"
LINK = re.compile(r'<a[^>]*href="[^"#]*#sha256=([0-9a-f]{64})"[^>]*>\s*([^<\s]+)\s*</a>')
ELSEWHERE = re.compile(
    r"-(pp\d+|cp310|cp3\d+-cp3\d+t)-|win32|win_|musllinux|ppc64le|s390x|riscv64|i686|armv7l"
)
HEAD = "# Written by `make lock` from constraints.txt: what CI installs, with its hashes.\n"


def normal(name: str) -> str:
    """A project's name as indexes and file names spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def listed(name: str, version: str) -> set[str]:
    """The hashes of a version's wheels in pip's index."""
    index = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")
    asked = urllib.request.Request(f"{index}/{normal(name)}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(asked, timeout=60) as page:
        links = LINK.findall(page.read().decode())
    wheels = [(digest, file) for digest, file in links if file.endswith(".whl")]
    return {
        digest
        for digest, file in wheels
        if file.split("-")[1] == version and not ELSEWHERE.search(file)
    }


def taken() -> dict[str, set[str]]:
    """The hash of the file that pip takes here, by normal name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
        command += ["--ignore-installed", "--only-binary", ":all:", "--report", str(report)]
        subprocess.run([*command, "-r", str(PINS)], check=True)
        items = json.loads(report.read_text())["install"]
    hashes = {normal(i["metadata"]["name"]): i["download_info"]["archive_info"] for i in items}
    return {name: {info["hashes"]["sha256"]} for name, info in hashes.items()}


def main() -> None:
    """Write the lock."""
    here, lines = taken(), [HEAD]
    for pin in PINS.read_text().split():
        name, version = pin.split("==")
        digests = sorted(listed(name, version) | here[normal(name)])
        lines.append(" \\\n".join([pin, *(f"    --hash=sha256:{d}" for d in digests)]) + "\n")
    LOCK.write_text("".join(lines))


if __name__ == "__main__":
    main()
