"""Kernels give the same bits whatever else the process compiled: see bayesmf/compiling.py."""

import importlib
import pkgutil
import subprocess
import sys

import pytest
from numba.core.dispatcher import Dispatcher

import bayesmf
from bayesmf.compiling import CacheFile

SKIPPED = ("bayesmf.__main__", "bayesmf.engines.ray")  # the one runs, the other needs an extra


def load_kernels() -> list[Dispatcher]:
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(bayesmf.__path__, "bayesmf.")
        if module.name not in SKIPPED
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


def test_all_are_kept_and_let_other_threads_run(kernels):
    for kernel in kernels:
        if not is_inline(kernel):
            assert kernel.targetoptions.get("nogil"), kernel
            assert type(kernel._cache).__name__ != "NullCache", kernel


def make_file(folder) -> CacheFile:
    return CacheFile(str(folder), "kernel", "stamp")


def test_two_processes_never_load_the_version_of_the_other(tmp_path, monkeypatch):
    """Both read the index before either writes: numba would give both versions number 1."""
    one, two = make_file(tmp_path), make_file(tmp_path)
    with monkeypatch.context() as patch:
        for file in (one, two):
            patch.setattr(file, "_load_index", dict)
        one.save("int32", "code for int32")
        two.save("int64", "code for int64")
    found = [make_file(tmp_path).load(key) for key in ("int32", "int64")]
    assert found == [None, "code for int64"]  # one is forgotten, and compiled once more
    one.save("int32", "code for int32")
    assert make_file(tmp_path).load("int32") == "code for int32"
    assert make_file(tmp_path).load("int64") == "code for int64"


def test_an_index_that_names_a_class_that_is_gone(tmp_path, monkeypatch):
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "Gone", type("Gone", (), {"__module__": __name__}), raising=False)
    make_file(tmp_path).save(module.Gone(), "old code")
    monkeypatch.undo()
    file = make_file(tmp_path)
    assert file.load("key") is None
    file.save("key", "code")
    assert file.load("key") == "code"


REHEARSED = """
import gc, warnings
from numba.core.dispatcher import Dispatcher
from bayesmf import SGD, SGHMC, SGLD, BayesianMF, Gibbs, RowClock, Synthetic, learning

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
right, learning.run = learning.run, run
train, test = Synthetic(40, 30, 600, stars=True).ratings().split(0.1)
for name, prior, sampler in (
    ("SGLD", "gamma", SGLD(grid=(2, 2), n_chains=2, epochs=6)), ("SGD", "gamma", SGD(epochs=4)),
    ("RowClock", "gamma", RowClock(grid=(2, 1), epochs=8)), ("SGHMC", "gamma", SGHMC(epochs=8)),
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
    assert told == dict.fromkeys(("SGLD", "SGD", "RowClock", "SGHMC", "Gibbs", "columns"), "[]")
