"""Waiting for what another thread or process does."""

import time


def until(there, seconds=30.0):
    """Wait for something to be drawn, which a busy machine may take long for."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)
