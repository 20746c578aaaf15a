"""The Dockerfile, checked without an engine: its parts are run one by one."""

import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from bayesmf.cli import main

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "Dockerfile").exists():
    pytest.skip("no source tree", allow_module_level=True)
TEXT = re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"))
STEPS = [line.split(maxsplit=1) for line in TEXT.replace("\\\n", "").splitlines() if line.strip()]


def of(kind):
    return [rest for name, rest in STEPS if name == kind]


def test_copied_files_exist_and_are_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    for copied in of("COPY"):
        *sources, _ = copied.split()
        for source in sources:
            if not copied.startswith("--from"):
                assert (ROOT / source).exists()
                assert any(fnmatch(source, pattern) for pattern in allowed)
    # What the build of the wheel reads.
    assert {"README.md", "LICENSE", "pyproject.toml", "constraints.txt", "src"} == set(allowed)


def test_it_does_not_run_as_root():
    kinds = [name for name, _ in STEPS]
    assert of("USER") == ["10001"] and kinds.index("USER") < kinds.index("CMD")
    assert "--uid 10001" in TEXT and "chown" not in TEXT


def test_the_command_is_valid(tmp_path, capsys):
    command = json.loads(of("ENTRYPOINT")[0]) + json.loads(of("CMD")[0])
    assert command[:3] == ["bayesmf", "serve", "/models/model.bayesmf"] and "0.0.0.0" in command
    assert of("EXPOSE") == [command[command.index("--port") + 1]]
    # The only error is the missing model.
    command[command.index("/models/model.bayesmf")] = str(tmp_path / "model")
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(command[1:]))
    assert ended.value.code == 2 and "There is no model" in capsys.readouterr().err


def test_kernels_are_compiled():
    pytest.importorskip("fastapi")
    (code,) = (run for run in of("RUN") if run.startswith("python -c"))
    exec(code.removeprefix('python -c "').removesuffix('"').replace("; ", "\n"), {})
