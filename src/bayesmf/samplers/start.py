"""How a chain sets out: quietly, where its first passes will be burn-in in any case.

Noise that is right in the end is in the way at first: it is as large as what a row has learnt so
far, and precisions that are drawn at once take the small rows of the start for all there is to
learn. So for two passes a chain climbs as SGD does, with the precisions that it begins with; then
its noise comes in, a third at a time. With the other side integrated out (chains/exact_pairs.py)
its average is below SGD's errors from the first pass on.
"""

from __future__ import annotations

QUIET = 2  # passes without noise; the noise takes as many more to come in
FACTOR = 2.0  # how much longer steps are meanwhile, where their length is not given
INITIAL_PRECISION = 8.0  # what precisions are meanwhile, for ratings of variance one


def noise_share(epoch: float, epochs: float | None) -> float:
    """The share of its noise's variance that a chain has in an epoch of a run of so many.

    All of it is there after a quarter of the run at the latest, and after four passes.
    """
    quiet = QUIET if epochs is None else min(QUIET, int(epochs / 8))
    since = int(epoch + 1e-9) - quiet
    return 0.0 if since < 0 else min(1.0, (since + 1) / (quiet + 1))
