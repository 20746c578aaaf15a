"""`python -m benchmarks vectors`: the table of docs/recipes/vectors.md, on planted ratings."""

from pathlib import Path

import pytest

from bayesmf import Synthetic


def test_more_draws_are_nearer_to_recommend(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])
    from benchmarks.ranking.vectors import main

    Synthetic(60, 150, 2000, random_state=1).write(tmp_path / "ratings.csv")
    assert main([str(tmp_path / "ratings.csv")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    shares = [float(line[2].rstrip("%")) for line in lines]
    assert [int(line[0]) for line in lines][:4] == [1, 2, 4, 8]
    assert shares[0] < shares[2] < shares[-1] and shares[-1] > 85
    assert float(lines[-1][3].rstrip("%")) == pytest.approx(100, abs=1)
    assert main([str(tmp_path / "nowhere.csv")]) == 2
    assert "nowhere.csv" in capsys.readouterr().err
