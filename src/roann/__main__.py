"""The command `roann` as `python -m roann`, which is also what torchrun starts."""

from __future__ import annotations

import sys

from roann.lab.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
