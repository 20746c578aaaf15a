"""The benchmarks that compare, with our own samplers on a few planted ratings."""

import csv
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from bayesmf import Synthetic

ROOT = Path(__file__).resolve().parents[2]


def race(*options):
    command = [sys.executable, "-m", "benchmarks", "time_to_rmse", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_a_race_writes_checkpoints_table_and_figure(tmp_path):
    done = race(
        "--synthetic", 0.001, "--systems", "gibbs,sgld,myfm", "--quick", "--repeats", 1,
        "--factors", 4, "--target", 1.2, 1.0, "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with (tmp_path / "time_to_rmse.csv").open() as file:
        rows = list(csv.DictReader(file))
    for system in ("gibbs", "sgld"):
        lines = [row for row in rows if row["system"] == system]
        seconds = [float(row["seconds"]) for row in lines]
        assert len(lines) == 8
        assert seconds == sorted(seconds)
        assert 0.8 < min(float(row["rmse"]) for row in lines) < 1.3
    table = (tmp_path / "time_to_rmse.md").read_text()
    assert "| bayesmf Gibbs |" in table and "s to 1.0000" in table
    # No environment of the peers was named: said so, and the rest ran.
    assert "| myFM |" in table and "missing: no environment" in table
    assert (tmp_path / "time_to_rmse.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("options", "said"), [
    ([], "name some data"),
    (["--synthetic", "2"], "--synthetic"),
    (["--synthetic", "0.001", "--systems", "nobody"], "nobody"),
    (["--ml-1m", "no-such-folder"], "no-such-folder"),
])  # fmt: skip
def test_bad_input_is_one_sentence(options, said, capsys):
    from benchmarks.speed.time_to_rmse import main

    assert main(options) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.count("\n") == 1


def test_defaults_on_the_data_sets_of_a_folder(tmp_path, capsys):
    from benchmarks.accuracy.defaults import main

    (tmp_path / "ml-latest-small").mkdir()
    made = Synthetic(60, 40, 900, stars=True).ratings()
    lines = [f"{u},{i},{r}" for u, i, r in zip(made.users, made.items, made.rating, strict=True)]
    text = "\n".join(["userId,movieId,rating", *lines, ""])
    (tmp_path / "ml-latest-small/ratings.csv").write_text(text)
    out = tmp_path / "out"
    options = ["--folder", str(tmp_path), "--sets", "ml-latest-small", "--out", str(out)]
    # An interpreter without myFM: said so, and ours are there.
    assert main([*options, "--peers-python", sys.executable]) == 0
    printed = capsys.readouterr()
    assert "no myFM" in printed.err and "| ml-latest-small | 810 | 90 |" in printed.out


def test_variants_are_what_they_are_called():
    from benchmarks import data_sets

    split = Synthetic(200, 80, 4000, stars=True).ratings().split(0.1, random_state=0)
    train, test = data_sets.scaled(-10, 10)(split)
    assert train.range() == (-10, 10) and test.range() == (-10, 10)
    halves = data_sets.half_stars(split)[0].rating
    assert np.array_equal(2 * halves, np.round(2 * halves)) and halves.max() <= 5
    before = np.bincount(split[0].user_rows, minlength=200)
    train, test = data_sets.lonely("user")(split)
    after = np.bincount(train.user_rows, minlength=200)
    assert (after == 1).sum() == 60 and set(after) <= {1, *before}
    assert np.array_equal(test.rating, split[1].rating)


# Peers that do nothing but take their time, as their interfaces are used here.
FAKES = {
    "libmf.py": """
        import time

        class mf:
            class MF:
                def __init__(self, nr_iters, nr_threads, **options):
                    assert nr_threads == 1
                    self.epochs = nr_iters

                def fit(self, ratings):
                    print("talks")
                    time.sleep(0.01 + 0.002 * self.epochs)
        """,
    "smurff.py": """
        from types import SimpleNamespace as Some

        def AdaptiveNoise(**options): ...

        class TrainSession:
            def __init__(self, nsamples, num_threads, **options):
                assert num_threads == 1
                self.left = nsamples

            def setTrain(self, *args): ...
            def setTest(self, *args): ...
            def init(self): ...

            def step(self):
                self.left -= 1
                return Some(elapsed_iter=0.25) if self.left >= 0 else None
        """,
    "myfm.py": """
        import time

        class MyFMRegressor:
            def __init__(self, **options): ...

            def fit(self, X, y, n_iter, callback, **options):
                assert X.shape[0] == len(y)
                for i in range(n_iter):
                    time.sleep(0.003)
                    if callback(i, None, None, None)[0]:
                        break
        """,
}


@pytest.fixture
def fake_peers(tmp_path, monkeypatch):
    """An interpreter that has them all."""
    folder = tmp_path / "peers"
    folder.mkdir()
    for name, text in FAKES.items():
        (folder / name).write_text(textwrap.dedent(text))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return sys.executable


@pytest.fixture
def small(monkeypatch):
    """A few sizes of a few epochs."""
    from benchmarks.speed import scale_speed
    from benchmarks.speed import timers as bench

    monkeypatch.setattr(bench, "MOST", 2)
    monkeypatch.setattr(scale_speed, "SGD_FACTORS", (3, 4))
    cases = [(*names, bench.Timed(c.sampler, 3, prior=c.prior)) for *names, c in scale_speed.GIBBS]
    monkeypatch.setattr(scale_speed, "GIBBS", (cases[0], cases[-1]))
    monkeypatch.setattr(scale_speed, "LINEAR_FACTORS", (3, 6))
    monkeypatch.setattr(scale_speed, "THREAD_FACTORS", 3)
    monkeypatch.setattr(scale_speed, "LINEAR_RATINGS", (1e6, 1e7, 1e8))


def test_sections_beside_peers(small, fake_peers, tmp_path, capsys):
    from benchmarks.speed.scale import main

    files = [tmp_path / name for name in ("scale.json", "scale.md")]
    options = ["--peers", fake_peers, "--scale", "0.001", "--repeats", "2", "--only", "sgd"]
    assert main([*options, "gibbs", "--json", str(files[0]), "--markdown", str(files[1])]) == 0
    found = json.loads(files[0].read_text())
    assert found["machine"]["cores"] >= 1
    rows = found["sgd"]["rows"]
    assert [row["rule"] for row in rows[:3]] == ["LIBMF", "sgd", "sgld"] and len(rows) == 12
    assert 0.001 < rows[0]["seconds_per_epoch"] < 0.02 and rows[0]["times_libmf"] == 1
    for row in rows:
        ratio = rows[0 if row["factors"] == 3 else 6]["seconds_per_epoch"]
        assert row["times_libmf"] == pytest.approx(ratio / row["seconds_per_epoch"])
    smurff, myfm = found["gibbs"]["rows"]
    assert (smurff["peer"], smurff["prior"], smurff["peer_seconds"]) == ("smurff", "wishart", 0.25)
    assert (myfm["peer"], myfm["prior"]) == ("myfm", "gamma")
    assert 0.003 <= myfm["peer_seconds"] < 0.05
    printed = capsys.readouterr().out
    assert files[1].read_text().strip() in printed.replace("\n\n\n", "\n\n")
    assert "| LIBMF | 3 |" in printed and "tells nothing about its build" in printed


def test_growth_is_fitted_and_drawn(small, tmp_path, capsys):
    from benchmarks.speed.scale import main

    json_file, figure = tmp_path / "scale.json", tmp_path / "scale.png"
    options = ["--scale", "0.001", "--repeats", "1", "--only", "linear", "--json", str(json_file)]
    assert main([*options, "--figure", str(figure)]) == 0
    found = json.loads(json_file.read_text())["linear"]
    sizes = [(row["ratings"], row["factors"]) for row in found["rows"]]
    assert sizes == [(1000, 30), (10000, 30), (10000, 3), (10000, 6)]
    assert set(found["exponents"]) == {"sgd", "sgld", "gibbs-4"}
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "| exponent of D |" in capsys.readouterr().out


FILES = ("train.parquet", "test.parquet", "truth.safetensors")


def test_files_of_a_large_set_are_made_once(tmp_path):
    from benchmarks.speed import scale as scale_large
    from benchmarks.speed.scale import main

    out = tmp_path / "scale.json"
    quick = "--fit-options=--epochs 6 --burn-in 2 --chains 1"
    options = ["--scale", "0.0001", "--folder", str(tmp_path), quick, "--json", str(out)]
    assert main([*options, "--only", "netflix"]) == 0
    found = json.loads(out.read_text())["netflix"]
    assert found["fit"]["epochs"] == 6 and found["fit"]["peak_mb"] > 50
    assert found["ratings"] + found["synth"]["held_out"] == found["synth"]["ratings"] == 10048
    assert found["bound"]["truth"] <= found["bound"]["bound"] < found["fit"]["rmse"] * 1.2
    made = (tmp_path / "netflix-0.0001/train.parquet").stat().st_mtime_ns
    plan = scale_large.Plan(scale=0.0001, folder=tmp_path)
    files = [tmp_path / "netflix-0.0001" / name for name in FILES]
    assert scale_large._synth("netflix", plan, *files) == found["synth"]
    assert scale_large._pack(files[0], files[0].with_name("packed")) == found["pack"]
    assert files[0].stat().st_mtime_ns == made


def test_a_child_is_measured_alone():
    from benchmarks.speed.child import measured

    done = measured([sys.executable, "-c", "x = bytearray(150 << 20); print(len(x)); exit(3)"])
    assert (done["status"], done["out"]) == (3, f"{150 << 20}\n")
    assert 150 < done["peak_mb"] < 200
    room = bytearray(400 << 20)  # ours, and no child's
    assert measured([sys.executable, "-c", ""])["peak_mb"] < 100 < len(room)
