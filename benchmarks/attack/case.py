"""One attack: its folder, the files that it may change, and the judgement of the outcome.

BOX/work/       where inputs are put and outputs go; the working folder
BOX/tmp/        TMPDIR, where nothing may be left
BOX/outside/    files that no command may touch
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.attack.material import Material

CLASSES = ("signals", "hangs", "tracebacks", "other answers", "files touched", "messages")
LONGEST = 2000
_RAW = re.compile(
    r"Traceback \(most recent call last\)|panicked at|Fatal Python error|NumbaWarning"
    r"|RuntimeWarning|Segmentation fault|should not have \(|^Exception (ignored|in thread)",
    re.MULTILINE,
)
_PANIC = re.compile(r"\s*thread '[^\n]*panicked at .*?\nnote: [^\n]*\n", re.DOTALL)
_OURS_LEFT = re.compile(r"^\.bayesmf-|\.part$|\.tmp$|^bayesmf-draws")


class Ran(NamedTuple):
    """How a command ended; a negative status is a signal's."""

    status: int
    out: str
    err: str


class Refused(Exception):
    """bayesmf refused the input in one sentence; ends an attack early."""


class Streams:
    """Files in the place of stdout and stderr, so that what libraries print is seen too."""

    def __init__(self, folder: Path) -> None:
        self._files = [(folder / name).open("w+b") for name in ("stdout", "stderr")]
        self.kept = os.dup(2)

    def reset(self) -> None:
        """Start again with empty files."""
        for fd, file in enumerate(self._files, 1):
            os.ftruncate(file.fileno(), 0)
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            os.dup2(file.fileno(), fd)
        how = {"closefd": False, "encoding": "utf-8", "newline": "\n"}
        sys.stdout = open(1, "w", **how)  # noqa: SIM115
        sys.stderr = open(2, "w", errors="backslashreplace", **how)  # noqa: SIM115

    def read(self) -> tuple[str, str]:
        """What was printed since."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        found = []
        for file in self._files:
            size = os.fstat(file.fileno()).st_size
            found.append(os.pread(file.fileno(), min(size, 1 << 22), 0).decode(errors="replace"))
        return found[0], found[1]


class Case:
    """One attack under way."""

    def __init__(self, seed: str, box: Path, material: Material, streams: Streams) -> None:
        self.seed, self.box, self.material, self.streams = seed, box, material, streams
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(list(seed.encode()))
        self.said: list[str] = []
        self.findings: list[tuple[str, str]] = []
        self.answered = self.refused = False
        self.untidy = False
        self.planted: set[Path] = set()
        self.work, self.tmp, self.outside = (box / name for name in ("work", "tmp", "outside"))
        for folder in (self.work, self.tmp):
            folder.mkdir(parents=True)
        plant(self.outside)
        self._before = fingerprint(self.outside)

    # -- what attacks use --------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Note what is done, to repeat it by hand."""
        self.said.append(text)

    def find(self, of: str, text: str) -> None:
        """Report a finding."""
        assert of in CLASSES
        text = " ".join(text.split())
        found = of, text if len(text) < 400 else f"{text[:200]} ... {text[-150:]}"
        if found not in self.findings:
            self.findings.append(found)

    def copy(self, name: str, to: str | None = None) -> Path:
        """A file or a folder of the material, in the working folder."""
        source, target = self.material.folder / name, self.work / (to or name)
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)
        return target

    def write(self, name: str, data: bytes) -> Path:
        """A file in the working folder."""
        path = self.work / name
        path.write_bytes(data)
        return path

    def call(self, ask: Callable[[], Any]) -> Any:
        """Call a function of the library; Refused if it raises an error of one sentence.

        Anything else that it raises is a finding, and so are warnings that are not our own.
        """
        from bayesmf.errors import BayesMFError

        with warnings.catch_warnings(record=True) as met:
            warnings.simplefilter("always")
            try:
                value = ask()
            except BayesMFError as error:
                self.refused = True
                self._judge_sentence(str(error))
                raise Refused(str(error)) from None
            except (Refused, MemoryError):
                raise
            except BaseException as error:
                self.find("tracebacks", f"{type(error).__name__}: {error} {_where(error)}")
                raise Refused(str(error)) from None
        for warning in met:
            if not warning.category.__module__.startswith("bayesmf"):
                self.find("tracebacks", f"a raw {warning.category.__name__}: {warning.message}")
        self.answered = True
        return value

    def cli(self, *argv: object) -> Ran:
        """A command line, run in this process."""
        from bayesmf.cli import main

        args = [os.fspath(a) if isinstance(a, os.PathLike) else str(a) for a in argv]
        self.say(f"bayesmf {' '.join(args)}")
        try:
            status = main(args)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
        except BaseException as error:
            self.find("tracebacks", f"main raised {type(error).__name__}: {error} {_where(error)}")
            raise Refused(str(error)) from None
        out, err = self.streams.read()
        # Run by its own name the command silences Rust, which it cannot do in this process.
        ran = Ran(status, out, _PANIC.sub("", err) if status else err)
        self.judge(ran)
        self.streams.reset()
        return ran

    # -- judgement ---------------------------------------------------------------------------------

    def judge(self, ran: Ran, sent: int | None = None) -> None:
        """Judge a command by its status and what it said; `sent` is a signal that was sent."""
        if ran.status < 0 and -ran.status != sent:
            self.find("signals", f"ended by signal {-ran.status}: {ran.err[-200:]}")
        allowed = {0, 1, 2, *((128 + sent, -sent) if sent else ())}
        if ran.status >= 0 and ran.status not in allowed:
            name = "signals" if ran.status > 128 else "messages"
            self.find(name, f"status {ran.status}: {ran.err[-200:]}")
        self.judge_text(ran.err)
        if ran.status == 0:
            self.answered = True
            return
        self.refused = True
        if ran.status in (1, 2):
            lines = [line for line in ran.err.splitlines() if not _is_note(line)]
            if len(lines) != 1 and not any(of == "tracebacks" for of, _ in self.findings):
                self.find("messages", f"{len(lines)} lines instead of one: {ran.err[:300]!r}")
            self._judge_sentence(lines[-1] if lines else "")

    def judge_text(self, err: str) -> None:
        """Judge what a command wrote to stderr."""
        if met := _RAW.search(err):
            at = max(0, met.start() - 100)
            self.find("tracebacks", f"{err[at : at + 100]!r} ... {err[-250:]!r}")
        if "\x1b" in err:
            self.find("messages", f"a raw escape: {err[:200]!r}")

    def _judge_sentence(self, text: str) -> None:
        if len(text) > LONGEST:
            self.find("messages", f"{len(text)} characters: {text[:120]!r}")
        if "\x1b" in text and not text.startswith("bayesmf"):
            # The library may give ids as they are; the command line must not print them so.
            return
        if not text.strip():
            self.find("messages", "nothing was said")

    def finish(self) -> None:
        """Look at what was touched and what was left."""
        _, err = self.streams.read()
        # Here, in a user's own process, Rust prints where it panicked before the error is raised;
        # the command line silences that, and is judged by all that it prints.
        self.judge_text(_PANIC.sub("", err) if self.refused else err)
        after = fingerprint(self.outside)
        for name in sorted(set(self._before) | set(after)):
            if self._before.get(name) != after.get(name):
                what = (
                    "gone" if name not in after else "new" if name not in self._before else "other"
                )
                self.find("files touched", f"outside/{name} is {what}")
        if not self.untidy:
            found = [p for p in self.work.rglob("*") if _OURS_LEFT.search(p.name)]
            left = [p for p in found if p not in self.planted]
            left += list(self.tmp.iterdir())
            for path in left[:3]:
                self.find("files touched", f"{path.relative_to(self.box)} was left behind")


