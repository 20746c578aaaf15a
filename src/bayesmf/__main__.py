"""`python -m bayesmf` is the command `bayesmf`."""

import sys

from bayesmf.cli import main

if __name__ == "__main__":
    sys.exit(main())
