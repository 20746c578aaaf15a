"""A wheel of the source: what must be in it, and whether it works without the source tree.

`make test-wheel` runs this file with the wheel that `make build` has made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "bayesmf"
# Quick ones that need neither the source tree nor packages beside those that are installed below.
TESTS = (
    "project/test_installed.py", "kernels/test_keys.py", "ids/test_id_map.py",
    "estimator/test_loading.py", "estimator/test_saving.py", "estimator/test_fold_in.py",
    "cli/test_cli_answers.py", "integrations/test_vectors.py",
)  # fmt: skip
TOOLS = ("pytest", "pyarrow", "pandas", "scipy")


def expected() -> set[str]:
    """Files of the package, as their paths in a wheel: all but what running it has left."""
    made = {"__pycache__"}
    return {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and not made & set(path.parts) and path.suffix not in (".nbi", ".nbc")
    }


def contents(wheel: Path) -> set[str]:
    """Files of the package in a wheel."""
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


def run(*command: str | Path, cwd: Path, **settings: str) -> None:
    """Run a command without what would lead it to the source tree; an error ends this."""
    left = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([*map(str, command)], cwd=cwd, check=True, env=left | settings)


def try_installed(wheel: Path, tests: tuple[str, ...] = TESTS) -> None:
    """Install a wheel with its extra `web` into a new environment, and run tests against it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        constraints = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
        run(
            python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
            f"{wheel}[web]", *TOOLS, cwd=folder, **constraints,
        )  # fmt: skip
        away = folder / "away"
        shutil.copytree(ROOT / "tests", away / "tests")
        shutil.copyfile(ROOT / "pyproject.toml", away / "pyproject.toml")  # settings of pytest
        found = subprocess.run(
            [python, "-c", "import bayesmf; print(bayesmf.__file__)"],
            cwd=away, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        if not found.startswith(str(folder / "env")):
            raise SystemExit(f"these are not the tests of the wheel: bayesmf is {found}")
        named = [f"tests/{test}" for test in tests]
        run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named, cwd=away)


if __name__ == "__main__":
    wheel = Path(sys.argv[1]).resolve()
    missing, more = expected() - contents(wheel), contents(wheel) - expected()
    if missing or more:
        raise SystemExit(f"{wheel.name} lacks {sorted(missing)} and has {sorted(more)} beside")
    print(f"{wheel.name}: {len(expected())} files, all that the source has")
    try:
        try_installed(wheel)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{wheel.name} does not work without the source tree") from error
