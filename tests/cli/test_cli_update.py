"""`bayesmf update`: ratings are added, and the model is saved as another."""

import pytest

from bayesmf import BayesianMF
from cli_tools import QUICK, run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, ratings that came later, and the folder that they are in."""
    folder = tmp_path_factory.mktemp("update")
    rows = [
        f"{u},{i},{1 + (3 * u + 5 * i) % 5}" for u in range(30) for i in range(20) if (u + i) % 3
    ]
    (folder / "old.csv").write_text("\n".join(["user,item,rating", *rows]))
    new = ["0,1,5", "99,2,4", "99,3,1", "4,77,2"]  # one instead of another; a user; an item
    (folder / "new.csv").write_text("\n".join(["user,item,rating", *new]))
    assert run("fit", folder / "old.csv", "--out", folder / "model", *QUICK).status == 0
    return folder


def test_ratings_are_added(made):
    before = BayesianMF.load(made / "model").report_
    told = run("update", made / "model", made / "new.csv", "--out", made / "other", "--json").json
    assert (told["added"], told["replaced"]) == (4, 1)
    assert (told["new_users"], told["new_items"], told["updates"]) == (1, 1, 1)
    assert told["ratings"] == before["ratings"] + 3
    model = BayesianMF.load(made / "other")
    assert 99 in model.user_ids_ and 77 in model.item_ids_
    assert model.report_["ratings"] == told["ratings"]
    assert 99 not in BayesianMF.load(made / "model").user_ids_
    # And again, into the same folder.
    again = run("update", made / "other", made / "new.csv", "--out", made / "other", "--json").json
    assert (again["replaced"], again["updates"]) == (4, 2)
    assert BayesianMF.load(made / "other").report_["updates"] == 2


def test_it_is_told_in_words(made):
    told = run("update", made / "model", made / "new.csv", "--out", made / "third")
    assert told.status == 0 and told.err == ""
    assert "4 ratings, 1 of them in place of others; 1 new user, 1 new item" in told.out


def test_the_model_that_is_saved_is_that_of_python(made):
    model = BayesianMF.load(made / "model").partial_fit(made / "new.csv")
    assert run("update", made / "model", made / "new.csv", "--out", made / "fourth").status == 0
    same = BayesianMF.load(made / "fourth")
    assert same.predict(99, 77) == model.predict(99, 77)
    assert (same.posterior_.draws.missed == model.posterior_.draws.missed).all()


def test_columns_are_named(made):
    (made / "odd.csv").write_text("who,what,stars\n3,4,2\n")
    columns = "user=who,item=what,rating=stars"
    args = ("update", made / "model", made / "odd.csv", "--out", made / "fifth")
    assert run(*args, "--columns", columns, "--json").json["added"] == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("user,item,rating\nann,4,2\n", "the user id 'ann' is text"),
        ("user,item,rating\n", "no ratings"),
    ],
)
def test_bad_ratings_are_refused(text, sentence, made):
    (made / "bad.csv").write_text(text)
    ran = run("update", made / "model", made / "bad.csv", "--out", made / "never")
    assert ran.status == 2 and sentence in ran.sentence and not (made / "never").exists()


def test_other_folders_are_left_alone(made):
    (made / "mine").mkdir()
    (made / "mine" / "letter.txt").write_text("dear")
    ran = run("update", made / "model", made / "new.csv", "--out", made / "mine")
    assert ran.status == 2 and (made / "mine" / "letter.txt").read_text() == "dear"
    assert run("update", made / "none", made / "new.csv", "--out", made / "never").status == 2
