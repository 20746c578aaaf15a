"""What a model says of what it does not know: unknown ids, learnt ratings, chains not converged."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bayesmf import (
    SGD,
    SGHMC,
    SGLD,
    SGNHT,
    BayesianMF,
    ConvergenceWarning,
    DataWarning,
    Gibbs,
    InputError,
    Ratings,
)
from bayesmf.diagnostics.convergence import (
    advice,
    enough_passes,
    headline,
    state_of,
    verdict,
    with_verdict,
)
from bayesmf.diagnostics.mixing import split_rhat
from bayesmf.run.stopping import AGREEING
from problems import planted


@pytest.fixture(scope="module")
def padded():
    """Ids with leading zeros, as text."""
    user, item, rating = planted(30, 20, 400)
    items = [f"{i:07d}" for i in item]
    return BayesianMF(2, sampler=Gibbs(epochs=8), random_state=0).fit((user, items, rating))


def test_unknown_ids_are_told_once_with_examples_and_a_hint(padded):
    users = padded.user_ids_.ids[[0, 1, 2, 3, 4]]
    items = [int(i) for i in padded.item_ids_.ids[:5]]  # what pandas makes of them
    with pytest.warns(DataWarning) as told:
        padded.predict(users, items)
    assert len(told) == 1
    sentence = str(told[0].message)
    assert "5 of 5 pairs have a user or an item that is not in the training data" in sentence
    assert f"item {', '.join(map(str, items[:3]))}, ..." in sentence
    assert "leading zeros" in sentence
    assert told[0].filename == __file__
    with pytest.warns(DataWarning, match="in the training data"):
        padded.predict_interval(users, items)


def test_who_asks_which_are_known_is_not_warned(padded):
    users, items = padded.user_ids_.ids[:3], [*padded.item_ids_.ids[:2], "nothing"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean, known = padded.predict(users, items, return_known=True)
        assert known.tolist() == [True, True, False]
        mean, std, known = padded.predict(users, items, return_std=True, return_known=True)
        assert len(mean) == len(std) == len(known) == 3
        assert padded.predict(users[0], "nothing", return_known=True)[1] is False
        assert padded.predict_table(users, items).known.tolist() == [True, True, False]


def test_being_known_is_one_question(padded):
    model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(planted(30, 20, 400))
    first = int(model.user_ids_.ids[0])
    for ids, value in (
        (model.user_ids_, first), (model.user_ids_, str(first)), (model.user_ids_, f"0{first}"),
        (model.user_ids_, "nobody"), (padded.item_ids_, "0000001"), (padded.item_ids_, "1"),
    ):  # fmt: skip
        assert (value in ids) == (ids.lookup([value])[0] >= 0)


def test_scores_count_what_is_unknown_and_what_was_learnt(padded):
    ids = padded.item_ids_.ids
    seen = padded.posterior_.seen
    known = [(padded.user_ids_[0], ids[int(j)]) for j in seen.for_user(0)[:3]]
    pairs = [*known, (9999, ids[0]), (padded.user_ids_[0], "nothing"), (9999, "nothing")]
    with pytest.warns(DataWarning) as told:
        scores = padded.evaluate(pairs, [3.0] * 6)
    assert (scores.unseen_users, scores.unseen_items, scores.unseen, scores.learnt) == (2, 2, 3, 3)
    assert any("3 of 6 ratings are in the training data" in str(one.message) for one in told)
    assert any("user 9999; item nothing" in str(one.message) for one in told)
    assert "unseen=3" in repr(scores) and "learnt=3" in repr(scores)


def test_unknown_users_are_told_when_something_is_recommended(padded):
    with pytest.warns(DataWarning, match=r"1 of 2 users is not in the training data \(user 9999\)"):
        padded.recommend_many([padded.user_ids_[0], 9999], 2)
    with pytest.warns(DataWarning, match="the user is not in the training data"):
        padded.recommend("nobody")


def test_a_validation_set_that_was_learnt_from_is_told():
    ratings = Ratings(*planted(30, 20, 400))
    with pytest.warns(DataWarning, match="of the validation ratings are training ratings"):
        BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings, validation=ratings)


# -- convergence ----------------------------------------------------------------------------------


def _told(model):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(planted(60, 40, 1500))
    return [one for one in told if issubclass(one.category, ConvergenceWarning)]


def test_a_fit_that_did_not_converge_is_warned_of_once_with_what_to_do():
    model = BayesianMF(4, sampler=SGLD(epochs=90, step_size=1e-6), random_state=0)
    (told,) = _told(model)
    found = model.report_["convergence"]
    assert found["converged"] is False and found["rhat"] > found["limit"] == 1.1
    assert str(told.message).startswith(found["verdict"].rstrip("."))
    assert "with epochs=180 in SGLD(...)." in str(told.message)
    assert told.filename == __file__


def test_a_fit_that_ran_out_of_time_is_warned_of():
    model = BayesianMF(4, max_seconds=1e-9, random_state=0)
    (told,) = _told(model)
    assert "The time limit stopped it: fit with a larger max_seconds" in str(told.message)
    assert model.report_["convergence"]["converged"] is None


def test_who_converged_or_never_could_is_left_alone():
    assert _told(BayesianMF(4, random_state=0)) == []
    sgd = BayesianMF(4, sampler=SGD(epochs=4), random_state=0)
    assert _told(sgd) == []
    assert sgd.report_["convergence"]["converged"] is None


def _found(**changes):
    found = {
        "rhat": 1.3, "limit": 1.1, "loss": 0.002, "ess": 30.0, "ended_by": "longest run",
        "target": "balanced", "rule": "Gibbs", "chains": 2, "passes": 90, "draws": 180,
        "epochs": 120.0, "rhat_noise": 1.0, "slowest": "tau",
    }  # fmt: skip
    return {**found, **changes}


@pytest.mark.parametrize(
    ("changes", "python", "shell"),
    [
        ({}, 'target="accurate"', "--target accurate"),
        ({"target": "fast"}, 'target="balanced"', "--target balanced"),
        # As many chains as before: fewer would be judged more kindly.
        (
            {"target": "accurate", "chains": 4, "epochs": 500.0},
            "sampler=Auto(n_chains=4, epochs=2000) instead of target.",
            "--chains 4 --epochs 2000 instead of --target.",
        ),
        (
            {"target": None, "rule": "SGHMC", "epochs": 70.5},
            "epochs=142 in SGHMC(...).",
            "--epochs 142.",
        ),
        # From 6 passes to 20 and more.
        (
            {"target": None, "passes": 6, "epochs": 9.0},
            "epochs=36 in Gibbs(...).",
            "--epochs 36.",
        ),
        ({"ended_by": "max_seconds"}, "a larger max_seconds", "a longer --max-seconds"),
        ({"ended_by": "callback"}, "let it run longer", "let it run longer"),
        ({"rhat": None, "loss": None}, "use longer ones", "use longer ones"),
    ],
)
def test_advice_can_be_followed_where_it_is_given(changes, python, shell):
    found = _found(**changes)
    assert python in advice(found, shell=False)
    assert shell in advice(found, shell=True)
    assert "--" not in advice(found, shell=False)
    assert advice(_found(rhat=1.0), shell=True) == ""
    assert advice(_found(rule="SGD"), shell=True) == ""


def test_one_number_in_every_form():
    for rhat, word in ((1.3, "Not converged"), (1.05, "Converged")):
        found = _found(rhat=rhat)
        assert with_verdict(found)["converged"] is (rhat < 1.1)
        for text in (verdict(found), headline(found)):
            assert text.startswith(word) and f"R-hat {rhat:.3f}" in text and "1.1" in text
    assert "unknown: 3 passes" in verdict(_found(rhat=None, loss=None, passes=3))
    # What is above the limit in a short run may be so for want of draws alone.
    assert "are too few (R-hat 1.300); 20 are needed." in verdict(_found(passes=12))
    assert with_verdict(_found(passes=12))["converged"] is None
    assert with_verdict(_found(passes=12, rhat=1.0))["converged"] is True
    # One chain has not seen what another would find.
    assert "halves of the chain" in verdict(_found(chains=1))
    assert "as far as one chain shows" in verdict(_found(chains=1, rhat=1.0))


def test_what_more_sampling_brings_is_told_where_it_is_known():
    """Of runs that have converged, with several chains."""
    assert "lower the RMSE by about 0.2%" in verdict(_found(rhat=1.0))
    for changes in ({}, {"rhat": 1.0, "loss": None}, {"rhat": 1.0, "chains": 1, "draws": 90}):
        assert "%" not in verdict(_found(**changes))


def test_noise_that_has_not_mixed_is_told():
    found = _found(rhat=1.02, rhat_noise=1.4, slowest="item_spread")
    assert with_verdict(found)["converged"] is False
    assert "predict alike (R-hat 1.020, limit 1.1), but how much items differ in their noise has " \
        "not mixed (R-hat 1.400)" in verdict(found)  # fmt: skip
    assert "R-hat 1.400" in headline(found)
    assert 'target="accurate"' in advice(found, shell=False)


def test_no_prediction_that_moved_is_told_alike_everywhere():
    found = _found(rhat=None, loss=None)
    assert state_of(found) == "still"
    assert "no prediction changed" in verdict(found) and "no prediction changed" in headline(found)


@pytest.mark.parametrize(("chains", "limit"), [(1, 1.1), (2, 1.1), (2, 1.05), (4, 1.05), (1, 1.2)])
def test_enough_passes_are_those_of_independent_draws(chains, limit):
    """With as many R-hat is below its limit in most of 40 runs; with half as many in few."""
    rng = np.random.default_rng(0)

    def share(passes):
        runs = [split_rhat(rng.standard_normal((chains, passes, 400))) for _ in range(40)]
        return np.mean([np.quantile(rhat, AGREEING, method="higher") <= limit for rhat in runs])

    enough = enough_passes(chains, limit)
    assert share(enough) > 0.7
    assert share(enough // 2) < 0.3


@pytest.mark.parametrize("rule", [Gibbs, SGLD, SGHMC, SGNHT, SGD])
def test_every_sampler_says_whether_it_converged(rule):
    """From too few passes, or from an optimiser, nobody knows; but it is said, with a number."""
    model = BayesianMF(2, sampler=rule(epochs=9), random_state=0).fit(planted(60, 40, 1500))
    found = model.report_["convergence"]
    assert found["rule"] == rule.__name__
    assert found["verdict"] == verdict(found) and found["advice"] == advice(found, shell=False)
    if rule is SGD:
        assert found["state"] == "optimiser" and found["rhat"] is None
    else:
        assert found["rhat"] > 0 and 4 <= found["passes"] <= 9
        assert found["state"] == ("converged" if found["rhat"] <= 1.1 else "too few")


def test_chains_that_do_not_move_have_not_converged():
    for n_chains, state in ((2, False), (1, None)):
        sampler = SGLD(step_size=1e-30, epochs=80, n_chains=n_chains)
        model = BayesianMF(4, sampler=sampler, random_state=0)
        assert len(_told(model)) == 1
        assert model.report_["convergence"]["converged"] is state


def test_the_verdict_does_not_depend_on_how_many_draws_are_kept():
    """It is that of the passes: a thinned run is as converged as one that kept everything."""
    found = [
        BayesianMF(4, sampler=Gibbs(epochs=240, thin=thin), max_draws=most, random_state=0)
        .fit(planted(60, 40, 1500))
        .report_["convergence"]
        for thin, most in ((None, None), (20, None), (None, 5))
    ]
    for one in found:
        assert one["loss"] > 0
        for name in ("draws", "verdict", "loss"):  # of the draws themselves
            del one[name]
    assert found[0]["converged"] and found[0] == found[1] == found[2]


@pytest.mark.parametrize("thin", [2, 3, 4])
def test_thinning_does_not_decide_when_a_run_ends(thin):
    """Over-relaxed draws alternate: every other one looks like a chain that stands still."""
    model = BayesianMF(4, sampler=Gibbs(thin=thin, n_chains=2), random_state=0)
    whole = BayesianMF(4, sampler=Gibbs(n_chains=2), random_state=0)
    ratings = planted(60, 40, 1500)
    thinned, found = model.fit(ratings).report_, whole.fit(ratings).report_
    assert thinned["epochs"] == found["epochs"]
    assert thinned["convergence"]["rhat"] == found["convergence"]["rhat"]
    assert thinned["draws"] == pytest.approx(found["draws"] / thin, abs=2)


def test_values_that_are_neither_yes_nor_no():
    for params in ({"standardize": "no"}, {"progress": "no"}):
        with pytest.raises(InputError, match="must be True or False, not 'no'"):
            BayesianMF(2, **params).fit(planted(20, 15, 100))


def test_places_that_are_none(padded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, says in (("", "is not a path"), (None, "is not a path"), (5, "is not a path"),
                       (".", "is a folder")):  # fmt: skip
        with pytest.raises(InputError, match=says):
            padded.save(path)
    for path in (None, 5, padded):
        with pytest.raises(InputError, match="is not a path"):
            BayesianMF.load(path)
    with pytest.raises(InputError, match=r"Ratings\.from_data takes"):
        Ratings.read({"user": [1]})


def test_more_factors_than_memory_can_hold():
    with pytest.raises(InputError, match=r"of 100000 needs about .* GB of memory.*fewer"):
        BayesianMF(100_000).fit(planted(60, 40, 1500))


def test_numbers_of_workers_and_engines_that_are_none():
    for params in ({"n_workers": 0}, {"n_workers": "2"}, {"engine": 3}, {"engine": dict}):
        with pytest.raises(InputError, match=next(iter(params))):
            BayesianMF(2, **params).fit(planted(20, 15, 100))


def test_progress_is_drawn_by_default_and_not_when_refused(monkeypatch):
    from bayesmf.estimator import fit as learning

    shown = []
    monkeypatch.setattr(
        learning,
        "start_run",
        lambda *_, callbacks, **__: shown.append(callbacks[-1]._show) or 1 / 0,
    )
    for model, options in (
        (BayesianMF(2), {}), (BayesianMF(2, progress=False), {}),
        (BayesianMF(2), {"progress": False}), (BayesianMF(2, progress=False), {"progress": True}),
    ):  # fmt: skip
        with pytest.raises(ZeroDivisionError):
            model.fit(planted(20, 15, 100), **options)
    assert shown == [None, False, False, True]


def test_single_pairs_get_plain_numbers(padded):
    user, item = padded.user_ids_[0], padded.item_ids_[0]
    assert isinstance(padded.predict(user, item), float)
    assert [type(x) for x in padded.predict(user, item, True, return_known=True)] == [
        float, float, bool,
    ]  # fmt: skip
    assert padded.predict(np.int64(user), [item]).shape == (1,)


def test_somebody_without_an_id_has_none_in_tables(padded):
    item, other = (str(i) for i in padded.item_ids_.ids[:2])
    found = padded.predict_table(None, [item, other], ratings={other: 3.0})
    assert [row.user for row in found] == [None, None] and found.known.all()
    assert found.to_polars()["user"].to_list() == [None, None]
    assert found.to_pandas()["user"].tolist() == [None, None]
    assert found.mean[0] == padded.predict(None, item, ratings={other: 3.0})
    assert "user 0" not in found._repr_html_() and "<td></td>" in found._repr_html_()
    with pytest.warns(DataWarning, match="pairs has a user or an item that is not") as told:
        padded.predict(None, item, ratings={})
    assert not any("user 0" in str(one.message) for one in told)
    assert not any("without its users" in str(one.message) for one in told)


def test_there_is_no_score_without_ratings(padded):
    nothing = {"user": [], "item": [], "rating": []}
    user, item = padded.user_ids_.ids[0], padded.item_ids_.ids[0]
    empty = Ratings([user], [item], [3.0]).take([])
    for score in (padded.score, padded.evaluate, padded.calibration, padded.evaluate_ranking):
        for given in (empty, nothing):
            with pytest.raises(InputError, match=r"(?i)there are no ratings( to score)?:"):
                score(given)
