"""Pictures that a model draws: into an Axes or a figure of their own, whatever was fitted."""

from __future__ import annotations

import sys

import matplotlib
import numpy as np
import pytest

from bayesmf import SGD, BayesianMF, Gibbs, InputError, NotFittedError
from bayesmf.diagnostics.convergence import headline
from bayesmf.estimator import evaluating as looking
from bayesmf.plots import panels
from forged import forge
from looks import check_legends, check_text, lines
from problems import planted

PICTURES = ("convergence", "calibration", "uncertainty")


@pytest.fixture(autouse=True)
def plt():
    """pyplot without a screen; no figure is left behind."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def fitted(sampler, triple=None, validation=None, **options):
    model = BayesianMF(2, sampler=sampler, random_state=0, **options)
    return model.fit(planted(40, 30, 600) if triple is None else triple, validation=validation)


@pytest.fixture(scope="module")
def triple():
    return planted(40, 30, 600)


@pytest.fixture(scope="module")
def model(triple):
    return fitted(Gibbs(epochs=60, burn_in=5, n_chains=2), triple, triple)


def draw(model, picture, ratings, ax=None):
    args = (ratings,) if picture == "calibration" else ()
    return getattr(model, f"plot_{picture}")(*args, ax=ax)


def title(ax):
    return (ax.get_title(loc="left") or ax.get_title()).replace("\n", " ")


def words():
    """Users and items with names that are no numbers, few of them."""
    user, item, rating = planted(12, 9, 60)
    return [f"user {u}" for u in user], [f"a & <{i}>" for i in item], rating


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize(
    ("sampler", "ratings"),
    [
        ("auto", planted(40, 30, 600)),
        (Gibbs(epochs=9, burn_in=3), words()),
        (Gibbs(epochs=1, burn_in=0), (["a", "b"], ["x", "x"], [3.0, 4.0])),
        (Gibbs(epochs=6, burn_in=1, n_chains=7), planted(12, 9, 60)),
        (SGD(epochs=9), planted(40, 30, 600)),
    ],
    ids=["default", "names, one chain", "two ratings", "many chains", "SGD"],
)
def test_every_fit_can_be_looked_at(picture, sampler, ratings, plt):
    model = fitted(sampler, ratings)
    ax = draw(model, picture, ratings)
    assert plt.get_fignums() == [ax.figure.number]
    check_text(ax.figure)
    check_legends(ax.figure)
    if isinstance(sampler, SGD) and picture == "convergence":
        assert title(ax) == "SGD: optimiser, no draws"
    if isinstance(sampler, SGD) and picture == "uncertainty":
        assert title(ax).startswith("One draw ")


@pytest.mark.parametrize("picture", PICTURES)
def test_a_loaded_model_draws_the_same(model, triple, tmp_path, picture):
    model.save(tmp_path / "m")
    one, two = (draw(m, picture, triple) for m in (model, BayesianMF.load(tmp_path / "m")))
    assert title(one) == title(two)
    assert len(one.get_lines()) == len(two.get_lines()) > 0
    for a, b in zip(one.get_lines(), two.get_lines(), strict=True):
        np.testing.assert_array_equal(a.get_xydata(), b.get_xydata())


@pytest.mark.parametrize("picture", PICTURES)
def test_axes_that_are_given_are_drawn_into(model, triple, plt, picture):
    """In a narrow Axes of a usual figure, and in the user's own style."""
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.4))
    before = dict(matplotlib.rcParams)
    assert draw(model, picture, triple, axes[1]) is axes[1]
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == [figure.number]
    assert not axes[0].has_data() and not axes[2].has_data()
    check_legends(figure)
    box = axes[1].get_tightbbox()
    assert box.y0 >= 0 and box.y1 <= figure.bbox.y1
    width = axes[1].title.get_window_extent().width
    assert 0 < width < 1.05 * axes[1].get_window_extent().width


@pytest.mark.parametrize("picture", PICTURES)
def test_refusals(model, triple, plt, picture, monkeypatch):
    with pytest.raises(NotFittedError):
        draw(BayesianMF(), picture, triple)
    with pytest.raises(InputError, match=r"ax must be an Axes of matplotlib, not ndarray"):
        draw(model, picture, triple, plt.subplots(1, 2)[1])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install matplotlib"):
        draw(model, picture, triple)


# -- convergence ----------------------------------------------------------------------------------


