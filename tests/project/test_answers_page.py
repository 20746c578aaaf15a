"""docs/answers.md: its numbers are those of the code (its code runs in test_pages.py)."""

from pathlib import Path

import numpy as np

from bayesmf import BayesianMF, Synthetic
from bayesmf.run.settings import default_factors
from bayesmf.run.stopping import AGREEING, N_PROBE, TARGETS
from bayesmf.samplers.base import DataShape

PAGE = Path(__file__).resolve().parents[2] / "docs" / "answers.md"


def text():
    """The page in one line, as sentences may be broken anywhere."""
    return " ".join(PAGE.read_text("utf-8").split())


def test_numbers_of_targets_are_those_of_the_code():
    fast, balanced, accurate = (TARGETS[name] for name in ("fast", "balanced", "accurate"))
    assert f"The limit is {fast.rhat:g}, {balanced.rhat:g} or {accurate.rhat:g} for" in text()
    losses = [f"{100 * target.loss:g}%" for target in (fast, balanced, accurate)]
    assert "at most {}, {} or {} of the RMSE".format(*losses) in text()
    chains = [target.n_chains for target in (fast, balanced, accurate)]
    assert "with {}, {} or {} chains".format(*chains) in text()
    passes = [f"{target.least} to {target.most}" for target in (fast, balanced, accurate)]
    assert "{}, {} or {} passes".format(*passes) in text()
    assert f"{N_PROBE} are monitored" in text() and f"{1 - AGREEING:.0%} of them may" in text()


def test_the_automatic_number_of_factors_matches_the_page():
    assert "`ratings / (users + items) / 3`, between 8 and 32" in text()
    for ratings, factors in ((100, 8), (3_000, 10), (1_000_000, 32)):
        shape = DataShape(n_ratings=ratings, n_users=60, n_items=40, busy=1)
        assert default_factors(shape) == factors


def test_the_validation_rmse_is_that_of_evaluate_and_ends_nothing():
    train, test = Synthetic(60, 40, 900, random_state=1).ratings().split(0.2, random_state=0)
    watched = BayesianMF(2, random_state=0).fit(train, validation=test)
    alone = BayesianMF(2, random_state=0).fit(train)
    assert watched.report_["validation_rmse"] == watched.evaluate(test).rmse
    assert watched.report_["epochs"] == alone.report_["epochs"]
    assert watched.predict(1, 2) == alone.predict(1, 2)


def test_a_drawn_seed_and_another_order_give_the_same_bits():
    ratings = Synthetic(60, 40, 900, random_state=1).ratings()
    first = BayesianMF(2).fit(ratings)
    turned = ratings.users[::-1], ratings.items[::-1], ratings.rating[::-1]
    again = BayesianMF(2, random_state=first.report_["seed"], engine="serial").fit(turned)
    pairs = ratings.users, ratings.items
    np.testing.assert_array_equal(first.predict(*pairs), again.predict(*pairs))


def test_a_new_user_is_near_the_average_of_the_item():
    ratings = Synthetic(300, 60, 9_000, random_state=1).ratings()
    model = BayesianMF(4, random_state=0).fit(ratings)
    counts = np.bincount(ratings.item_rows)
    average = np.bincount(ratings.item_rows, ratings.rating) / counts
    busy = counts >= 20
    items = ratings.item_ids.ids[: len(counts)][busy]
    mean, std, known = model.predict(999_999, items, return_std=True, return_known=True)
    assert not known.any()
    # Far from chance: averages of items differ by much more than this.
    assert np.sqrt(np.mean((mean - average[busy]) ** 2)) < 0.3 < 1.5 * average[busy].std()
    assert np.mean(std > model.predict(1, items, return_std=True)[1]) > 0.9


def test_its_figures_have_a_command(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(PAGE.parents[1])
    from benchmarks.serving.page import main

    (tmp_path / "ml-100k").mkdir()
    made = Synthetic(120, 80, 4800, random_state=2).ratings().to_polars()
    made.write_csv(tmp_path / "ml-100k" / "u.data", separator="\t", include_header=False)
    assert main(["--data", str(tmp_path)]) == 0
    told = dict(line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    found = {name.strip(): float(value) for name, value in told.items()}
    # What the page is about: averages are better than single draws, and not of factors.
    assert found["averaged prediction, held out"] < found["single draws, held out"]
    assert found["averaged draws' predictions"] < found["averaged factors"]
    assert found["averaged prediction, training"] < found["train RMSE"]
    assert main(["--data", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
