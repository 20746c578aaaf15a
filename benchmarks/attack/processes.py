"""Commands in processes of their own: limits, streams that are closed, full disks."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attack.case import Case, Ran, Refused
from benchmarks.attack.material import draws_of
from benchmarks.attack.registry import attack

QUICK = (
    "--sampler", "gibbs", "--factors", "3", "--chains", "2", "--seed", "5",
    "--engine", "serial",
)  # fmt: skip
PATIENCE = 60.0


def process(
    case: Case, argv: tuple[Any, ...], before: Callable[[], Any] | None = None,
    env: dict[str, str] | None = None, **streams: Any,
) -> Ran:  # fmt: skip
    """A command in a process of its own."""
    case.say(f"bayesmf {' '.join(map(str, argv))}")
    out, err = case.box / "out.txt", case.box / "err.txt"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        started = subprocess.Popen(
            [sys.executable, "-m", "bayesmf", *map(str, argv)], preexec_fn=before,
            start_new_session=True,
            env={**os.environ, "PYTHONFAULTHANDLER": "", **(env or {})},
            **{"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr, **streams},
        )  # fmt: skip
    try:
        status = started.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        case.find("hangs", f"no end within {PATIENCE:g} s: {'; '.join(case.said)}")
        raise Refused("hung") from None
    finally:
        if started.stdout is not None:
            started.stdout.close()
    return Ran(status, out.read_text(errors="replace"), err.read_text(errors="replace"))


# -- full disks ------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(case: Case, size: int) -> Iterator[Path]:
    """A disk with little room: a tmpfs, or where that cannot be mounted a limit of files' sizes."""
    place = case.box / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=2000", "attack", str(place)],
        capture_output=True,
    )
    mounted = done.returncode == 0
    case.say(f"{size} bytes of room, {'a tmpfs' if mounted else 'a limit'}")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 4, before[1]))
    try:
        yield place
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)


@attack("full disks", 3)
def writing(case: Case) -> None:
    """No room for what is written; what was there is still there, and nothing half."""
    from bayesmf import BayesianMF, PackedRatings

    source, pairs = case.copy("ratings.csv"), case.copy("pairs.csv")
    size = case.rng.choice((4096, 20_000, 40_000, 60_000, 80_000, 120_000, 200_000))
    what = case.rng.choice(("fit", "over", "checkpoint", "pack", "csv", "parquet", "held", "synth"))
    case.say(what)
    with small_disk(case, size) as place:
        out: Path = place / "out"
        if what == "over":
            try:
                shutil.copyfile(case.material.folder / "model", out)
            except (OSError, shutil.Error):
                return
        fit = ("fit", source, *QUICK, "--epochs", "5")
        lines: dict[str, tuple[Any, ...]] = {
            "fit": (*fit, "--out", out), "over": (*fit, "--out", out),
            "checkpoint": (*fit, "--out", case.work / "model", "--checkpoint", out,
                "--checkpoint-every", "0"),
            "pack": ("pack", source, "--out", out),
            "csv": ("predict", case.material.folder / "model", pairs, "--out",
                out.with_suffix(".csv")),
            "parquet": ("predict", case.material.folder / "model", pairs, "--out",
                out.with_suffix(".parquet")),
            "held": (*fit, "--out", case.work / "model", "--holdout", "0.5", "--save-holdout",
                out.with_suffix(".csv")),
            "synth": ("synth", "--users", "99", "--items", "50", "--ratings", "3000", "--out",
                out.with_suffix(".csv"),
                      "--truth", out.with_suffix(".safetensors")),
        }  # fmt: skip
        ran = case.cli(*lines[what])
        if what in ("fit", "over") and (ran.status == 0 or what == "over"):
            draws_of(case.call(lambda: BayesianMF.load(out)))
        if what == "pack" and ran.status == 0:
            case.call(lambda: PackedRatings.open(out, verify=True))
        if ran.status != 0 and what not in ("pack", "checkpoint", "over"):
            left = [p.name for p in place.rglob("*")]
            if left:
                case.find("files touched", f"{left[0]} was left on a full disk by {what}")


@attack("full disks", 0.3, quick=False)
def mapped(case: Case) -> None:
    """No room in TMPDIR for draws that are mapped, which is where SIGBUS comes from."""
    source = case.work / "wide.csv"
    rng = np.random.default_rng(1)
    rows = zip(
        np.repeat(np.arange(6000), 2),
        rng.integers(0, 300, 12000),
        rng.integers(1, 6, 12000),
        strict=True,
    )
    source.write_text("".join(f"{u},{i},{r}\n" for u, i, r in rows))
    with small_disk(case, case.rng.choice((4096, 1 << 20, 20 << 20, 60 << 20))) as place:
        line = ("fit", source, "--out", case.work / "model", "--sampler", "gibbs", "--joint", "4",
            "--factors", "32",
                "--epochs", "90", "--burn-in", "5", "--chains", "1", "--seed", "1")  # fmt: skip
        ran = process(case, line, env={"TMPDIR": str(place)})
        case.judge(ran)
        if left := list(place.iterdir()):
            case.find("files touched", f"{left[0].name} was left in TMPDIR")


