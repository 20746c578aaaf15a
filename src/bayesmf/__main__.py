"""The command `bayesmf`, also as `python -m bayesmf`."""

import sys


def run() -> int:
    """Run the command line."""
    try:
        from bayesmf.cli import main
    except KeyboardInterrupt:  # before anything was begun
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(run())
