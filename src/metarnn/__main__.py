"""`python -m metarnn`, for when the `metarnn` script is not on the path."""

import sys

from metarnn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