@attack("full disks", 0.1, quick=False)
def cache(case: Case) -> None:
    """No room, or no permission, for what numba compiles."""
    pairs = case.copy("pairs.csv")
    with small_disk(case, case.rng.choice((4096, 100_000))) as place:
        where = case.rng.choice((str(place), "/proc/nowhere", "/dev/null/x"))
        case.say(f"NUMBA_CACHE_DIR={where}")
        env = {"NUMBA_CACHE_DIR": where, "HOME": "/proc"}
        ran = process(case, ("predict", case.material.folder / "model", pairs), env=env)
        case.judge(ran)
        if ran.status != 0:
            case.find("messages", f"without a cache it does not answer: {ran.err[-300:]}")


# -- limits ----------------------------------------------------------------------------------------


@attack("limits", quick=False)
def limited(case: Case) -> None:
    """Few files, short files, a small stack, little memory that may be written."""
    source, pairs = case.copy("ratings.csv"), case.copy("pairs.csv")
    kind, low, high = case.rng.choice(
        ((resource.RLIMIT_NOFILE, 5, 60), (resource.RLIMIT_FSIZE, 0, 100_000),
         (resource.RLIMIT_STACK, 2 << 20, 9 << 20),
         (resource.RLIMIT_DATA, 200 << 20, 2000 << 20))
    )  # fmt: skip
    limit = case.rng.randrange(low, high)
    names = {resource.RLIMIT_NOFILE: "files", resource.RLIMIT_FSIZE: "file size",
             resource.RLIMIT_STACK: "stack", resource.RLIMIT_DATA: "data"}  # fmt: skip
    case.say(f"{names[kind]} limited to {limit:,}")
    line = case.rng.choice(
        (("fit", source, "--out", case.work / "model", *QUICK, "--epochs", "5"),
         ("predict", case.material.folder / "model", pairs, "--out", case.work / "out.csv"),
         ("pack", source, "--out", case.work / "packed"), ("recommend",
             case.material.folder / "model", 1))
    )  # fmt: skip
    ran = process(case, line, before=lambda: resource.setrlimit(kind, (limit, limit)))
    if ran.status != 0 and before_us(ran):
        case.refused = True  # Python or a library could not even be loaded
        return
    case.judge(ran)


def before_us(ran: Ran) -> bool:
    """Whether the interpreter or a library gave up where it cannot be caught.

    Importing may fail in any way, and Rust and OpenBLAS end the process where they get no memory.
    """
    known = ("memory allocation of", "OpenBLAS", "cannot allocate memory in static TLS",
        "init_import_site",
            "error while loading shared libraries", "failed to map segment",
            "Fatal Python error: init",
            "can't start new thread", "libgcc_s", "std::bad_alloc", "LLVM ERROR: out of memory",
            "ImportError",
            "Too many open files: 'src", "encodings",
            "thread panicked while processing panic")  # fmt: skip
    return any(word in ran.err for word in known) or (ran.status == -signal.SIGSEGV and not ran.err)


# -- streams ---------------------------------------------------------------------------------------


@attack("streams", quick=False)
def closed(case: Case) -> None:
    """stdin, stdout or stderr closed, full, or not read."""
    pairs, model = case.copy("pairs.csv"), case.material.folder / "model"
    source = case.copy("ratings.csv")
    line = case.rng.choice(
        (("predict", model, pairs), ("predict", model, pairs, "--json"), ("recommend", model,
            "--all"),
         ("diagnose", model), ("evaluate", model, source), ("-h",), ("--version",),
         ("fit", source, "--out", case.work / "out", *QUICK, "--epochs", "4"), ("predict", model,
             "nowhere"))
    )  # fmt: skip
    how = case.rng.choice(
        ("closed", "full", "broken", "all closed", "stderr closed", "stderr full", "read only")
    )
    case.say(how)
    fds = {"closed": (1,), "all closed": (0, 1, 2), "stderr closed": (2,)}.get(how, ())

    def close() -> None:
        for fd in fds:
            os.close(fd)

    streams: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        if how in ("full", "stderr full"):
            name = "stdout" if how == "full" else "stderr"
            streams[name] = stack.enter_context(open("/dev/full", "wb"))
        elif how == "read only":
            streams["stdout"] = stack.enter_context(open("/dev/null", "rb"))
        elif how == "broken":
            read, write = os.pipe()
            os.close(read)
            stack.callback(os.close, write)
            streams["stdout"] = write
        ran = process(case, line, before=close, **streams)
    case.judge_text(ran.err)
    good = (0, 1, 2, 141)
    if ran.status < 0 or ran.status not in good:
        case.find(
            "signals" if ran.status < 0 else "messages", f"status {ran.status}: {ran.err[-200:]}"
        )
    if how == "full" and ran.status == 0:
        case.find("other answers", f"output was lost and the status is 0: {'; '.join(case.said)}")
    case.answered, case.refused = ran.status == 0, ran.status != 0
