"""What runs on the machines of a Ray cluster: one run, in a process of its own.

The task tells the driver what happens, item by item. Where the machine does not see the driver's
directory, it works in a temporary one that begins with what the driver has, and its files go
home in pieces.
"""

from __future__ import annotations

import platform
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import ray

from roann import __version__
from roann.lab.engines.base import Home, sees
from roann.lab.engines.parcels import Names, Piece, Receiver, Sender
from roann.lab.engines.process import persist

LOOK_SECONDS = 1.0  # between questions whether to stop
SEND_SECONDS = 5.0  # between looks for new files


class Told(NamedTuple):
    """An item from a task: "began", "elsewhere", "version" or "ended", and what there is to say."""

    what: str
    words: str = ""
    more: str = ""


class _Ear(threading.Thread):
    """Asks the bell now and then. No bell is a reason to stop, too.

    On a thread of its own: Ray gives the cores of a task away while its main thread waits for Ray.
    """

    def __init__(self, bell: Any, run: str) -> None:
        super().__init__(daemon=True)
        self._bell, self._run = bell, run
        self._done = threading.Event()
        self.heard = False

    def run(self) -> None:
        while not self._done.wait(LOOK_SECONDS) and not self.heard:
            try:
                self.heard = bool(ray.get(self._bell.rings.remote(self._run)))
            except ray.exceptions.RayError:  # the driver has died
                self.heard = True

    def __enter__(self) -> _Ear:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()


def _unpack(parcel: list[Any], folder: Path) -> None:
    """Put what the driver has into a new directory; not on the main thread, see above."""
    receiver = Receiver(folder)
    with ThreadPoolExecutor(1) as aside:
        for item in parcel:
            receiver.take(aside.submit(ray.get, item).result())


def attend(
    run: str, home: Home, version: str, parcel: list[Any] | None, bell: Any
) -> Iterator[Told | Piece | Names]:
    """The task: bring a run to its end. Without a parcel the directory is shared."""
    if version != __version__:
        yield Told("version", platform.node(), __version__)
        return
    if parcel is None:
        if not sees(home):
            yield Told("elsewhere", platform.node())
            return
        yield Told("began", platform.node())
        with _Ear(bell, run) as ear:
            yield from _execute(Path(run), ear, None)
        return
    with _Ear(bell, run) as ear, tempfile.TemporaryDirectory(prefix="roann-") as place:
        folder = Path(place) / Path(run).name
        folder.mkdir()
        _unpack(parcel, folder)
        yield Told("began", platform.node())
        yield from _execute(folder, ear, Sender(folder))


def _execute(folder: Path, ear: _Ear, sender: Sender | None) -> Iterator[Told | Piece | Names]:
    for process in persist(folder):
        send = time.monotonic() + SEND_SECONDS
        try:
            while process.alive():
                wait([process.sentinel], timeout=0.1)
                if ear.heard:
                    process.ask_to_stop()
                if sender is not None and time.monotonic() >= send:
                    yield from sender.pack()
                    send = time.monotonic() + SEND_SECONDS
        finally:
            if process.alive():  # the task was taken back
                process.ask_to_stop()
    if sender is not None:
        yield from sender.pack()
    yield Told("ended", process.status(), process.words())
