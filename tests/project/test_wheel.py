"""The wheel has all files of the source and no other; versions are one wherever they stand."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import bayesmf
from wheel import ROOT, contents, expected


def test_versions_are_one():
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", changes, re.M)
    assert released[0] == bayesmf.__version__
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == bayesmf.__version__


def test_all_is_all_that_users_may_want():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = set(re.search(r"\[(.*)\]", extras["all"][0])[1].split(","))
    assert named == set(extras) - {"all", "ray-serve", "test", "docs", "dist"}


def test_the_page_is_part_of_the_source():
    needed = {"bayesmf/py.typed", "bayesmf/__init__.pyi", "bayesmf/web/static/index.html"}
    assert needed <= expected()
    assert not [name for name in expected() if name.endswith((".pyc", ".nbi", ".nbc"))]


def test_a_file_that_is_missing_is_told(tmp_path):
    whole = sorted(expected())
    with zipfile.ZipFile(tmp_path / "bayesmf-0-py3-none-any.whl", "w") as file:
        for name in whole[:-1]:
            file.writestr(name, "")
    command = [sys.executable, ROOT / "tests" / "helpers" / "wheel.py", file.filename]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"lacks ['{whole[-1]}']" in done.stderr


def test_a_wheel_is_built(tmp_path):
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"bayesmf-{bayesmf.__version__}-py3-none-any.whl"
    assert contents(wheel) == expected()
    with zipfile.ZipFile(wheel) as file:
        (licence,) = (name for name in file.namelist() if name.endswith("licenses/LICENSE"))
        assert b"Apache License" in file.read(licence)
        (told,) = (name for name in file.namelist() if name.endswith("METADATA"))
        text = file.read(told).decode()
    assert "Provides-Extra: web" in text and "# bayesmf" in text
    assert Path(file.filename).stat().st_size < 2_000_000
