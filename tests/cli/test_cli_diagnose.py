"""`bayesmf diagnose`: convergence, calibration on a test set, pictures."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from bayesmf import BayesianMF, Ratings
from bayesmf.cli.diagnose import KINDS
from cli_tools import SGD, Data, contents, run
from forged import forge

PICTURES = {"reliability.png", "pit.png", "traces.png", "rmse.png"}


# -- convergence ----------------------------------------------------------------------------------


def test_diagnose(data: Data) -> None:
    found = run("diagnose", data.model, "--json").json
    model = BayesianMF.load(data.model)
    assert found["diagnostics"] == model.diagnose()
    assert (found["chains"], found["draws_per_chain"]) == (2, 45)
    assert found["fit"] == model.report_
    assert found["verdict"] == model.report_["convergence"]["verdict"]
    assert found["converged"] is model.report_["convergence"]["converged"] is not None
    assert (found["test"], found["calibration"], found["plots"]) == (None, None, [])
    told = run("diagnose", data.model).out
    assert all(f"\n{name} " in told for name in KINDS.values())
    assert "Gibbs: " in told
    assert " ".join(told.split()).startswith(f"converged {found['verdict']} ")


def test_diagnose_of_one_state(data: Data, tmp_path: Path) -> None:
    assert run("fit", data.train, "--out", tmp_path / "m", *SGD).status == 0
    found = run("diagnose", tmp_path / "m", "--json").json
    assert found["diagnostics"]["prediction"]["rhat"] is None
    assert found["converged"] is None and "SGD is an optimiser" in found["verdict"]
    ran = run("diagnose", tmp_path / "m", "--plots", tmp_path / "p")
    assert ran.out.startswith("converged  SGD is an optimiser")
    assert contents(tmp_path / "p") == {"rmse.png"}
    assert ran.err == "bayesmf: traces.png is not drawn: it needs two draws of a chain\n"


# -- calibration ----------------------------------------------------------------------------------


def test_calibration_as_json(data: Data) -> None:
    found = run("diagnose", data.model, "--test", data.test, "--json").json
    model = BayesianMF.load(data.model)
    want = model.calibration(Ratings.read(data.test))
    told = found["calibration"]
    assert told["pit"] == list(want.pit)
    assert told["observed"] == list(want.observed)
    assert [group["n"] for group in told["groups"]] == [group.n for group in want.groups]
    assert told["verdict"] == want.verdict
    assert {k: found["test"][k] for k in told["overall"]} == told["overall"]
    assert found["test"]["rmse"] == model.evaluate(Ratings.read(data.test)).rmse
    assert found["test"]["unseen"] == 0


def test_calibration_for_people(data: Data) -> None:
    ran = run("diagnose", data.model, "--test", data.test)
    want = BayesianMF.load(data.model).calibration(Ratings.read(data.test))
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.isascii()
    assert f"\nRMSE  {want.overall.rmse:.4f} +/- {want.overall.rmse_se:.4f}\n" in ran.out
    for name in ("MAE", "NLL", "CRPS"):
        assert f"\n{name:<4}  {getattr(want.overall, name.lower()):.4f}\n" in ran.out
    table = {tuple(line.split()[:2]): line.split() for line in ran.out.splitlines() if line}
    for group in want.groups:
        row = table[tuple(group.label.split())]
        shares = [f"{100 * share:.1f}%" for share in group.coverage.values()]
        assert row[2:] == [group.span, str(group.n), f"{group.rmse:.4f}", *shares]
    bars = re.findall(r"^\d\.\d-\d\.\d +(\d+) +[\d.]+%  (#*)$", ran.out, re.MULTILINE)
    counts = [int(n) for n, _ in bars]
    assert counts == [a + b for a, b in zip(want.pit[::2], want.pit[1::2], strict=True)]
    longest = max(len(marks) for _, marks in bars)
    assert [len(m) == longest for _, m in bars] == [n == max(counts) for n in counts]
    assert f" intervals {want.verdict} ratings " in " ".join(ran.out.split())


def test_unseen_ids_are_in_the_lowest_group(data: Data, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    rows = data.test.read_text().splitlines()
    file.write_text("\n".join([*rows, "ann,1,3", "bob,tea,4"]) + "\n")
    found = run("diagnose", data.model, "--test", file, "--json").json
    assert (found["test"]["n"], found["test"]["unseen"]) == (182, 2)
    low = {(g["side"], g["name"]): g["low"] for g in found["calibration"]["groups"]}
    assert low["user", "fewest"] == low["item", "fewest"] == 0
    assert "2 of them with an unseen" in run("diagnose", data.model, "--test", file).out


# -- pictures -------------------------------------------------------------------------------------


def test_pictures(data: Data, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    args = ("diagnose", data.model, "--plots", folder)
    found = run(*args, "--test", data.test, "--json").json
    assert set(found["plots"]) == {str(folder / name) for name in PICTURES}
    assert contents(folder) == PICTURES
    for name in PICTURES:
        png = (folder / name).read_bytes()
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert len(png) > 10_000
    told = run(*args).out
    assert f"\ntraces.png, rmse.png drawn in {folder}\n" in told


def test_a_model_without_history(data: Data, tmp_path: Path) -> None:
    old = shutil.copy(data.model, tmp_path / "old")
    forge(old, lambda arrays, meta: arrays.update(history=arrays["history"][:0]))
    ran = run("diagnose", tmp_path / "old", "--plots", tmp_path / "p")
    assert ran.status == 0
    assert "rmse.png is not drawn: the model has no history" in ran.err
    assert contents(tmp_path / "p") == {"traces.png"}


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = run("diagnose", tmp_path / "no-model", "--plots", tmp_path / "p")
    assert ran.status == 2
    assert "pip install matplotlib" in ran.sentence
    assert contents(tmp_path) == set()


def test_places_that_cannot_be_written_to(data: Data, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run("diagnose", data.model, "--plots", tmp_path / "file")
    assert ran.status == 2
    assert "cannot make the folder" in ran.sentence
    (tmp_path / "p" / "rmse.png").mkdir(parents=True)
    ran = run("diagnose", data.model, "--plots", tmp_path / "p")
    assert ran.status == 2
    assert "not a regular file" in ran.sentence
    assert contents(tmp_path / "p") == {"rmse.png"}
