"""Kernels give the same bits whatever else the process compiled: see bayesmf/kernels/jit.py."""

import contextlib
import importlib
import os
import pickle
import pkgutil
import shutil
import subprocess
import sys

import numba
import pytest
from numba.core import caching, config, event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

import bayesmf
from bayesmf.kernels.jit import CLOCK, EXACT, CacheFile, CacheWarning, KernelCache, njit

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
        assert type(kernel._cache) is KernelCache, kernel


@numba.njit(cache=True)
def plain(x):
    return x


# What kernels/jit.py and kernels/simd.py take from inside numba, which promises none of it: the
# class, what it must have, and what that is for.
PRIVATE = [
    (caching.IndexDataCacheFile, ("_load_index", "_save_index", "_load_data", "_save_data",
     "_data_path", "_open_for_write", "_dump", "save", "load"), "CacheFile replaces or calls it"),
    (caching.FunctionCache, ("_load_overload", "_save_overload", "save_overload"),
     "KernelCache replaces it"),
    (caching.FunctionCache, ("_impl_class",), "KernelCache chooses the folders by it"),
    (caching.CompileResultCacheImpl, ("_locator_classes",), "_Locators adds folders to it"),
    (caching.InTreeCacheLocator, ("from_function", "get_cache_path"), "_ReadOnly replaces it"),
    (caching.UserProvidedCacheLocator, ("from_function", "get_cache_path"),
     "_ReadOnlyChosen replaces or calls it"),
    (caching.NullCache, ("save_overload", "load_overload"), "_NoCache replaces it"),
    (event, ("register", "Listener"), "CompileClock listens by it"),
    (event.Listener, ("on_start", "on_end"), "CompileClock is told by it"),
    (config, ("CACHE_DIR",), "_ReadOnlyChosen reads it"),
    (global_compiler_lock, ("acquire", "release"), "a fork waits for it"),
    (plain, ("_cache", "targetoptions", "overloads", "py_func"), "njit replaces or tests read it"),
    (plain._cache, ("_cache_file", "_cache_path"), "KernelCache makes it a CacheFile"),
    (plain._cache._cache_file, ("_source_stamp", "_index_path", "_data_name_pattern"),
     "CacheFile names files by it"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "name", "why"),
    [(owner, name, why) for owner, names, why in PRIVATE for name in names],
    ids=lambda one: one if isinstance(one, str) and " " not in one else "",
)
def test_private_parts_of_numba_are_where_they_were(owner, name, why):
    where = getattr(owner, "__name__", type(owner).__name__)
    assert hasattr(owner, name), (
        f"numba {numba.__version__} has no {where}.{name} any more ({why}, in kernels/jit.py): "
        "adapt it, or lower the bound on numba in pyproject.toml"
    )


def test_numba_still_calls_what_is_replaced(tmp_path):
    """A part may keep its name and no longer be called: each is seen at work."""

    called = set()

    class Spied(CacheFile):
        def __getattribute__(self, name):
            called.add(name)
            return super().__getattribute__(name)

    @njit(**EXACT)
    def kernel(x):
        return x

    files = kernel._cache._cache_file
    assert type(files) is CacheFile, "numba's FunctionCache does not store its file in _cache_file"
    files.__class__, files._index_path = Spied, str(tmp_path / "kernel.nbi")
    before = CLOCK.seconds()
    assert kernel(2) == 2
    wanted = {"load", "_load_index", "save", "_save_data", "_save_index", "_open_for_write"}
    missing = sorted(wanted - called)
    assert not missing, f"numba {numba.__version__} compiles and caches without {missing}"
    assert CLOCK.seconds() > before, "numba sends no event numba:compile any more"


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


def damage_of(content: bytes) -> dict[str, bytes]:
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 4
    return {
        "empty": b"", "cut": content[:-1], "half": content[: len(content) // 2],
        "longer": content + b"x", "flipped": bytes(flipped), "garbage": b"\x80\x04garbage.",
        "a bare pickle": pickle.dumps(print), "zeros": bytes(len(content)),
    }  # fmt: skip


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_file_that_is_not_as_it_was_written_is_not_used(tmp_path, suffix):
    make_file(tmp_path).save("key", "code")
    (file,) = tmp_path.glob(f"*{suffix}")
    for kind, content in damage_of(file.read_bytes()).items():
        file.write_bytes(content)
        assert make_file(tmp_path).load("key") is None, kind
        make_file(tmp_path).save("key", "code")
        assert make_file(tmp_path).load("key") == "code", kind


def test_a_file_of_another_function_is_not_used(tmp_path):
    one, two = make_file(tmp_path), CacheFile(str(tmp_path), "other", "stamp")
    one.save("key", "code"), two.save("key", "other code")
    mine, theirs = (next(tmp_path.glob(f"{name}*.nbc")) for name in ("kernel", "other"))
    theirs.replace(mine)
    assert make_file(tmp_path).load("key") is None
    shutil.copy(tmp_path / "other.nbi", tmp_path / "kernel.nbi")
    assert make_file(tmp_path).load("key") is None


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
print("compiled", small.CLOCK.seconds() > 0)
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
        "from bayesmf.kernels.jit import CLOCK, EXACT, njit\n\n"
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
    forbid(folder)  # as in an image that was warmed when it was made
    assert start(installed, NUMBA_CACHE_DIR=str(folder)) == ["compiled False"]


def test_a_cache_that_was_damaged_is_made_anew(installed):
    folder = installed.parent / "cache"
    folder.mkdir()
    chosen = {"NUMBA_CACHE_DIR": str(folder)}
    start(installed, **chosen)
    for file in folder.rglob("*.nb?"):
        content = bytearray(file.read_bytes())
        content[-len(content) // 3] ^= 1
        file.write_bytes(content)
    assert start(installed, **chosen) == ["compiled True"]
    assert start(installed, **chosen) == ["compiled False"]


def test_a_full_cache_folder_is_told_once(tmp_path, installed):
    """A small file system that is full, where one can be mounted."""
    full = tmp_path / "full"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=777", "tmpfs", str(full)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with contextlib.suppress(OSError), (full / "fill").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        told, compiled = start(installed, NUMBA_CACHE_DIR=str(full))
    finally:
        subprocess.run(["umount", str(full)], check=True)
    assert "CacheWarning" in told and "space" in told and compiled == "compiled True"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("odd")])
def test_what_goes_wrong_in_saving_is_told_once(monkeypatch, error):
    @njit(**EXACT)
    def kernel(x):
        return x

    def fail(*_):
        raise error

    monkeypatch.setattr(KernelCache, "told", False)
    monkeypatch.setattr(kernel._cache, "_save_overload", fail)
    monkeypatch.setattr(kernel._cache._cache_file, "load", fail)
    with pytest.warns(CacheWarning, match="space|odd") as caught:
        assert kernel(1) == 1 and kernel(1.5) == 1.5
    assert len(caught) == 1


def test_a_function_without_a_folder_is_compiled(monkeypatch):
    namespace = {}
    exec(compile("def kernel(x):\n    return x", "<nowhere>", "exec"), namespace)
    monkeypatch.setattr(KernelCache, "told", False)
    kernel = njit(**EXACT)(namespace["kernel"])
    with pytest.warns(CacheWarning, match="no folder"):
        assert kernel(3) == 3


REHEARSED = """
import gc, warnings
from numba.core.dispatcher import Dispatcher
from bayesmf import SGD, SGHMC, SGLD, BayesianMF, Gibbs, RowClock, Synthetic
from bayesmf.server import start

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
right, start.run = start.run, run
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
