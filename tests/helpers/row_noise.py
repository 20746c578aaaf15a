"""Draws of precisions and their law from errors at hand, as workers and server make them."""

from dataclasses import replace

import numpy as np

from bayesmf.kernels.exact import total
from bayesmf.kernels.keys import StreamCounter, stream_word
from bayesmf.model.noise import LawSlice, evidence_of, half_errors


def drawn(own, counts, sse, rng):
    """The law given the errors, and the precisions given both."""
    counts = np.asarray(counts)
    step = LawSlice(own.shape, own.rate, own.mean_one, len(counts), rng)
    errors = half_errors(counts, sse, own.mean_one)
    while not step.choose(total([evidence_of(step.laws, counts, errors)])):
        pass
    own = replace(own, shape=step.found[0], rate=step.found[1])
    counter = StreamCounter(0, stream_word(1, 0), rng.integers(0, 2**32, 2, np.uint32))
    numbers = np.arange(len(counts), dtype=np.int32)
    return replace(own, value=own.draw_values(counts, sse, numbers, counter))