def _is_note(line: str) -> bool:
    return line.startswith(("bayesmf: warning", "bayesmf: info")) or (
        line.startswith("bayesmf: ") and not line.startswith("bayesmf: error")
    )


def _where(error: BaseException) -> str:
    """The innermost lines of ours that an exception came through."""
    places, trace = [], error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if "bayesmf" in file.parts:
            places.append(f"{file.name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"({' '.join(places[-3:])})"


def plant(outside: Path) -> None:
    """Files and folders that must not be touched, some with names like temporary ones."""
    (outside / "folder/deep").mkdir(parents=True)
    (outside / "precious.txt").write_text("do not touch\n")
    (outside / "folder/a.csv").write_text("1,2,3\n")
    (outside / "folder/deep/b.npy").write_bytes(b"\x93NUMPY")
    (outside / "folder/journal").write_text("not a job\n")
    (outside / "empty").mkdir()
    os.symlink("folder", outside / "link")


def fingerprint(folder: Path) -> dict[str, Any]:
    """Every file in a folder: what it is, what is in it, when it was changed."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        about: Any = (status.st_mode, status.st_mtime_ns, status.st_ino)
        if path.is_symlink():
            about = (*about, os.readlink(path))
        elif path.is_file():
            about = (*about, path.read_bytes())
        found[str(path.relative_to(folder))] = about
    return found


def in_box(box: Path, run: Callable[[], None]) -> None:
    """Run with the box's working folder and TMPDIR; as before afterwards."""
    before, cwd = os.environ.get("TMPDIR"), os.getcwd()
    os.environ["TMPDIR"], tempfile.tempdir = str(box / "tmp"), None
    os.chdir(box / "work")
    try:
        run()
    finally:
        os.chdir(cwd)
        tempfile.tempdir = None
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
