"""The Dockerfile, checked without an engine: its parts are run one by one."""

import json
import re
import subprocess
import sys
import threading
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
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


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1)])
def test_the_health_check(status, expected):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *said):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _, code = json.loads(of("HEALTHCHECK")[0].partition("CMD ")[2])[1:]
    code = code.replace(":8000/", f":{server.server_port}/")
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == expected


def test_kernels_are_compiled():
    pytest.importorskip("fastapi")
    (code,) = (run for run in of("RUN") if run.startswith("python -c"))
    exec(code.removeprefix('python -c "').removesuffix('"').replace("; ", "\n"), {})
