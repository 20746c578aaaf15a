"""`python -m experiments.plan`: a table, JSON, and one sentence for what cannot be meant."""

import pytest

from bayesmf import Synthetic
from cli_tools import command, run
from experiments.plan.__main__ import main

QUICK = ("--workers", "1,4", "--factors", "3", "--rate", "1e7")


def test_a_plan_of_a_shape():
    told = command(main, "--shape", "ml-100k", *QUICK, "--json").json
    assert (told["users"], told["items"], told["ratings"]) == (943, 1682, 100_000)
    assert {one["workers"] for one in told["plans"]} == {1, 4}
    assert told["take"] in told["plans"]
    again = command(main, "--shape", "ml-100k", *QUICK, "--json").json
    assert again == told


def test_a_plan_of_ratings(tmp_path):
    Synthetic(60, 40, 900, stars=True).write(tmp_path / "a.csv")
    run("pack", tmp_path / "a.csv", "--out", tmp_path / "packed")
    one, other = (
        command(main, tmp_path / name, *QUICK, "--samplers", "default,dsgld-s").out
        for name in ("a.csv", "packed")
    )
    assert one == other
    assert "900 ratings" in one and "Take" in one


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "RATINGS or --shape"),
        (("ratings.csv", "--shape", "ml-1m"), "either RATINGS"),
        (("--shape", "ml-1m", "--workers", "4,x"), "--workers"),
        (("--shape", "ml-1m", "--workers", "0"), "--workers"),
        (("--shape", "ml-1m", "--samplers", "gibs"), "--samplers"),
        (("--shape", "ml-1m", "--bandwidth", "0"), "--bandwidth"),
        (("--shape", "ml-1m", "--workers-per-node", "0"), "--workers-per-node"),
        (("--shape", "nowhere"), "--shape"),
        (("nothing-here.csv",), "nothing-here.csv"),
    ],
)
def test_one_sentence(options, words):
    ran = command(main, *options)
    assert ran.status == 2
    assert words in ran.err.replace("\n", " ")
