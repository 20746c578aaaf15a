"""The benchmark that compares what runs claim to lose with what they lose, on planted stars."""

from pathlib import Path

import numpy as np
import pytest

from bayesmf import Synthetic

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stopping(monkeypatch):
    """The module, with long runs that are short."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.accuracy import stopping

    monkeypatch.setattr(stopping, "LONG_CHAINS", 2)
    return stopping


def _write(folder):
    (folder / "ml-100k").mkdir()
    made = Synthetic(60, 40, 1200, stars=True).ratings()
    lines = zip(made.users, made.items, made.rating.astype(int), strict=True)
    (folder / "ml-100k/u1.base").write_text("".join(f"{u}\t{i}\t{r}\t0\n" for u, i, r in lines))


def test_claims_are_compared_in_a_table(tmp_path, capsys, stopping):
    _write(tmp_path)
    options = ["--targets", "fast", "--seeds", "2", "--sweeps", "60", "--factors", "2"]
    assert stopping.main(["--data", str(tmp_path), *options]) == 0
    printed = capsys.readouterr()
    heads, _, line, _, note = printed.out.splitlines()
    assert heads.startswith("| data, D | target | claimed | actual | ratio |")
    name, target, claimed, actual, ratio, *_ = line.strip("| ").split(" | ")
    assert (name, target) == ("ml-100k, 2", "fast")
    assert 0 < float(claimed) < 2 and 0 < float(actual) < 2
    assert float(ratio) == pytest.approx(float(claimed) / float(actual), abs=0.02)
    assert "60 sweeps" in note and printed.err.count("Row(") == 2


def test_the_reference_is_not_taken_for_the_truth(stopping):
    """Two long runs with errors of 0.1 and a fit with errors of 0.3: its own are what is lost."""
    rng = np.random.default_rng(0)
    one, other, fit = (s * rng.normal(size=100_000) for s in (0.1, 0.1, 0.3))
    noise = float(np.mean((one - other) ** 2)) / 4
    ideal = stopping.Reference((one + other) / 2, noise, 1.0)
    assert ideal.loss_of(fit) == pytest.approx(np.sqrt(1 + 0.3**2) - 1, rel=0.02)
    assert ideal.loss_of(ideal.predictions) == 0.0


@pytest.mark.parametrize(("options", "said"), [
    (["--data", "no-such-folder"], "no-such-folder"),
    (["--data", "."], "no data set"),
    (["--data", ".", "--seeds", "0"], "--seeds"),
    (["--data", ".", "--sets", "nobody"], "nobody"),
    (["--data", ".", "--targets", "best"], "best"),
])  # fmt: skip
def test_bad_input_is_one_sentence(options, said, capsys, stopping, tmp_path):
    if len(options) > 2:
        _write(tmp_path)
    assert stopping.main([o if o != "." else str(tmp_path) for o in options]) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1
