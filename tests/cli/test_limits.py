"""Limits of the system end a command in a sentence: no abort, no traceback, nothing that waits."""

import errno
import subprocess
import sys

import pytest
from polars.exceptions import PanicException

from bayesmf import cli
from bayesmf.cli import limits

resource = pytest.importorskip("resource")


def run(limit, *args):
    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "bayesmf", *args],
        preexec_fn=limited, capture_output=True, text=True, timeout=100,
    )  # fmt: skip


needs_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="such a limit is not kept elsewhere"
)


@needs_linux
def test_too_little_address_space_is_told(tmp_path):
    done = run(600 << 20, "fit", "ratings.csv", "--out", tmp_path / "m")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "(ulimit -v) is 0.63 GB, and bayesmf needs" in done.stderr


@needs_linux
def test_a_fit_works_under_a_limit_that_is_not_refused(tmp_path):
    """Where it hung: libraries had asked for three times as much, and some found no room."""
    ratings = tmp_path / "ratings.csv"
    rows = "".join(f"{k % 31},{k % 23},{1 + k % 5}\n" for k in range(400))
    ratings.write_text(f"user,item,rating\n{rows}")
    enough = limits.NEEDED + limits.FOR_A_CORE * limits.cores() + (100 << 20)
    done = run(
        enough, "fit", ratings, "--out", tmp_path / "m", "--sampler", "gibbs", "--epochs", "3"
    )
    assert done.returncode == 0, done.stderr


def test_no_limit_changes_nothing(monkeypatch):
    monkeypatch.setattr(limits, "address_space", lambda: None)
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    limits.check_limits()
    assert "POLARS_MAX_THREADS" not in limits.os.environ


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
        (ImportError("x.so: failed to map segment from shared object"), "not enough memory"),
        (RuntimeError("can't start new thread"), "no more threads"),
        (PanicException("could not spawn threads: ThreadPoolBuildError"), "no more threads"),
        (PanicException("index out of bounds"), "please report"),
    ],
)
def test_what_the_system_refuses_is_a_sentence(monkeypatch, capsys, error, said):
    def fail(args):
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert cli.main(["fit"]) == 1
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


def test_a_command_ends_even_where_there_is_no_memory_to_say_so(monkeypatch, capfd):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(cli, "_dispatch", fail)
    monkeypatch.setattr(cli, "note", fail)
    assert cli.main(["fit"]) == 1
    assert capfd.readouterr().err == "bayesmf: error: there is not enough memory\n"
