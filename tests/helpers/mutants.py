"""Wrong samplers, which tests of samplers must catch."""

from __future__ import annotations

import numpy as np


def with_noise(draw_rows, factor):
    """draw_rows whose fresh noise has `factor` times its standard deviation; 1 changes nothing.

    `factor` may be a function of the over-relaxation.
    """

    def mutant(out, means, stripe, regressors, prior, sweep, joint):
        old = out.copy()
        draw_rows(out, means, stripe, regressors, prior, sweep, joint)
        expected = means - sweep.relax * (old - means)
        size = factor(sweep.relax) if callable(factor) else factor
        out[:] = expected + size * (out - expected)
        return _squared_errors(out, stripe, regressors, sweep.n_factors)

    return mutant


def _squared_errors(rows, stripe, regressors, n_factors):
    value = stripe.levels[stripe.value] if stripe.value.dtype == np.uint8 else stripe.value
    x = rows[np.repeat(np.arange(len(rows)), np.diff(stripe.starts))]
    y = regressors.features.reshape(len(regressors.bias), -1)[stripe.other]
    errors = value - np.einsum("nd,nd->n", x[:, :n_factors], y[:, :n_factors])
    if rows.shape[1] > n_factors:
        errors -= x[:, n_factors] + regressors.bias[stripe.other]
    return float(np.vdot(errors, errors))
