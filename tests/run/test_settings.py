"""Whose noise is drawn: what "auto" stands for, and what is refused in a sentence."""

import pytest

from bayesmf import SGD, SGLD, Gibbs, InputError
from bayesmf.run.settings import resolve_noise


def test_auto_is_both_where_precisions_are_drawn():
    assert resolve_noise("auto", "sample", Gibbs()) == "both"
    for tau, sampler in ((2.0, Gibbs()), ("sample", SGD()), ("sample", SGLD(noise="paper"))):
        assert resolve_noise("auto", tau, sampler) is None


@pytest.mark.parametrize(
    ("by", "tau", "sampler", "sentence"),
    [
        ("users", "sample", Gibbs(), "noise_by 'users' is none of 'auto', 'user', 'item', 'both', "
         "None; did you mean 'user'?"),
        ("none", "sample", Gibbs(), "noise_by 'none' is none of 'auto', 'user', 'item', 'both', "
         "None"),
        ("both", 2.0, Gibbs(), "noise_by='both' draws the precisions of ratings, which tau fixes: "
         "leave one out"),
        ("user", "sample", SGD(), "noise_by='user' needs a sampler that draws precisions of "
         "ratings, which SGD does not: use another, or noise_by=None"),
        ("user", "sample", SGLD(noise="paper"), "noise_by='user' needs a sampler that draws "
         'precisions of ratings, which SGLD with noise="paper" does not: use another, or '
         "noise_by=None"),
    ],
)  # fmt: skip
def test_refusals(by, tau, sampler, sentence):
    with pytest.raises(InputError) as refused:
        resolve_noise(by, tau, sampler)
    assert str(refused.value) == sentence
