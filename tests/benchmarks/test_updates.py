"""The benchmark of added ratings, on a few planted ones."""

import numpy as np
import pytest

from bayesmf import Ratings
from problems import planted


def test_parts_have_users_and_items_of_their_own():
    from benchmarks.accuracy.updates import SHARE, make_parts, without

    ratings = Ratings(*planted(n_users=400, n_items=300, n_ratings=20_000))
    parts = make_parts(ratings, 4)
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    known = without(ratings, parts)
    assert len(known) == 20_000 - sum(map(len, parts))
    for part in parts:
        assert len(part) >= round(SHARE * 20_000)
        more = ratings.take(part).compact()
        for side in ("user", "item"):
            new = getattr(known, f"{side}_ids").lookup(getattr(more, f"{side}_ids")) < 0
            assert 2 <= new.sum() < 6


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_both_comparisons_are_printed(capsys):
    from benchmarks.accuracy.updates import many_updates, one_update, show

    train, test = Ratings(*planted(n_users=80, n_items=60, n_ratings=2000)).split(0.2)
    for found in (one_update(train, test, 2, 1), many_updates(train, test, 2, 2)):
        assert found["update"]["rmse"] < found["before"]["rmse"]
        assert found["update"]["rmse"] < 1.03 * found["refit"]["rmse"]
        show("some", found)
    printed = capsys.readouterr().out
    assert printed.count("of the refit") == 2 and "no draw lacks more than" in printed


def test_a_set_that_is_not_there_is_said(tmp_path, monkeypatch, capsys):
    from benchmarks.accuracy.updates import main

    monkeypatch.setattr("sys.argv", ["updates", "--data", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert "there are no data" in capsys.readouterr().err