def test_convergence_shows_chains_validation_and_burn_in(model):
    ax = model.plot_convergence()
    shown = lines(ax)
    for chain in range(2):
        events = [e for e in model.history_ if e["chain"] == chain]
        want = [(e["epoch"], e["train_rmse"]) for e in events]
        np.testing.assert_array_equal(shown[f"training, chain {chain + 1}"], want)
    np.testing.assert_array_equal(shown["burn-in ends"][:, 0], [5, 5])
    average = shown["validation, average of draws"]
    np.testing.assert_array_equal(average[:, 0], np.arange(6, 61))
    assert average[-1, 1] == max(model.history_, key=lambda e: e["seconds"])["rmse_all_chains"]
    thick, thin = (
        next(x for x in ax.get_lines() if x.get_label() == name).get_linewidth()
        for name in ("validation, average of draws", "training, chain 1")
    )
    assert thick > 1.5 * thin
    assert "R-hat" in title(ax)


def test_burn_in_of_a_run_that_grew(triple):
    model = fitted("auto", triple, target="fast")
    epochs = max(e["epoch"] for e in model.history_)
    shown = lines(model.plot_convergence())
    np.testing.assert_allclose(shown["burn-in ends"][:, 0], 0.25 * epochs)


def test_no_history(model, tmp_path):
    model.save(tmp_path / "m")
    forge(tmp_path / "m", lambda arrays, meta: arrays.update(history=arrays["history"][:0]))
    with pytest.raises(InputError, match="no history of its passes"):
        BayesianMF.load(tmp_path / "m").plot_convergence()


def test_the_title_of_convergence_is_the_verdict(model):
    found = model.report_["convergence"]
    assert title(model.plot_convergence()) == headline(found)
    larger = max(found["rhat"], found["rhat_noise"])
    assert f"R-hat {larger:.3f}" in headline(found) and found["verdict"]


# -- calibration ----------------------------------------------------------------------------------


def test_calibration_of_what_was_learnt_marks_no_worst(model, triple):
    assert "worst gap" not in lines(model.plot_calibration(triple))


def test_calibration_shows_the_number_of_the_verdict(model, triple):
    users, items, ratings = triple
    held_out = users, (np.asarray(items) + 7) % 30, ratings  # other pairs, mostly not rated
    rated = set(zip(users, items, strict=True))
    new = [k for k, pair in enumerate(zip(*held_out[:2], strict=True)) if pair not in rated]
    held_out = tuple(np.asarray(column)[new] for column in held_out)
    found = model.calibration(held_out)
    assert found.overall.learnt == 0
    ax = model.plot_calibration(held_out)
    assert title(ax) == found.headline
    shown = lines(ax)
    np.testing.assert_allclose(shown["worst gap"], [[found.worst.level, found.worst.points]])
    gap = 100 * np.array(found.observed) - np.array(found.levels)
    np.testing.assert_allclose(shown["all ratings"][:, 1], gap)
    names = {"user": "users", "item": "items", "error": "error", "std": "std"}
    drawn = panels.shown(found)
    assert found.worst.group in (None, *drawn)
    for group in drawn:
        gap = 100 * np.array(group.observed) - np.array(found.levels)
        np.testing.assert_allclose(shown[f"{names[group.side]}, {group.span}"][:, 1], gap)
    # No curve goes further than the number says.
    curves = [xy[:, 1] for name, xy in shown.items() if name != "worst gap" and len(xy) > 2]
    assert len(curves) == 1 + len(drawn)
    reached = max(np.abs(curve).max() for curve in curves)
    assert found.worst.counts or reached == pytest.approx(abs(found.worst.points))


def test_what_was_found_can_be_drawn_again(model, triple, monkeypatch):
    found = model.calibration(triple)
    monkeypatch.setattr(model, "calibration", lambda *_: pytest.fail("computed again"))
    assert title(model.plot_calibration(found)) == found.headline


# -- what is not known ----------------------------------------------------------------------------


def test_uncertainty_is_that_of_predictions_without_noise(model, triple):
    items = looking.spread_by_row(model.posterior_, "item")
    ids = model.item_ids_.ids
    np.testing.assert_array_equal(items.n_ratings, [np.sum(triple[1] == i) for i in ids])
    users = model.user_ids_.ids
    for k in (0, 7):
        _, std = model.predict(users, ids[k], return_std=True)
        noise = model.posterior_.noise_of(np.arange(len(users)), np.full(len(users), k))
        want = np.sqrt(np.maximum(std**2 - noise, 0.0)).mean()
        assert items.std[k] == pytest.approx(want)
    ax = model.plot_uncertainty()
    shown = ax.collections[0].get_offsets()
    np.testing.assert_allclose(shown, np.column_stack(items))
    assert ax.get_xscale() == "log"


def test_large_models_are_sampled_the_same_each_time(model, monkeypatch):
    monkeypatch.setattr(looking, "ROWS", 10)
    monkeypatch.setattr(looking, "PARTNERS", 5)
    one, two = (looking.spread_by_row(model.posterior_, "user") for _ in range(2))
    assert len(one.std) == 10
    np.testing.assert_array_equal(one.std, two.std)
