"""Where `bayesmf fit` runs: options that belong together, what is told, what is refused."""

import numpy as np
import pytest

from bayesmf.cli import main
from bayesmf.cli.fit import engine_facts


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    rng = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("ratings") / "r.csv"
    cells = rng.permutation(60 * 40)[:800]
    lines = [f"{c // 40},{c % 40},{r}" for c, r in zip(cells, rng.integers(1, 6, 800), strict=True)]
    file.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    return str(file)


def _fit(ratings, out, *more):
    return main(["fit", ratings, "--out", str(out), "--factors", "3", "--target", "fast", *more])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--ray-address", "auto"], "--ray-address is for --engine ray"),
        (["--engine", "serial", "--retries", "2"], "--retries is for --engine ray"),
        (["--engine", "serial", "--workers", "2"], "serial has one"),
    ],
)
def test_options_of_another_engine_are_refused(ratings, tmp_path, capsys, given, sentence):
    try:
        status = _fit(ratings, tmp_path / "m", *given)
    except SystemExit as end:
        status = end.code
    told = capsys.readouterr().err
    assert status == 2
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_faults_are_told():
    told = {
        "name": "ray", "workers": 2, "nodes": 2, "idle": [0.1, 0.4], "bytes_sent": 3e6,
        "bytes_received": 1e6, "task_seconds": {"median": 0.01}, "faults": ["one", "two"],
        "slowest_partitions": [{"partition": 3, "mean": 0.02}],
    }  # fmt: skip
    facts = dict(engine_facts(told))
    assert facts["engine"] == (
        "ray, 2 workers on 2 nodes, idle 10 to 40%, 4 MB of parameters moved"
    )
    assert facts["faults"] == "2 faults handled; the last: two"
    assert engine_facts(None) == []
