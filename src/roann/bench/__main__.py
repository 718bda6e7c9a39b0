"""`python -m roann.bench`."""

import sys

from roann.bench import main

if __name__ == "__main__":
    sys.exit(main())
