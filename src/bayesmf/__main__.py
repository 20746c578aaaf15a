"""The command `bayesmf`, also as `python -m bayesmf`."""

import signal
import sys


def run() -> int:
    """Run the command line; Ctrl-C while it is still being imported ends it without a word."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # and not ignored, as the parent may have asked for
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bayesmf.cli import main

    signal.signal(signal.SIGINT, before)
    return main()


if __name__ == "__main__":
    sys.exit(run())
