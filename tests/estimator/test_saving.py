"""What a model file holds, and what can be left out of it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import bayesmf.model.mapped
from bayesmf import BayesianMF, DataWarning, Gibbs, InputError, Ratings, Synthetic
from forged import drop, edit_meta, file_contents

# Ids that no number or text of a folder is by chance.
FIRST_ID = 7_700_000_001
PAIRS = [FIRST_ID, FIRST_ID + 3, 5], [4, 9, 9]


def stars(names=False):
    made = Synthetic(50, 30, 900, random_state=2, stars=True).ratings()
    users = made.users + FIRST_ID
    given = [f"person-{user}" for user in users.tolist()] if names else users
    return Ratings(given, made.items, made.rating)


def fit(data, **how):
    sampler = Gibbs(epochs=16, burn_in=4, n_chains=2)
    return BayesianMF(3, **{"sampler": sampler, "random_state": 0, **how}).fit(data)


@pytest.fixture(scope="module")
def fitted():
    return fit(stars())


@pytest.fixture(scope="module")
def both():
    return fit(stars(), keep="both")


def names(path):
    return set(file_contents(path)[0])


DRAWS = {"chain", "tau", "user_mu", "user_lambda", "item_mu", "item_lambda"}
NOISE = {"user_tau", "item_tau", "user_tau_prior", "item_tau_prior"}
ROWS = {"items": {"items", "item_means"}, "users": {"users", "user_means"}}
ROWS["both"] = ROWS["items"] | ROWS["users"]
RATINGS = {"seen_starts", "seen_items", "seen_values", "levels"}
IDS = {"user_id_ids", "item_id_ids"}


@pytest.mark.parametrize("keep", ROWS)
def test_what_a_file_holds(tmp_path, keep):
    model = fit(stars(), keep=keep)
    model.save(tmp_path / "model")
    assert names(tmp_path / "model") == DRAWS | NOISE | ROWS[keep] | RATINGS | IDS | {"history"}
    loaded = BayesianMF.load(tmp_path / "model")
    assert loaded.keep == keep and loaded.posterior_.ratings.has_users
    for one, other in zip(
        loaded.posterior_.ratings.triples(), model.posterior_.ratings.triples(), strict=True
    ):
        assert np.array_equal(one, other)
    with pytest.warns(DataWarning):
        told = loaded.predict(*PAIRS, return_std=True)
    with pytest.warns(DataWarning):
        assert np.array_equal(told, model.predict(*PAIRS, return_std=True))
    assert loaded.recommend(FIRST_ID + 2) == model.recommend(FIRST_ID + 2)
    # Five bytes a rating, all of them mapped.
    lists = loaded.posterior_.ratings.by_user
    assert lists.other.itemsize + lists.value.itemsize == 5
    assert all(isinstance(part, np.memmap) for part in (lists.starts, lists.other, lists.value))


def test_ratings_of_many_values_are_held_as_they_are(tmp_path):
    model = fit(Synthetic(50, 30, 900, random_state=2).ratings())
    model.save(tmp_path / "model")
    assert names(tmp_path / "model") >= {"seen_values"} and "levels" not in names(
        tmp_path / "model"
    )
    loaded = BayesianMF.load(tmp_path / "model")
    assert loaded.posterior_.ratings.by_user.value.dtype == np.float32
    assert loaded.predict(3, 4) == model.predict(3, 4)


# -- without users ------------------------------------------------------------------------------


def traces_of(model, data):
    """Bytes that tell of a user: ids, and what they rated, in every way it may be written."""
    ids = model.user_ids_
    for user in ids:
        yield str(user).encode()
        if ids.kind == "int":
            yield np.int64(user).tobytes()
    posterior = model.posterior_
    lists, levels = posterior.ratings.by_user, posterior.ratings.levels
    for k in range(len(ids)):
        own = slice(lists.starts[k], lists.starts[k + 1])
        if own.stop - own.start < 12:  # too few to be nobody else's by chance
            continue
        items, code = lists.other[own], lists.value[own]
        for numbers in (items, model.item_ids_.ids[items]):
            yield from (numbers.astype(kind).tobytes() for kind in ("i4", "i8"))
        rating = levels[code] * posterior.scale + posterior.center
        yield code.tobytes()
        for numbers in (levels[code], rating, rating.round(1)):
            yield from (numbers.astype(kind).tobytes() for kind in ("f4", "f8"))
    yield from (array.tobytes() for array in (lists.starts, np.diff(lists.starts), levels))


def found_in(path, traces):
    raw = Path(path).read_bytes()
    return [trace for trace in traces if trace in raw]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("keep", ["items", "both"])
def test_nothing_about_any_user_is_in_the_file(tmp_path, named, keep):
    data = stars(named)
    model = fit(data, keep=keep)
    traces = list(traces_of(model, data))
    model.save(tmp_path / "with")
    assert len(found_in(tmp_path / "with", traces)) > len(model.user_ids_)  # the search does search
    model.save(tmp_path / "without", users=False)
    assert found_in(tmp_path / "without", traces) == []
    assert names(tmp_path / "without") == DRAWS | (NOISE - {"user_tau"}) | ROWS["items"] | {
        "history",
        "item_id_ids",
        "item_counts",
    }
    # Rows of users would be as many as there are users.
    loaded = BayesianMF.load(tmp_path / "without")
    for name, array in loaded.posterior_.draws.arrays().items():
        assert len(model.user_ids_) not in array.shape, name


def test_a_model_without_users_answers(fitted, both, tmp_path):
    fitted.save(tmp_path / "model", users=False)
    loaded = BayesianMF.load(tmp_path / "model")
    assert len(loaded.user_ids_) == 0 and loaded.item_ids_ == fitted.item_ids_
    counts = {name: fitted.report_[name] for name in ("users", "items", "ratings", "draws")}
    assert {name: loaded.report_[name] for name in counts} == counts
    # To it everybody is somebody new.
    with pytest.warns(DataWarning, match="user 7700000002"):
        mean, std = loaded.predict(FIRST_ID + 1, 4, return_std=True)
    with pytest.warns(DataWarning):
        assert (mean, std) == pytest.approx(fitted.predict(10**12, 4, return_std=True), rel=1e-6)
    with pytest.warns(DataWarning, match="in general"):
        best = loaded.recommend(FIRST_ID, n=5)
    with pytest.warns(DataWarning):
        assert [x.item for x in best] == [x.item for x in fitted.recommend(10**12, n=5)]
    nobody = loaded.recommend_many(n=3)
    assert nobody.items.shape == (0, 3) and len(nobody) == 0
    assert nobody.to_polars().columns == ["user", "rank", "item", "mean", "std"]
    for policy in ("ucb", "thompson"):
        with pytest.warns(DataWarning):
            some = loaded.recommend_many([1, 2, 3, 4], n=3, policy=policy, random_state=0)
        assert some.items.shape == (4, 3)
    both.save(tmp_path / "both", users=False)
    with pytest.warns(DataWarning):
        assert np.isfinite(BayesianMF.load(tmp_path / "both").predict(1, 4))


@pytest.mark.filterwarnings("ignore::bayesmf.DataWarning")
def test_a_model_without_users_is_judged(fitted, tmp_path):
    fitted.save(tmp_path / "model", users=False)
    loaded, data = BayesianMF.load(tmp_path / "model"), stars()
    scores = loaded.evaluate(data)
    assert scores.unseen_users == scores.n == len(data) and scores.learnt == 0
    assert loaded.score(data) < fitted.score(data)
    rows = np.arange(len(loaded.item_ids_))
    assert np.array_equal(
        loaded.posterior_.seen.item_counts(rows), fitted.posterior_.seen.item_counts(rows)
    )
    groups = [
        [g.n for g in m.calibration(data).groups if g.side == "item"] for m in (loaded, fitted)
    ]
    assert groups[0] == groups[1]
    assert loaded.diagnose()["tau"] == fitted.diagnose()["tau"]
    loaded.save(tmp_path / "again")
    assert names(tmp_path / "again") == names(tmp_path / "model")
    with pytest.raises(
        InputError, match=r"partial_fit needs the ratings .* saved without its users"
    ):
        loaded.posterior_.need_ratings("partial_fit")


def test_what_a_model_without_users_does_not_know_is_said_as_it_is(fitted, tmp_path):
    """They may have been learnt from: nobody can tell."""
    fitted.save(tmp_path / "model", users=False)
    loaded, learnt = BayesianMF.load(tmp_path / "model"), fitted.user_ids_.ids[:2]
    some = Ratings(learnt, [4, 9], [3.0, 4.0])
    sent = {"ratings": ([5], [4], [3.0])}
    for ask in (
        lambda model: model.predict(learnt, [4, 9]),
        lambda model: model.predict(some),
        lambda model: model.predict(learnt, [4, 9], **sent),
        lambda model: model.recommend(learnt[0]),
        lambda model: model.recommend_many(learnt),
        lambda model: model.evaluate(some),
        lambda model: model.score(some),
    ):
        with pytest.warns(DataWarning) as told:
            ask(loaded)
        (sentence,) = {str(one.message) for one in told}
        assert "saved without its users" in sentence and f"(user {learnt[0]}" in sentence
        assert "users was" not in sentence and "users were" not in sentence
    # Of one with users nothing changes.
    with pytest.warns(DataWarning, match="1 of 1 pairs has a user or an item that is not in"):
        fitted.predict(1, 4)
    with pytest.warns(DataWarning, match=r"the user is not in the training data \(user 1\)"):
        fitted.recommend(1)


def test_users_cannot_be_left_out_where_they_are_all_there_is(tmp_path):
    model = fit(stars(), keep="users")
    with pytest.raises(InputError, match='fit it with keep="items"'):
        model.save(tmp_path / "model", users=False)
    assert not (tmp_path / "model").exists()
    for value in ("no", 0, None):
        with pytest.raises(InputError, match="users must be True or False"):
            model.save(tmp_path / "model", users=value)


# -- fewer draws --------------------------------------------------------------------------------


def test_some_draws_of_every_chain(fitted, tmp_path):
    draws = fitted.posterior_.draws
    assert len(draws) == 24
    for most, numbers in (
        (6, [3, 7, 11, 15, 19, 23]),
        (1, [11, 23]),
        (24, range(24)),
        (99, range(24)),
    ):
        fitted.save(tmp_path / "model", max_draws=most)
        loaded = BayesianMF.load(tmp_path / "model")
        found = loaded.posterior_.draws
        for name, array in found.arrays().items():
            assert np.array_equal(array, draws.arrays()[name][list(numbers)]), name
        assert loaded.report_["draws"] == len(found) == len(numbers)
    assert fitted.report_["draws"] == 24  # the model itself is as it was
    for value in (0, -1, 2.5, "many", True):
        with pytest.raises(InputError, match="max_draws must be a whole number of at least 1"):
            fitted.save(tmp_path / "model", max_draws=value)


def test_chosen_draws_are_mapped_where_they_are_large(fitted, tmp_path, monkeypatch):
    """So that saving some of many takes no memory for them, and leaves nothing."""
    monkeypatch.setattr(bayesmf.model.mapped, "MAP_ABOVE_BYTES", 500)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    some = fitted.posterior_.draws.select(np.array([2, 5]))
    assert isinstance(some.items, np.memmap) and isinstance(some.item_means, np.memmap)
    assert np.array_equal(some.items, fitted.posterior_.draws.items[[2, 5]])
    assert list(tmp_path.iterdir()) == []


def test_a_model_with_updates_tells_what_draws_have_missed(fitted, tmp_path):
    """And one without has nothing to tell."""
    model = BayesianMF.load(_saved(fitted, tmp_path / "plain"))
    model.partial_fit(([FIRST_ID], [4], [5.0])).save(tmp_path / "model")
    assert BayesianMF.load(tmp_path / "model").posterior_.draws.missed.max() == 1
    shutil.copy(tmp_path / "model", tmp_path / "forged")
    drop(tmp_path / "forged", "missed")
    with pytest.raises(InputError, match=r"damaged: the array missed is missing; .*fit again"):
        BayesianMF.load(tmp_path / "forged")
    for updates, sentence in ((-1, "not a number of updates"), (0, "missed does not belong")):
        edit_meta(tmp_path / "model", lambda m, n=updates: m["report"].update(updates=n))
        with pytest.raises(InputError, match=sentence):
            BayesianMF.load(tmp_path / "model")


def _saved(model, folder):
    model.save(folder)
    return folder


def test_settings_that_were_asked_for_are_held(tmp_path):
    model = fit(stars(), max_draws=np.int64(4))
    model.save(tmp_path / "model")
    _, told = file_contents(tmp_path / "model")
    assert told["params"]["keep"] == "auto" and told["params"]["max_draws"] == 4
    assert told["holds"] == {"keep": "items", "ratings": "all"}
    loaded = BayesianMF.load(tmp_path / "model")
    again = BayesianMF(**loaded.get_params(deep=False)).fit(stars())
    assert again.posterior_.draws.items.tobytes() == model.posterior_.draws.items.tobytes()


def test_people_are_answered_by_what_they_send(fitted, both, tmp_path):
    fitted.save(tmp_path / "items", users=False)
    sent = {4: 5.0, 9: 1.0, 11: 4.0}
    expected = fitted.recommend(ratings=sent, n=5)
    loaded = BayesianMF.load(tmp_path / "items")
    best = loaded.recommend(ratings=sent, n=5)
    assert [x.item for x in best] == [x.item for x in expected]
    shares = loaded.explain(item=7, ratings=sent)
    assert sorted(shares.items.tolist()) == sorted(sent)
