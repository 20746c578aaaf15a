"""The benchmark of noise by user and item, on planted ratings of steady and of moody people."""

import json

import numpy as np
import pytest

USERS, ITEMS, EACH = 120, 60, 30


@pytest.fixture
def data(tmp_path):
    """Every other user is moody."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(USERS), EACH)
    items = rng.random((USERS, ITEMS)).argsort(axis=1)[:, :EACH].ravel()
    noise = np.where(users % 2, 2.5, 0.4)
    scores = 5 + rng.normal(0, 1, USERS)[users] + rng.normal(0, 1, ITEMS)[items]
    stars = np.clip(np.round(scores + noise * rng.normal(size=len(users))), 0, 10).astype(int)
    lines = [f"{u}::{i}::{r}::0\n" for u, i, r in zip(users, items, stars, strict=True)]
    (tmp_path / "movietweetings").mkdir()
    (tmp_path / "movietweetings/ratings.dat").write_text("".join(lines))
    return tmp_path


def run(*options):
    from benchmarks.accuracy.noise import main

    return main(list(map(str, options)))


def cells(line):
    return line.strip("| ").split(" | ")


def test_tables_show_what_noise_by_user_and_item_brings(data, capsys):
    written = data / "fits.json"
    assert run("--data", data, "--factors", "2,1", "--json", written) == 0
    parts = capsys.readouterr().out.split("\n\n")
    scores, coverage, growth = (part.splitlines() for part in parts[::2])
    fits = [json.loads(line) for line in written.read_text().splitlines()]
    assert [(fit["factors"], fit["noise_by"]) for fit in fits] == [
        (1, "none"), (1, "both"), (2, "none"), (2, "both"),
    ]  # fmt: skip
    # Half of the people have errors six times those of the others: no subtle difference.
    for one, both in (fits[:2], fits[2:]):
        assert both["nll"] < one["nll"] - 0.1 and both["log_loss"] < one["log_loss"] - 0.1
        lowest, highest = one["coverage"]["90"][0], one["coverage"]["90"][-1]
        assert lowest > 0.95 and highest < 0.85
        assert max(abs(x - 0.9) for x in both["coverage"]["90"]) < 0.08
    first = cells(scores[2])
    assert first[:4] == ["movietweetings", "1", "none", f"{fits[0]['rmse']:.4f}"]
    held = " / ".join(f"{100 * x:.1f}" for x in fits[1]["coverage"]["50"])
    assert cells(coverage[3])[3] == held
    rise = fits[3]["rmse"] / fits[1]["rmse"] - 1
    assert cells(growth[3])[4] == f"{rise:+.2%}"


def test_known_pairs_are_those_with_training_ratings(data):
    from bayesmf import BayesianMF, Gibbs, Ratings
    from benchmarks.accuracy.noise import scores

    ratings = Ratings.read(data / "movietweetings/ratings.dat")
    train, test = ratings.split(0.1, random_state=0)
    train = train.take(train.items != test.items[0])
    model = BayesianMF(1, sampler=Gibbs(epochs=10), random_state=0).fit(train)
    with pytest.warns(UserWarning, match="not in the training data"):
        found = scores(model, test)
    known = test.take(test.items != test.items[0])
    assert found["n"] == len(test) and found["known"] == len(known) < len(test)
    assert found["known_rmse"] == model.evaluate(known).rmse != found["rmse"]


@pytest.mark.parametrize(("options", "said"), [
    (["--data", "no-such-folder"], "no-such-folder"),
    (["--seeds", "0"], "--seeds"),
    (["--sets", "nobody"], "nobody"),
    (["--factors", "4,x"], "--factors"),
    (["--noise-by", "mood"], "mood"),
])  # fmt: skip
def test_bad_input_is_one_sentence(options, said, data, capsys):
    assert run("--data", data, *options) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1
