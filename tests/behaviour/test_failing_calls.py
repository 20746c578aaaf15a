"""I/O that fails at every call in turn: the old state or the new one is there, never less."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="open files are known by /proc")


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from benchmarks.attack.material import make

        yield make(tmp_path_factory.mktemp("failing") / "material")


def all_calls(name, material, box, full, stride=1, first=1):
    """Findings of every k, or of one in so many; how many calls there were."""
    from benchmarks.attack.failing import attempt
    from benchmarks.attack.shims import PythonShim

    shim, findings, k = PythonShim(box), [], first
    while True:
        found = attempt(name, k, full, shim, material, box)
        findings += [f"k={k} ({found.failed}): {text}" for text in found.findings]
        if not found.failed:
            return findings, k
        k += stride


@pytest.mark.parametrize("full", [False, True], ids=["once", "full"])
@pytest.mark.parametrize("name", ["save", "save over", "predict csv", "predict parquet"])
def test_a_file_or_a_model_is_the_old_or_the_new_one(name, full, material, tmp_path):
    # Some calls fail once, others for good; all of both by `python -m benchmarks attack --failing`.
    findings, calls = all_calls(name, material, tmp_path / "box", full)
    assert calls > (10 if name.startswith("save") else 4)
    assert not findings


@pytest.mark.parametrize(("name", "first"), [("pack", 1), ("checkpoint", 5)])
def test_a_long_job_goes_on(name, first, material, tmp_path):
    findings, calls = all_calls(name, material, tmp_path / "box", False, stride=25, first=first)
    assert calls > 90
    assert not findings


def test_the_shim_sees_what_fails(material, tmp_path):
    """A writer that is not careful is found out: else nothing above would mean anything."""
    from benchmarks.attack.writers import WRITERS, Writer

    def careless(material, work, given):
        (work / "out").write_text("half")
        (work / "out").write_text("half of it, and the rest")

    def state(material, work):
        return (work / "out").read_text() if (work / "out").exists() else None

    WRITERS["careless"] = Writer(lambda *_: None, careless, state)
    try:
        findings, calls = all_calls("careless", material, tmp_path / "box", False)
    finally:
        del WRITERS["careless"]
    assert calls == 5  # two times open and write, and one more
    assert any("OSError" in text for text in findings)
    assert any("neither the old nor the new" in text or "half" in text for text in findings)


PRELOADED = """
import os, sys
from pathlib import Path
import numpy as np
from benchmarks.attack.shims import PreloadShim
root = Path(sys.argv[1])
for k in range(1, 6):
    shim = PreloadShim(root)
    shim.arm(k, False)
    try:
        np.arange(9).tofile(root / "a")
        os.replace(root / "a", root / "b")
    except OSError as error:
        pass
    print(k, *shim.disarm())
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_the_preloaded_shim_sees_what_numpy_writes(tmp_path):
    sys.path.insert(0, str(ROOT))
    try:
        from benchmarks.attack.shims import compiled
    finally:
        sys.path.remove(str(ROOT))
    root = tmp_path / "root"
    root.mkdir()
    env = {**os.environ, "LD_PRELOAD": str(compiled(tmp_path)), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PRELOADED, str(root)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    failed = [line.split()[2:] for line in done.stdout.splitlines()]
    assert failed[:2] == [["open"], ["fwrite"]], done
    assert ["rename"] in failed and failed[-1] == []
