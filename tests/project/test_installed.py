"""What is installed is whole: every module imports, and what they read beside them is there.

`make test-wheel` runs it against a wheel, where there is no source tree.
"""

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import urllib.request
from importlib.metadata import entry_points, metadata, requires, version
from importlib.resources import files

import pytest

import bayesmf

MODULES = sorted(found.name for found in pkgutil.walk_packages(bayesmf.__path__, "bayesmf."))
# Tools that one module each is for, and that need not be there.
OPTIONAL = {"ray", "matplotlib", "arviz", "mlflow", "lenskit", "cornac", "fastapi", "uvicorn",
            "prometheus_client", "pydantic", "starlette", "torch"}  # fmt: skip


def test_every_module_imports():
    assert len(MODULES) > 150
    absent = {}
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            absent[name] = (error.name or "").partition(".")[0]
    assert not {name: what for name, what in absent.items() if what not in OPTIONAL}


def test_every_public_name_is_there():
    assert len(bayesmf.__all__) > 40
    assert all(getattr(bayesmf, name) is not None for name in bayesmf.__all__)


def test_types_and_the_page_come_along():
    package = files("bayesmf")
    assert package.joinpath("py.typed").is_file()
    static = package.joinpath("web", "static")
    page = static.joinpath("index.html").read_text("utf-8")
    named = set(re.findall(r'(?:src|href)="[./]*(?:static/)?([\w.-]+\.(?:js|css|svg))"', page))
    assert {"main.js", "style.css"} <= named
    scripts = [one.read_text("utf-8") for one in static.iterdir() if one.name.endswith(".js")]
    named |= {name for text in scripts for name in re.findall(r'from "\./([\w.-]+\.js)"', text)}
    assert len(named) > 10
    assert not [name for name in named if not static.joinpath(name).is_file()]


def test_the_command_and_the_extras_are_declared():
    (command,) = entry_points(group="console_scripts", name="bayesmf")
    assert callable(command.load())
    if "site-packages" in bayesmf.__file__:  # else that of the day of `pip install -e`
        assert version("bayesmf") == bayesmf.__version__
    told = metadata("bayesmf")
    assert told["License-Expression"] == "Apache-2.0" and told["Requires-Python"] == ">=3.11"
    extras = set(told.get_all("Provides-Extra"))
    assert {"plots", "arviz", "ray", "web", "mlflow", "all"} <= extras
    asked = {re.match(r"[\w-]+", one)[0] for one in requires("bayesmf") if "extra ==" not in one}
    assert asked == {"numpy", "numba", "polars", "tqdm"}


def test_the_service_answers_and_has_its_page(tmp_path):
    pytest.importorskip("uvicorn")
    ratings = bayesmf.Synthetic(60, 40, 1200, stars=True).ratings()
    model = bayesmf.BayesianMF(4, sampler=bayesmf.Gibbs(epochs=20), random_state=0).fit(ratings)
    model.save(tmp_path / "model")
    command = [sys.executable, "-m", "bayesmf", "serve", str(tmp_path / "model"), "--port", "0"]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **piped) as running:
        try:
            root = next(filter(None, (re.search(r"http://\S+/", s) for s in running.stdout)))[0]

            def get(path):
                with urllib.request.urlopen(root + path, timeout=60) as answer:
                    return answer.read().decode()

            assert json.loads(get("healthz"))["status"] == "ok"
            named = re.findall(r'(?:src|href)="/?([^":]+\.(?:js|css|svg))"', get(""))
            assert len(named) > 1 and all(get(path) for path in named)
            assert "/recommend" in get("openapi.json")
        finally:
            running.terminate()
    assert running.returncode in (0, 143)  # the latter where it was still compiling
