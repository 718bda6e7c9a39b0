"""Labels and numbers as text for figures."""

from __future__ import annotations

from roann.lab.progress import printable

_LABEL_LENGTH = 48


def label_text(text: str) -> str:
    """Printable text on one line, short enough for a legend, that matplotlib will not hide.

    Example:
        >>> label_text("a\\nb\\x1b"), label_text("_x").strip()
        ('a b', '_x')
    """
    line = " ".join(printable(text).split()) or "(no name)"
    if len(line) > _LABEL_LENGTH:
        line = line[: _LABEL_LENGTH - 1] + "…"
    # matplotlib leaves labels that begin with an underscore out of legends.
    return "\N{HAIR SPACE}" + line if line.startswith("_") else line


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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
