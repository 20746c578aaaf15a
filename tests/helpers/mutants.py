"""Wrong samplers, which tests of samplers must catch."""

from __future__ import annotations

import numpy as np

import naive
from bayesmf.model.scale import slice_sample


def with_noise(draw_rows, factor):
    """draw_rows whose fresh noise has `factor` times its standard deviation; 1 changes nothing.

    `factor` may be a function of the over-relaxation.
    """

    def mutant(out, means, stripe, regressors, prior, sweep, *how):
        old = out.copy()
        draw_rows(out, means, stripe, regressors, prior, sweep, *how)
        expected = means - sweep.relax * (old - means)
        size = factor(sweep.relax) if callable(factor) else factor
        out[:] = expected + size * (out - expected)
        return told_of(out, stripe, regressors, sweep.n_factors)

    return mutant


def with_density(added, only=None, width=None):
    """slice_sample of a log density to which `added` is added.

    `only` from a given start, or only with a first `width`, which tells slices of a module apart.
    """

    def mutant(log_density, start, step, rng, most=None):
        wrong = only in (None, start) and width in (None, step)
        return slice_sample(
            (lambda x: log_density(x) + added(x)) if wrong else log_density, start, step, rng, most
        )

    return mutant


def told_of(rows, stripe, regressors, n_factors):
    """What `draw_rows` tells of a stripe's ratings, at given rows."""
    value = stripe.levels[stripe.value] if stripe.value.dtype == np.uint8 else stripe.value
    features = regressors.features.reshape(len(regressors.bias), -1)[:, :n_factors]
    partners = np.column_stack([features, regressors.bias])[:, : rows.shape[1]]
    told = []
    for k, row in enumerate(rows.astype(float)):
        own = stripe.other[stripe.starts[k] : stripe.starts[k + 1]]
        values = value[stripe.starts[k] : stripe.starts[k + 1]]
        weight = regressors.root[own].astype(float) ** 2
        told.append(
            naive.row_sums(
                *naive.regression(partners[own], values, n_factors, weight), row, n_factors
            )
        )
    return np.array(told)
