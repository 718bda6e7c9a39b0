"""How every figure looks: one palette, one type, one way to an SVG that is the same byte for byte.

Note [Looks that survive print and colour blindness]
    Okabe and Ito's palette, and never colour alone: each arm also has its own dash pattern and
    marker. Yellow is left out, it is invisible on paper. The paper's colours are kept where they
    exist: roaRNN red, LSTM green, vanilla RNN blue, the shallow network cyan.

Note [No mathtext]
    Labels come from run directories, and a stray dollar sign must not be parsed as mathematics.
    So mathtext is off, and powers of ten and Greek letters are written in plain Unicode.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from roann.lab.progress import printable

P = ParamSpec("P")

# Also in the style sheet `roann.mplstyle`.
INK, MUTED, GRID, PAPER = "#1d2126", "#6b727b", "#dde1e6", "#ffffff"
OKABE_ITO = {
    "vermillion": "#d55e00",
    "blue": "#0072b2",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
    "black": "#000000",
}

SUFFIXES = (".svg", ".png", ".pdf")  # of files that `save` can write
SUFFIXES_TEXT = ".svg, .png or .pdf"
# Metadata that is left out, so that equal data give equal bytes.
_DATED = {".png": ("Software",), ".pdf": ("CreationDate", "Creator", "Producer")}
_SHEET = Path(__file__).with_name("roann.mplstyle")
_LABEL_LENGTH = 48
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def label_text(text: str) -> str:
    """Printable text on one line, short enough for a legend, that matplotlib will not hide."""
    line = " ".join(printable(text).split()) or "(no name)"
    if len(line) > _LABEL_LENGTH:
        line = line[: _LABEL_LENGTH - 1] + "…"
    # matplotlib leaves labels that begin with an underscore out of legends.
    return "\N{HAIR SPACE}" + line if line.startswith("_") else line


def number_text(value: float, digits: int = 3) -> str:
    """A number as people write it: 0.0123, 1500, and 4.2·10⁻⁵ where zeros would be counted.

    Example:
        >>> number_text(0.1), number_text(1e-5), number_text(-4.21e-5), number_text(0.0)
        ('0.1', '10⁻⁵', '−4.21·10⁻⁵', '0')
    """
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    if not exponent:
        return {"inf": "∞", "-inf": "−∞"}.get(mantissa, "not a number")
    power = int(exponent)
    if -3 <= power <= 3 or value == 0:
        return f"{value:.{max(digits, power + 1)}g}".replace("-", "−")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    tens = "10" + str(power).translate(_SUPERSCRIPT)
    signs = {"1": tens, "-1": "−" + tens}
    return signs.get(mantissa, f"{mantissa}·{tens}".replace("-", "−"))


def duration(seconds: float) -> str:
    """A readable length of time, with non-breaking spaces.

    Example:
        >>> [duration(s).replace("\\xa0", " ") for s in (4.21, 200, 7500)]
        ['4.21 s', '3 min 20 s', '2 h 05 min']
    """
    if seconds < 59.5:
        text = f"{number_text(seconds)} s"
    elif seconds < 3599.5:
        text = "{} min {:02} s".format(*divmod(round(seconds), 60))
    else:
        text = "{} h {:02} min".format(*divmod(round(seconds / 60), 60))
    return text.replace(" ", "\xa0")


class Look(NamedTuple):
    """How one arm is drawn."""

    color: str
    dash: Any
    marker: str

    def line(self, points: int) -> dict[str, Any]:
        """Options of a line of so many points, with a marker at a few of them."""
        return {
            "color": self.color,
            "linestyle": self.dash,
            "marker": self.marker,
            "markersize": 3.8,
            "markevery": max(1, points // 8),
        }


_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)))
_MARKERS = "os^DvPX"
_MOST_PANELS = 5  # in a row
_MOST_INSIDE = 6  # lines of a legend within the axes
_HALF_LINE = 26  # characters of a label that leave room for a second column
_LINE = 0.2  # inches per line of a legend
_LETTERS = 10  # of a title per inch, with room for the axis labels
_CYCLE = list(OKABE_ITO)
_RESERVED = {
    "roa-rnn": "vermillion",
    "roa-fnn": "vermillion",
    "vanilla-rnn": "blue",
    "lstm": "green",
    "eye-rnn": "purple",
    "gru": "orange",
    # The filters of an ablation: the paper's own, and the identity that eye-rnn uses.
    "qr": "vermillion",
    "identity": "purple",
    "permutation": "blue",
    "haar": "green",
    "cycle": "orange",
}


@contextmanager
def _house_style() -> Iterator[None]:
    with mpl.rc_context(fname=_SHEET), warnings.catch_warnings():
        # The viewer's fonts draw the text of an SVG, so the layout font may lack characters.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        yield


def drawn(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run a figure function under the house style, whatever the user's own settings are."""

    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with _house_style():
            return draw(*args, **kwargs)

    return styled


