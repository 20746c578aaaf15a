"""Options of `python -m benchmarks.faults`; test_ray.py injects some of its faults."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import faults

NO_RAY = importlib.util.find_spec("ray") is None
pytestmark = pytest.mark.skipif(NO_RAY, reason="the extra 'ray' is not installed")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kinds", "flood"], "'flood' is none of worker, node"),
        (["--n", "-1"], "0 or more"),
        (["--out", "."], "not empty"),
    ],
)
def test_bad_options_are_one_sentence(options, said, capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(SystemExit, match="2"):
        faults.main(options)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("faults: ") and said in line


def test_without_ray_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setattr(faults.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        faults.main([])
    assert "pip install ray" in capsys.readouterr().err


def test_the_seed_decides_what_happens():
    args = faults.parse(["--n", "14", "--drivers", "3", "--seed", "5"])
    kinds = faults.plan(args)
    assert kinds == faults.plan(args) and len(kinds) == 17
    assert all(kinds[:14].count(kind) == 2 for kind in faults.KINDS)
    assert kinds[14:] == ["driver"] * 3
