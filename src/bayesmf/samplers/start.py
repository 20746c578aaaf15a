"""How a chain sets out: quietly, where its first passes will be burn-in in any case.

Noise that is right in the end is in the way at first: it is as large as what a row has learnt so
far, and precisions that are drawn at once take the small rows of the start for all there is to
learn. So for two passes a chain climbs as SGD does, with the precisions that it begins with; then
its noise comes in, a third at a time. With the other side integrated out (chains/exact_pairs.py)
its average is below SGD's errors from the first pass on.

Noise of single rows comes last: rows that are badly fitted would count for noisy ones, be listened
to less, and stay so.
"""

from __future__ import annotations

from bayesmf.samplers.burn_in import BurnIn, FixedBurnIn

QUIET = 2  # passes without noise; the noise takes as many more to come in
FACTOR = 2.0  # how much longer steps are meanwhile, where their length is not given
ONE_NOISE, ONE_NOISE_PASSES = 1 / 6, 10  # of the run, or passes where its length is not given
INITIAL_PRECISION = 8.0  # what precisions are meanwhile, for ratings of variance one


def noise_share(epoch: float, epochs: float | None) -> float:
    """The share of its noise's variance that a chain has in an epoch of a run of so many.

    All of it is there after a quarter of the run at the latest, and after four passes.
    """
    quiet = QUIET if epochs is None else min(QUIET, int(epochs / 8))
    since = int(epoch + 1e-9) - quiet
    return 0.0 if since < 0 else min(1.0, (since + 1) / (quiet + 1))


def row_noise_from(epochs: float | None, burn_in: BurnIn | None) -> float:
    """The epoch from which on rows have noise of their own; `burn_in` is None where it grows.

    Not all of burn-in is waited for: what is kept must come from chains that have settled.
    """
    passes = ONE_NOISE_PASSES if epochs is None else ONE_NOISE * epochs
    return min(passes, 2 / 3 * burn_in.epochs) if isinstance(burn_in, FixedBurnIn) else passes
