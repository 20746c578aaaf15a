"""Kernels give the same bits whatever else the process compiled: see bayesmf/kernels/jit.py."""

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core.dispatcher import Dispatcher

import bayesmf
from bayesmf.kernels import jit
from bayesmf.kernels.jit import EXACT, CacheWarning, njit

# The first runs when it is imported, the others need extras or other people's packages.
SKIPPED = ("bayesmf.__main__", "bayesmf.engines.ray.engine", "bayesmf.integrations.")


def load_kernels() -> list[Dispatcher]:
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(bayesmf.__path__, "bayesmf.")
        if not module.name.startswith(SKIPPED)
    ]
    named = {id(one): one for module in modules for one in vars(module).values()}
    return [one for one in named.values() if isinstance(one, Dispatcher)]


def called_by(kernel: Dispatcher) -> list[Dispatcher]:
    """Kernels that its code names, and those that `inline="always"` puts into it."""
    function = kernel.py_func
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    found = [one for one in named if isinstance(one, Dispatcher)]
    return found + [deep for one in found if is_inline(one) for deep in called_by(one)]


def is_inline(kernel: Dispatcher) -> bool:
    return kernel.targetoptions.get("inline") == "always"


def is_part(kernel: Dispatcher) -> bool:
    return is_inline(kernel) or bool(kernel.targetoptions.get("forceinline"))


def is_fast(kernel: Dispatcher) -> bool:
    return bool(kernel.targetoptions.get("fastmath"))


@pytest.fixture(scope="module")
def kernels():
    return load_kernels()


def test_what_stays_a_function_reorders_nothing(kernels):
    """Neither itself nor by a part that brought its freedom along."""
    called = {id(one): one for kernel in kernels for one in called_by(kernel)}
    apart = [one for one in called.values() if not is_part(one)]
    assert len(apart) > 20  # they were found
    assert [one.py_func.__name__ for one in apart if is_fast(one)] == []
    exact = [one for one in kernels if not is_fast(one) and not is_inline(one)]
    brought = [
        (one.py_func.__name__, part.py_func.__name__)
        for one in exact
        for part in called_by(one)
        if is_part(part) and is_fast(part)
    ]
    assert brought == []


def test_all_are_cached_and_let_other_threads_run(kernels):
    compiled = [kernel for kernel in kernels if not is_inline(kernel)]
    assert len(compiled) > 60  # they were found
    for kernel in compiled:
        assert kernel.targetoptions.get("nogil"), kernel
        assert kernel.stats.cache_path, kernel


def test_nothing_private_of_numba_is_imported():
    """Documented: `numba`, `numba.types`, `numba.extending`; so there is no upper bound on it."""
    allowed = {"numba", "numba.types", "numba.extending"}
    for path in Path(bayesmf.__path__[0]).rglob("*.py"):
        names = set(re.findall(r"^\s*(?:from|import) (numba[\w.]*)", path.read_text(), re.M))
        assert names <= allowed, path


PROGRAM = """
import ctypes, os, sys, warnings
if os.geteuid() == 0:  # give up the right to write where nobody may
    ids, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(ids, none) == 0
sys.path.insert(0, SOURCE)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from bayesmf import small
    found = small.double(4), small.double(4.5), small.triple(2)
assert found == (8, 9.0, 6), found
for one in caught:
    print(type(one.message).__name__, one.message)
hits = [sum(one.stats.cache_hits.values()) for one in (small.double, small.triple)]
print("compiled", hits != [2, 1])
"""


@pytest.fixture
def installed(tmp_path):
    """A copy of the package with two small kernels of its own."""
    if not sys.platform.startswith("linux"):
        pytest.skip("rights are others elsewhere")
    package = tmp_path / "lib" / "bayesmf"
    (package / "kernels").mkdir(parents=True)
    for name in ("__init__.py", "__init__.pyi", "kernels/__init__.py", "kernels/jit.py"):
        shutil.copy(f"{bayesmf.__path__[0]}/{name}", package / name)
    (package / "small.py").write_text(
        "from bayesmf.kernels.jit import EXACT, njit\n\n"
        "@njit(**EXACT)\ndef double(x):\n    return 2 * x\n\n"
        "@njit(**EXACT)\ndef triple(x):\n    return 3 * x\n"
    )
    yield tmp_path / "lib"
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755)


def start(installed, **environment):
    """Run it, without a home to write to."""
    home = installed.parent / "home"
    home.mkdir(exist_ok=True)
    home.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM.replace("SOURCE", repr(str(installed)))],
        env={"HOME": str(home), "PATH": os.environ["PATH"], **environment}, cwd="/",
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def forbid(folder):
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


