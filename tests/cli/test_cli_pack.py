"""`bayesmf pack`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmf import PackedRatings, Ratings, Synthetic
from bayesmf.cli.output import IN_FILES
from cli_tools import contents, process, run


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    Synthetic(60, 40, 900, random_state=1, stars=True).ratings().write(tmp_path / "ratings.csv")
    return tmp_path / "ratings.csv"


def test_pack_prints_a_line(ratings: Path) -> None:
    out = ratings.parent / "packed"
    ran = process("pack", ratings, "--out", out)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("900 ratings by 60 users of 40 items, ")
    sentence = " ".join(ran.stdout.splitlines())
    assert sentence.endswith(" MB")
    # A child inherits its parent's peak, and that of a long test run may need one more digit.
    assert ran.stdout.count("\n") == 1 + (len(sentence) > IN_FILES)
    assert contents(ratings.parent) == {"packed", "ratings.csv"}


def test_pack_prints_json(ratings: Path) -> None:
    out = ratings.parent / "packed"
    shown = run("pack", ratings, "--out", out, "--json").json
    packed = PackedRatings.open(shown["out"], verify=True)
    assert (shown["ratings"], shown["users"], shown["items"]) == (900, 60, 40)
    assert shown["levels"] == len(packed.levels) == 5
    assert shown["bytes_per_rating"] == shown["bytes"] / 900 > 10
    assert shown["mean"] == pytest.approx(Ratings.read(ratings).mean())


def test_pack_takes_what_fit_takes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("kunde;artikel;note\n1;2;3\n1;2;5\n")
    (tmp_path / "b.txt").write_text("kunde;artikel;note\n7;2;3\n")
    options = ("--columns", "user=kunde,item=artikel,rating=note", "--duplicates", "mean")
    out = tmp_path / "packed"
    shown = run("pack", tmp_path / "a.txt", tmp_path / "b.txt", "--out", out, *options, "--json")
    assert shown.json["ratings"] == 2 and shown.json["high"] == 4


def test_pack_refuses_in_a_sentence(ratings: Path) -> None:
    out = ratings.parent / "packed"
    assert run("pack", ratings, "--out", out).status == 0
    again = run("pack", ratings, "--out", out)
    assert again.status == 2 and "holds packed ratings already" in again.sentence
    assert run("pack", ratings, "--out", out, "--overwrite").status == 0
    for args, says in (
        (("--out", out), "RATINGS"),
        ((ratings,), "--out"),
        ((ratings, "--out", ratings), "exists and does not hold packed ratings"),
        ((out / "none.csv", "--out", "x"), "There is no file or folder"),
        ((ratings, "--out", "x", "--format", "xml"), "format 'xml' is not known"),
    ):
        ran = run("pack", *args)
        assert ran.status == 2 and says in ran.sentence
