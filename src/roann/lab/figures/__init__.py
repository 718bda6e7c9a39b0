"""Records to figures: pure functions that return a matplotlib `Figure`, and no torch.

Nothing here touches pyplot or a window. `save` and `inline_svg` write the same bytes for the same
data, so a figure can be rebuilt from its records and compared.
"""

from roann.lab.figures.certificate import certificate_spectrum
from roann.lab.figures.style import save

__all__ = ["certificate_spectrum", "save"]
