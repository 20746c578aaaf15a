"""Model files that are damaged or forged: refused with a sentence.

Forged ones have right digests (forged.py), so that only a look at the numbers can refuse them.
A test that fails here may end the whole run by a signal: kernels check nothing.
"""

import os
import shutil

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs, InputError, Synthetic
from bayesmf.storage import verification
from forged import drop, edit, edit_meta, file_contents, put, refused, set_at
from problems import planted

N_USERS, N_ITEMS, N_RATINGS = 40, 30, 600


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    data = planted(N_USERS, N_ITEMS, N_RATINGS)
    fitted = BayesianMF(3, sampler=Gibbs(epochs=12, burn_in=4), random_state=0).fit(data)
    folder = tmp_path_factory.mktemp("saved") / "model"
    fitted.save(folder)
    return folder


@pytest.fixture
def model(saved, tmp_path):
    return shutil.copy(saved, tmp_path / "model")


def answers(folder, **how):
    loaded = BayesianMF.load(folder, **how)
    loaded.predict([1001, 1002], [5, 6])
    loaded.recommend(1001, n=5)
    return loaded


# -- models -------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")
FORGED = {
    "seen far below": ("seen_items", lambda a: np.full_like(a, -50_000_000)),
    "seen just below": ("seen_items", set_at(7, -1)),
    "seen at the end": ("seen_items", set_at(-1, N_ITEMS)),
    "starts not from 0": ("seen_starts", set_at(0, 1)),
    "starts not to the end": ("seen_starts", set_at(-1, N_RATINGS - 1)),
    "starts beyond": ("seen_starts", set_at(-1, 10**9)),
    "starts fall": ("seen_starts", set_at(5, 3 * N_RATINGS)),
    "starts fall below": ("seen_starts", set_at(5, -1)),
    "seen twice": ("seen_items", lambda a: np.concatenate([a[:1], a[:1], a[2:]])),
    "seen as another type": ("seen_items", lambda a: a.astype(np.int64)),
    "seen as a table": ("seen_items", lambda a: a.reshape(2, -1)),
    "items not finite": ("items", set_at((0, 0, 0), NAN)),
    "items too large": ("items", set_at((0, 0, 0), 3e38)),
    "precisions too large": ("item_lambda", lambda a: a * 1e30),
    "tau too small": ("tau", set_at(0, 1e-300)),
    "last item not finite": ("items", set_at((-1, -1, -1), INF)),
    "means not finite": ("item_means", set_at((-1, -1, -1), -INF)),
    "items turned": ("items", lambda a: np.ascontiguousarray(a.transpose(0, 2, 1))),
    "items too few": ("items", lambda a: np.ascontiguousarray(a[:, :-1])),
    "items in double precision": ("items", lambda a: a.astype(np.float64)),
    "items without axes": ("items", lambda a: np.float32(1).reshape(())),
    "tau zero": ("tau", set_at(0, 0.0)),
    "tau negative": ("tau", set_at(-1, -1.0)),
    "tau not finite": ("tau", set_at(0, INF)),
    "no draws": ("tau", lambda a: a[:0]),
    "mu not finite": ("user_mu", set_at((0, 0), NAN)),
    "precisions that are none": ("item_lambda", lambda a: -a),
    "chains negative": ("chain", set_at(0, -1)),
    "chains fall": ("chain", set_at(0, 3)),
    "ids fall": ("user_id_ids", set_at(0, 10**6)),
    "ids too few": ("user_id_ids", lambda a: a[:-1]),
    "history of counts that are none": ("history", set_at((0, 0), NAN)),
    "history of other width": ("history", lambda a: a[:, :-1].copy()),
    "ratings not finite": ("seen_values", set_at(-1, NAN)),
    "ratings out of range": ("seen_values", set_at(3, 1e6)),
    "ratings too few": ("seen_values", lambda a: a[:-1]),
    "ratings in double precision": ("seen_values", lambda a: a.astype(np.float64)),
    "codes without levels": ("seen_values", lambda a: np.zeros(len(a), np.uint8)),
}
# Of a model of stars: codes of one byte, and the ratings that they stand for.
FORGED_CODES = {
    "code of no level": ("seen_values", set_at(-1, 5)),
    "codes as signed numbers": ("seen_values", lambda a: a.astype(np.int8)),
    "codes as ratings": ("seen_values", lambda a: a.astype(np.float32)),
    "levels fall": ("levels", lambda a: a[::-1].copy()),
    "levels not finite": ("levels", set_at(-1, NAN)),
    "levels out of range": ("levels", set_at(-1, 1e6)),
    "no levels": ("levels", lambda a: a[:0]),
    "more levels than codes": ("levels", lambda a: np.linspace(a[0], a[-1], 257, dtype=a.dtype)),
    "a level too few": ("levels", lambda a: a[:-1]),
    "levels in double precision": ("levels", lambda a: a.astype(np.float64)),
    "levels as a table": ("levels", lambda a: a[None]),
}
FORGED_ITEMS = {
    "counts negative": ("item_counts", set_at(0, -1)),
    "counts of other ratings": ("item_counts", lambda a: a + 1),
    "counts too few": ("item_counts", lambda a: a[:-1]),
    "counts as numbers": ("item_counts", lambda a: a.astype(np.float64)),
    "items not finite": ("items", set_at((0, 0, 0), NAN)),
}
FORGED_USERS = {
    "users not finite": ("users", set_at((0, 0, 0), NAN)),
    "users too few": ("users", lambda a: np.ascontiguousarray(a[:, :-1])),
    "means not finite": ("user_means", set_at((-1, -1, -1), -INF)),
}
OTHERS = {"stars": FORGED_CODES, "items": FORGED_ITEMS, "users": FORGED_USERS}


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Models of stars, without users, and with users' rows in the place of items'."""
    folder, sampler = tmp_path_factory.mktemp("others"), Gibbs(epochs=6, burn_in=2)
    data = Synthetic(N_USERS, N_ITEMS, N_RATINGS, random_state=1, stars=True).ratings()
    fitted = BayesianMF(3, sampler=sampler, random_state=0).fit(data)
    fitted.save(folder / "stars")
    fitted.save(folder / "items", users=False)
    BayesianMF(3, sampler=sampler, random_state=0, keep="users").fit(data).save(folder / "users")
    return folder


@pytest.mark.filterwarnings("ignore::bayesmf.DataWarning")
@pytest.mark.parametrize(("kind", "what"), [(k, w) for k in OTHERS for w in OTHERS[k]])
def test_other_forged_models_are_refused(others, tmp_path, kind, what):
    model = shutil.copy(others / kind, tmp_path / "model")
    answers(model)
    edit(model, *OTHERS[kind][what])
    refused(answers, model, "fit again")


@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_that_lacks_an_array_is_refused(others, tmp_path, kind):
    for name in file_contents(others / kind)[0]:
        if name in ("item_means", "user_means"):
            continue  # samplers without conditional means have none
        model = shutil.copy(others / kind, tmp_path / name)
        drop(model, name)
        refused(answers, model, "fit again")


@pytest.mark.parametrize(
    ("into", "of"), [("items", "stars"), ("stars", "users"), ("users", "stars")]
)
def test_a_model_with_an_array_too_many_is_refused(others, tmp_path, into, of):
    for name, array in file_contents(others / of)[0].items():
        if name not in file_contents(others / into)[0]:
            model = shutil.copy(others / into, tmp_path / name)
            put(model, name, array)
            refused(answers, model, "does not belong there")


def test_levels_of_a_model_of_huge_items_are_refused(others, tmp_path):
    model = shutil.copy(others / "stars", tmp_path / "model")
    edit(model, "items", lambda a: np.full_like(a, 9e17))
    loaded = BayesianMF.load(model)
    user, item = loaded.user_ids_[0], loaded.item_ids_[0]
    refused(lambda _: loaded.predict_proba([user], [item]), model, "fit again")


def test_an_item_comes_once_for_a_user_in_whatever_piece_it_is(model, tmp_path, monkeypatch):
    """Rows begin anywhere in what is read at a time: the same item may stand on both sides."""
    arrays, _ = file_contents(model)
    starts = arrays["seen_starts"]
    user = int(np.flatnonzero(np.diff(starts) > 3)[2])
    twice = shutil.copy(model, tmp_path / "twice")
    edit(
        twice,
        "seen_items",
        set_at(starts[user] + 2, arrays["seen_items"][starts[user] + 1]),
    )
    for size in (8, 16, 24, 40, 1 << 20):
        monkeypatch.setattr(verification, "_BYTES", size)
        answers(model)
        refused(answers, twice, "seen_items .* ascending in each row")


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("verify", [True, False])
def test_a_forged_model_is_refused(model, what, verify):
    name, change = FORGED[what]
    edit(model, name, change)
    refused(lambda path: answers(path, verify=verify), model, "fit again")


def test_every_number_is_looked_at(model, tmp_path):
    """Also those behind the first piece that is read, and in between."""
    for at in range(0, N_RATINGS, 97):
        again = shutil.copy(model, tmp_path / str(at))
        edit(again, "seen_items", set_at(at, N_ITEMS))
        refused(answers, again, "seen_items holds numbers that are not from 0 to 29")


META = {
    "units of text": lambda m: m["units"].update(center="3"),
    "no scale": lambda m: m["units"].update(scale=0),
    "other factors": lambda m: m["units"].update(n_factors=2),
    "many factors": lambda m: m["units"].update(n_factors=10**30),
    "no report": lambda m: m.pop("report"),
    "report of other ratings": lambda m: m["report"].update(users=3),
    "a list for a report": lambda m: m.update(report=[]),
    "seed of text": lambda m: m["report"].update(seed="0"),
    "true for a number": lambda m: m["report"].update(seconds=True),
    "convergence of text": lambda m: m["report"].update(convergence="yes"),
    "verdict of numbers": lambda m: m["report"]["convergence"].update(verdict=3),
    "no such sampler": lambda m: m["report"]["sampler"].update(rule="Metropolis"),
    "sampler of text": lambda m: m["report"]["sampler"].update(epochs="many"),
    "sampler with more": lambda m: m["report"]["sampler"].update(more=1),
    "other params": lambda m: m["params"].update(engine="ray"),
    "params of lists": lambda m: m["params"].update(prior=["gamma"]),
    "holds of text": lambda m: m.update(holds="all"),
    "holds nothing that is known": lambda m: m["holds"].update(ratings="some"),
    "holds the other side": lambda m: m["holds"].update(keep="users"),
    "holds both sides": lambda m: m["holds"].update(keep="both"),
    "holds no side": lambda m: m["holds"].update(keep="auto"),
    "holds pairs alone": lambda m: m["holds"].update(ratings="pairs"),
    "holds no users": lambda m: m["holds"].update(ratings="none"),
    "does not tell what it holds": lambda m: m.pop("holds"),
    "another side was asked for": lambda m: m["params"].update(keep="users"),
    "another side than there are": lambda m: m["params"].update(keep="neither"),
    "history of numbers": lambda m: m.update(history=[1, 2]),
    "history of lists": lambda m: m.update(history=[[]] * 13),
    "a center that is no mean": lambda m: m["units"].update(center=99.0),
    "huge scale": lambda m: m["units"].update(scale=1e99),
    "huge center": lambda m: m["units"].update(center=10**400),
}


@pytest.mark.parametrize("what", META)
def test_forged_meta_data_are_refused(model, what):
    edit_meta(model, META[what])
    refused(answers, model)


def test_arrays_may_be_read_into_memory(model, tmp_path):
    """Then a file that is cut short under a server does not end it."""
    expected = answers(model).predict([1001, 1005], [5, 9])
    loaded = answers(model, mmap=False)
    assert not isinstance(loaded.posterior_.draws.items, np.memmap)
    os.truncate(model, 10)
    assert np.array_equal(loaded.predict([1001, 1005], [5, 9]), expected)
    with pytest.raises(InputError, match="mmap must be True or False"):
        BayesianMF.load(model, mmap=1)


NOISE = ("user_tau", "item_tau")


def test_a_kept_row_of_unknown_noise_is_refused(model):
    """Precisions of the other side may be NaN, and are then drawn."""
    edit(model, "user_tau", set_at((0, 0), NAN))
    assert np.isfinite(answers(model).predict([1001], [5], return_std=True)).all()
    edit(model, "item_tau", set_at((0, 0), NAN))
    refused(answers, model, "item_tau holds numbers that are not positive")


@pytest.mark.parametrize("name", NOISE)
@pytest.mark.parametrize("value", [1e24, 1e-24])
def test_precisions_whose_product_overflows_are_refused(model, name, value):
    edit(model, name, set_at((0, 0), value))
    refused(answers, model, f"{name} holds numbers that are not positive, or too small or too")