def test_an_installation_that_cannot_be_written_to_compiles_without_a_cache(installed):
    forbid(installed)
    told, compiled = start(installed)
    assert told.startswith("CacheWarning compiled code cannot be cached")
    assert "NUMBA_CACHE_DIR" in told and compiled == "compiled True"
    folder = installed.parent / "cache"
    folder.mkdir()
    assert start(installed, NUMBA_CACHE_DIR=str(folder)) == ["compiled True"]
    assert start(installed, NUMBA_CACHE_DIR=str(folder)) == ["compiled False"]
    forbid(folder)
    told, compiled = start(installed, NUMBA_CACHE_DIR=str(folder))
    assert "NUMBA_CACHE_DIR" in told and compiled == "compiled True"


def test_code_compiled_from_other_sources_is_not_used(installed):
    folder = installed.parent / "cache"
    folder.mkdir()
    found = [start(installed, NUMBA_CACHE_DIR=str(folder)) for _ in range(2)]
    assert found == [["compiled True"], ["compiled False"]]
    with (installed / "bayesmf" / "kernels" / "helper.py").open("w") as helper:
        helper.write("# another version of a module that kernels use\n")
    for index in folder.rglob("*.nbi"):  # what numba cannot read, such as a type that is gone
        index.write_bytes(b"0.68.0" + b"\x80\x04cgone\nType\n.")
    assert start(installed, NUMBA_CACHE_DIR=str(folder)) == ["compiled True"]
    assert start(installed, NUMBA_CACHE_DIR=str(folder)) == ["compiled False"]
    (stamp,) = folder.rglob("sources.sha256")
    stamp.write_bytes(b"\xff damaged")
    assert start(installed, NUMBA_CACHE_DIR=str(folder)) == ["compiled True"]


@pytest.fixture
def forgetful():
    """Warnings and looks at the disk of before are forgotten."""
    for function in (jit._has_room, jit._warn_uncached):
        function.cache_clear()
    yield
    jit._has_room.cache_clear()


@pytest.mark.usefixtures("forgetful")
def test_a_full_disk_is_reported_once(monkeypatch):
    monkeypatch.setattr(jit.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.warns(CacheWarning, match="has no room") as caught:
        once, again = (njit(**EXACT)(lambda x: 2 * x) for _ in range(2))
    assert once(2) == again(2) == 4 and len(caught) == 1
    assert once.stats.cache_path is None


@pytest.mark.usefixtures("forgetful")
def test_a_function_without_a_folder_is_compiled():
    namespace = {}
    exec(compile("def kernel(x):\n    return x", "<nowhere>", "exec"), namespace)
    with pytest.warns(CacheWarning, match="no folder"):
        kernel = njit(**EXACT)(namespace["kernel"])
    assert kernel(3) == 3


REHEARSED = """
import gc, warnings
from numba.core.dispatcher import Dispatcher
from bayesmf import SGD, SGHMC, SGLD, BayesianMF, Gibbs, Synthetic
from bayesmf.run import driver as server

def compiled():
    kernels = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    ours = [one for one in kernels if one.py_func.__module__.startswith("bayesmf.")]
    return {(one.py_func.__name__, signature) for one in ours for signature in one.overloads}

def run(*args):
    before = compiled()
    done = right(*args)
    print(name, sorted({kernel for kernel, _ in compiled() - before}))
    return done

warnings.simplefilter("ignore")
right, server.run = server.run, run
train, test = Synthetic(40, 30, 600, stars=True).ratings().split(0.1)
for name, prior, sampler in (
    ("SGLD", "gamma", SGLD(grid=(2, 2), n_chains=2, epochs=6)), ("SGD", "gamma", SGD(epochs=4)),
    ("SGHMC", "gamma", SGHMC(grid=(2, 1), epochs=8)),
    ("Gibbs", "gamma", Gibbs(epochs=6)), ("columns", "auto", Gibbs(epochs=6, joint=4)),
):
    model = BayesianMF(9, prior=prior, sampler=sampler, random_state=0)
    model.fit(train, validation=test)
"""


def test_nothing_is_left_to_compile_when_the_clock_begins():
    """Or speeds, budgets and `max_seconds` would count the compiler: all has been called before."""
    found = subprocess.run(
        [sys.executable, "-c", REHEARSED], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr
    told = dict(line.split(maxsplit=1) for line in found.stdout.splitlines())
    assert told == dict.fromkeys(("SGLD", "SGD", "SGHMC", "Gibbs", "columns"), "[]")
