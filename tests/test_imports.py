"""Imports follow docs/design.md; `import bayesmf` is quick and drags nothing heavy along."""

import subprocess
import sys
from pathlib import Path

import pytest

import bayesmf

ROOT = Path(bayesmf.__file__).parent


def _modules():
    for path in sorted(ROOT.rglob("*.py")):
        yield path, path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_import_is_quick():
    """Processor time of an import in a fresh process, beside that of numba alone.

    A ratio, because machines are shared; it is 2.3 to 2.6.
    """

    def seconds(statement):
        code = f"import time; t = time.process_time()\n{statement}\nprint(time.process_time() - t)"
        runs = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
            for _ in range(4)
        ]
        return min(map(float, runs))

    assert seconds("from bayesmf import BayesianMF, SGLD, Ratings") < 3 * seconds("import numba")


def test_public_names():
    assert sorted(bayesmf.__all__) == sorted(bayesmf._HOMES)
    for name in bayesmf.__all__:
        assert getattr(bayesmf, name).__name__ in (name, name.removeprefix("D"))
    with pytest.raises(AttributeError, match="NMF"):
        _ = bayesmf.NMF


def test_files_stay_small():
    long = {
        path.name: n for path, _ in _modules() if (n := len(path.read_text().splitlines())) > 430
    }
    assert not long