def alone(draw: Callable[Concatenate[Axes, P], None]) -> Callable[P, Figure]:
    """A function that draws into axes as one that returns a figure with these axes alone."""

    @wraps(draw)
    def figure(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with _house_style():
            made, axes = one_axes()
            draw(axes, *args, **kwargs)
            return made

    return figure


def one_axes(width: float = 4.8, height: float = 3.2) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def panels(
    titles: Collection[str], width: float = 3.4, height: float = 3.0
) -> tuple[Figure, list[Axes]]:
    """A row of axes, each `width` by `height` inches; of many, several rows about equally long.

    A title has as many lines as keep it off its neighbour's.
    """
    rows = max(1, math.ceil(len(titles) / _MOST_PANELS))
    columns = max(1, math.ceil(len(titles) / rows))
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in grid[len(titles) :]:
        empty.remove()
    for axes, title in zip(grid, titles, strict=False):
        axes.set_title(textwrap.fill(label_text(title), int(_LETTERS * width)))
    return figure, grid[: len(titles)]


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """A distinct look for every label; a label with a known model's or filter's name keeps its own.

    Colours come first, then dash patterns: 7 arms differ in colour, 28 in colour and dashes.
    """
    result: dict[str, Look] = {}
    taken: set[tuple[str, int]] = set()
    wanted = list(dict.fromkeys(labels))
    # Reserved colours are given out first, so that no newcomer takes the place of a known model.
    for label in sorted(wanted, key=lambda name: _reserved(name) is None):
        colors = [color for color in (_reserved(label), *_CYCLE) if color]
        color, turn = next(
            (c, t) for t in range(len(wanted)) for c in colors if (c, t) not in taken
        )
        taken.add((color, turn))
        place = _CYCLE.index(color)
        result[label] = Look(
            OKABE_ITO[color],
            _DASHES[(place + turn) % len(_DASHES)] if place or turn else "-",
            _MARKERS[(place + 3 * turn) % len(_MARKERS)],
        )
    return {label: result[label] for label in wanted}


def _reserved(label: str) -> str | None:
    """The colour of the last known word: "roa-rnn, identity" is drawn as the identity."""
    known = [_RESERVED[word] for word in re.split(r"[\s,=()]+", label) if word in _RESERVED]
    return known[-1] if known else None


def legend(axes: Axes) -> None:
    """A legend of everything labelled, if there is anything; a long one goes below the axes."""
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > _MOST_INSIDE:
        legend_below(axes)
    elif handles:
        axes.legend(handles, [label_text(text) for text in labels])


def legend_below(axes: Axes) -> None:
    """A legend under the only axes of a figure, which grows to make room; each label once."""
    found = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure = axes.get_figure()
    if not found or not isinstance(figure, Figure):
        return
    labels = [label_text(text) for text in found]
    columns = 2 if max(map(len, labels)) < _HALF_LINE else 1  # long names would be cut
    lines = math.ceil(len(labels) / columns)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _LINE * max(0, lines - 4))
    figure.legend(
        list(found.values()), labels, loc="outside lower center", ncols=columns, frameon=False
    )


def tick(value: float, _position: int | None = None) -> str:
    """The label of a tick of a log axis."""
    return number_text(value, digits=6) if math.isfinite(value) else ""


def log_axis(axes: Axes, which: str) -> None:
    """Make axis `which` ("x" or "y") logarithmic, with plain Unicode labels."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_formatter(FuncFormatter(tick))
    axis.set_minor_formatter(NullFormatter())
    low, high = sorted(axes.get_xlim() if which == "x" else axes.get_ylim())
    # On less than a decade and a half, powers of ten alone would leave one label or none.
    if low > 0 and high < 3 * low:
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(NullLocator())
    elif low > 0 and high < 30 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


def whole_steps(axes: Axes) -> None:
    """At most seven ticks, at whole numbers, on an axis of steps."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, steps=[1, 2, 5, 10]))


_PATHS, _FINER = re.compile(rb'(?<= d=")[^"]+'), re.compile(rb"(\.\d\d)\d+")


def svg_bytes(figure: Figure) -> bytes:
    """The figure as an SVG document: no date, fixed identifiers, equal bytes for equal data."""
    nothing: Any = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    buffer = io.BytesIO()
    with _house_style():
        figure.savefig(buffer, format="svg", metadata=nothing)
    # A hundredth of a point cannot be seen, and longer numbers are a seventh of a report page.
    return _PATHS.sub(lambda d: _FINER.sub(rb"\1", d[0]), buffer.getvalue())


def save(figure: Figure, path: Path) -> Path:
    """Write the figure to `path`, as SVG, PNG or PDF by its suffix."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"path must end in {SUFFIXES_TEXT}, got {path.name!r}.")
    if path.suffix == ".svg":
        path.write_bytes(svg_bytes(figure))
        return path
    nothing: Any = dict.fromkeys(_DATED[path.suffix])
    with _house_style():
        figure.savefig(path, format=path.suffix[1:], dpi=160, metadata=nothing)
    return path
