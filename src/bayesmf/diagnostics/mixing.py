"""Mixing of chains: split R-hat, effective sample size, export to ArviZ."""

import inspect
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from bayesmf.errors import InputError

_MIN_DRAWS = 4  # of a chain: split R-hat halves it, and a variance takes two
# Maximum number of values in memory: quantities are processed in blocks of 16 MB.
_BLOCK_SIZE = 1 << 21

Floats = npt.NDArray[np.float64]


def split_rhat(x: npt.ArrayLike, tolerance: float = 0.0) -> Floats:
    """Split R-hat of each quantity of draws (chains, draws, quantities): BDA3, section 11.4.

    Each chain is halved (an odd middle draw is dropped), so that a trend within a chain shows. With
    a `tolerance`, quantities count as if they had a spread of this standard deviation besides their
    own. NaN with fewer than 4 draws per chain, and for constant quantities and those that are not
    finite; infinite if each half chain is stuck at its own value.
    """
    return _by_blocks(x, partial(_split_rhat, tolerance=tolerance))


def effective_sample_size(x: npt.ArrayLike) -> Floats:
    """Effective sample size of each quantity of draws (chains, draws, quantities), as Stan has it.

    Autocorrelations of the split chains are summed over Geyer's initial monotone positive sequence.
    At most N log10(N) for N draws in all. NaN with fewer than 4 draws per chain, and for constant
    quantities and those that are not finite.
    """
    return _by_blocks(x, _split_ess)


def _by_blocks(x: npt.ArrayLike, statistic: Any) -> Floats:
    draws = np.asarray(x)
    if draws.ndim != 3:
        raise InputError(
            f"draws have shape {draws.shape}: "
            "give them with shape (n_chains, n_draws, n_quantities)"
        )
    chains, length, quantities = draws.shape
    out = np.full(quantities, np.nan)
    if chains == 0 or length < _MIN_DRAWS:
        return out
    width = max(1, _BLOCK_SIZE // (chains * length))
    for start in range(0, quantities, width):
        block = draws[:, :, start : start + width].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            out[start : start + width] = statistic(_halved(block))
    return out


def _halved(block: Floats) -> Floats:
    """Return the half chains as rows: (2 * n_chains, n_draws // 2, n_quantities)."""
    half = block.shape[1] // 2
    return np.concatenate([block[:, :half], block[:, -half:]])


def _centred(halves: Floats) -> tuple[Floats, Floats]:
    """Return each half chain less its mean, and the means.

    The first draw is taken off before: a half chain that does not move is then exactly zero.
    """
    moved = halves - halves[:, :1]
    offset = moved.mean(axis=1, keepdims=True)
    return moved - offset, (halves[:, :1] + offset)[:, 0]


def _split_rhat(halves: Floats, tolerance: float) -> Floats:
    length = halves.shape[1]
    centred, means = _centred(halves)
    within = (centred**2).sum(axis=1).mean(axis=0) / (length - 1)
    between = _centred(means[None])[0][0]
    over = (between**2).sum(axis=0) / (len(means) - 1)
    # Zero over zero is the NaN of a constant quantity, more over zero the infinity of a stuck one.
    still = (within == 0.0) & (over == 0.0)
    within += np.where(still, 0.0, tolerance**2)
    rhat: Floats = np.sqrt((length - 1) / length + over / within)
    return rhat


def _split_ess(halves: Floats) -> Floats:
    chains, length, quantities = halves.shape
    centred, means = _centred(halves)
    # Padding to twice the length keeps the cyclic convolution from wrapping round.
    size = 1 << (2 * length - 1).bit_length()
    power = np.zeros((size // 2 + 1, quantities))
    for chain in centred:
        power += np.abs(np.fft.rfft(chain, n=size, axis=0)) ** 2
    covariance = np.fft.irfft(power, n=size, axis=0)[:length] / (chains * length)
    # The FFT has rounding errors for constant chains; the plain sum is exactly zero.
    covariance[0] = (centred**2).mean(axis=(0, 1))
    within = covariance[0] * length / (length - 1)
    between = (_centred(means[None])[0][0] ** 2).sum(axis=0) / (chains - 1)
    correlation = 1.0 - (within - covariance) / (covariance[0] + between)
    correlation[0] = 1.0
    time = np.maximum(_autocorrelation_time(correlation), 1.0 / np.log10(chains * length))
    constant = (covariance[0] == 0.0) & (between == 0.0)
    return np.where(constant, np.nan, chains * length / time)


def _autocorrelation_time(correlation: Floats) -> Floats:
    """Return 1 + 2 * sum of correlations over Geyer's initial monotone positive sequence."""
    pairs = max(1, (len(correlation) - 1) // 2)
    even = correlation[0 : 2 * pairs : 2]
    sums = even + correlation[1 : 2 * pairs : 2]
    positive = np.logical_and.accumulate(~(sums < 0.0), axis=0)
    # Stan counts a sequence that stays positive to the end as rejected at its last pair.
    positive[max(1, pairs - 1) :] = False
    time: Floats = -1.0 + 2.0 * np.where(positive, np.minimum.accumulate(sums), 0.0).sum(axis=0)
    # Stan's refinement: the even half of the first rejected pair still counts once if positive.
    first = positive.sum(axis=0)
    rejected = np.take_along_axis(even, np.minimum(first, pairs - 1)[None], axis=0)[0]
    return time + np.where(first < pairs, np.maximum(rejected, 0.0), 0.0)


def to_arviz(quantities: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Draws by name, (n_chains, n_draws, ...), as an ArviZ object with a `posterior` group."""
    posterior = {name: np.asarray(draws) for name, draws in quantities.items()}
    leading = {draws.shape[:2] for draws in posterior.values()}
    if len(leading) != 1 or len(next(iter(leading))) != 2:
        raise InputError(
            "quantities do not share their chains and draws: "
            "give at least one, each with shape (n_chains, n_draws, ...)"
        )
    try:
        # Some versions emit deprecation warnings when imported.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import arviz
    except ImportError:
        raise InputError("arviz is not installed: pip install arviz") from None
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        return arviz.from_dict(posterior=posterior)
    return arviz.from_dict({"posterior": posterior})


def summarize(x: Floats) -> dict[str, float]:
    """The worst split R-hat and effective sample size of quantities, and typical ones.

    "rhat" (largest), "rhat_95" (95% quantile), "ess_min" and "ess_median".
    """
    x = x.reshape(x.shape[0], x.shape[1], -1)
    rhat, ess = split_rhat(x), effective_sample_size(x)
    return {
        "rhat": _extreme(rhat, np.nanmax),
        "rhat_95": _extreme(rhat, lambda values: np.nanquantile(values, 0.95)),
        "ess_min": _extreme(ess, np.nanmin),
        "ess_median": _extreme(ess, np.nanmedian),
    }


def _extreme(values: Floats, statistic: Any) -> float:
    return float(statistic(values)) if np.isfinite(values).any() else float("nan")
