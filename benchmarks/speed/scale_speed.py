"""Sections of `benchmarks scale` that time epochs: against peers, on threads, at growing sizes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf.data.training import TrainingData
from bayesmf.errors import BayesMFError
from bayesmf.plots.style import COLOURS, GREY, drawing, save
from bayesmf.process import counting
from bayesmf.samplers.gibbs import Gibbs
from bayesmf.synthetic.synthetic import SHAPES, Synthetic
from benchmarks.speed import race
from benchmarks.speed.timers import (
    LABELS,
    RULES,
    EpochTimer,
    Timed,
    Timer,
    default_rule,
    scaling_rows,
    scaling_timers,
    take_turns,
    training_data,
)

NAMES = {"libmf": "LIBMF", "smurff": "SMURFF", "myfm": "myFM"}
# LIBMF fits again for each question; the samplers go on from where they are.
SHORT = {"libmf": 1, "smurff": 0, "myfm": 0}
# Seconds of a question when nothing is known yet, and how often a question is asked.
LONGEST, TRIES = 240.0, 4


class PeerError(BayesMFError):
    """A peer that was there has ended."""


class Peer:
    """A library on one thread, in a process of its own.

    LIBMF's threads sometimes wait for each other for ever: a question that takes far longer than
    those before is given up, and asked again of a new process.
    """

    def __init__(self, python: Path, system: str, data: Path, factors: int) -> None:
        self.system, self._python = system, python
        self._opening = {"task": "epochs", "system": system, "data": str(data), "factors": factors}
        self._longest: float | None = None
        self._begin()

    def _begin(self) -> None:
        # A file, because no one reads a pipe while the peer works.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(self._python), "-m", "benchmarks.speed.peer_worker"], cwd=race.ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env={**os.environ, **{f"{name}_THREADS": "1" for name in race.THREADS}},
        )  # fmt: skip
        try:
            self.about = self._ask(self._opening, LONGEST)
        except (PeerError, TimeoutError) as error:
            self.close()
            raise PeerError(str(error) or f"{NAMES[self.system]} did not begin") from None

    def run(self, epochs: int) -> float:
        """Seconds of some epochs."""
        limit = LONGEST if self._longest is None else 30 + 20 * self._longest
        for _ in range(TRIES):
            try:
                seconds = float(self._ask({"epochs": epochs}, limit)["seconds"])
            except TimeoutError:
                self.close()
                self._begin()
            else:
                self._longest = max(self._longest or 0.0, seconds)
                return seconds
        raise PeerError(f"{NAMES[self.system]} did not end {TRIES} times")

    def _ask(self, question: dict[str, Any], limit: float) -> dict[str, Any]:
        """One line for one line."""
        assert self._process.stdin is not None and self._process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(limit, give_up)
        timer.start()
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            raise TimeoutError
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = [text for text in self._errors.read().splitlines() if text.strip()]
            last = said[-1].strip() if said else f"exit status {self._process.returncode}"
            raise PeerError(f"{NAMES[self.system]} ended: {last}")
        return dict(json.loads(line))

    def close(self) -> None:
        """End its process: it ends by itself when nothing more can be asked."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


class PeerTimer(Timer):
    """The time of a peer's epoch."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer.run, short=SHORT[peer.system])
        self.version = str(peer.about.get("version", "?"))


@contextmanager
def peer_timer(
    python: Path | None, system: str, data: Path, factors: int
) -> Iterator[tuple[PeerTimer | None, str | None]]:
    """A timer, or None and why there is none."""
    if python is None:
        yield None, "no environment of the peers was named: give --peers PYTHON"
        return
    peer = Peer(python, system, data, factors)
    try:
        missing = peer.about.get("missing")
        yield (None, str(missing)) if missing else (PeerTimer(peer), None)
    finally:
        peer.close()


@contextmanager
def shared_data(shape: str, scale: float) -> Iterator[tuple[TrainingData, Path]]:
    """Planted stars as we hold them, and in a file for peers; those that a test set takes off."""
    plan = Synthetic.like(shape, scale, stars=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        race.write_data(*plan.split(min(1000, plan.n_ratings // 10)), path)
        with np.load(path) as file:
            user, item, rating = (file[f"train_{name}"] for name in ("user", "item", "rating"))
            n_users, n_items = int(file["n_users"]), int(file["n_items"])
        value = ((rating - rating.mean()) / rating.std()).astype(np.float32)
        yield TrainingData.from_triples(user, item, value, n_users, n_items), path


# Colours that are distinct for all kinds of colour vision, and different shapes.
STYLES = {
    "sgd": {"color": COLOURS[5], "marker": "o", "linestyle": "-"},
    "sgld": {"color": COLOURS[1], "marker": "s", "linestyle": "--"},
    "gibbs-4": {"color": COLOURS[2], "marker": "^", "linestyle": "-."},
}


def draw(found: dict[str, Any], path: Path) -> None:
    """Two panels, logarithmic on both axes; ImportError where matplotlib is missing."""
    rows, fits = found["rows"], found["exponents"]
    by_ratings = [row for row in rows if row["factors"] == 30]
    by_factors = [row for row in rows if row["factors"] != 30]
    with drawing(9.6, 4.2) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        _panel(left, by_ratings, fits, "ratings")
        _panel(right, by_factors, fits, "factors")
        left.set_title("by the number of ratings, D = 30")
        right.set_title(f"by D, {by_factors[0]['ratings'] / 1e6:.3g}M ratings")
        left.set_xlabel("ratings (log scale)")
        right.set_xlabel("latent features D (log scale)")
        left.set_ylabel("seconds per epoch, one thread (log scale)")
        save(figure, path)


def _panel(ax: Any, rows: list[dict[str, Any]], fits: dict[str, Any], by: str) -> None:
    x = [row[by] for row in rows]
    for rule, style in STYLES.items():
        label = f"{LABELS[rule]}: exponent {fits[rule][by]:.2f}"
        ax.plot(x, [row[rule] for row in rows], label=label, linewidth=1.6, markersize=5, **style)
    # Twice as much to do in twice the time is a line of this slope.
    low = min(row[rule] for row in rows[:1] for rule in STYLES) * 0.6
    ax.plot([x[0], x[-1]], [low, low * x[-1] / x[0]], color=GREY, linewidth=1.0, label="linear")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(x, [_short(value) for value in x], minor=False)
    ax.minorticks_off()
    ax.grid(color="#E5E5E5", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.legend(loc="upper left", fontsize=8.5)


def _short(value: float) -> str:
    return f"{value / 1e6:.0f}M" if value >= 1e6 else f"{value:,.0f}"


SGD_FACTORS = (32, 64, 128)
SGD_RULES = ("sgd", "sgld", "sghmc", "gibbs-4", "gibbs-1")
# Whole rows as SMURFF draws them, with its prior; one column after the other as myFM does.
GIBBS: tuple[tuple[str, str, Timed], ...] = (
    *(("gibbs", "smurff", Timed(Gibbs(burn_in=0), d, prior="wishart")) for d in (30, 60, 100)),
    *(("gibbs-1", "myfm", Timed(Gibbs(burn_in=0, joint=1), d, prior="gamma")) for d in (10, 30)),
)
LINEAR_RULES = ("sgd", "sgld", "gibbs-4")
LINEAR_RATINGS = (1e6, 3e6, 1e7, 3e7, 1e8)
LINEAR_FACTORS = (16, 32, 64, 128)
THREAD_FACTORS = 32
# With vector instructions it is several times as fast as this, without them slower.
UNVECTORISED = 1e7
ENOUGH = 1_000_000  # ratings: with few, its iterations are mostly waiting
BUILD = (
    'CFLAGS="-O3 -march=native -mavx -DUSEAVX -DUSESSE" pip install --no-binary libmf '
    "--no-cache-dir --force-reinstall libmf"
)


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    peers: Path | None = None
    scale: float = 1.0
    repeats: int = 5
    full: bool = False
    folder: Path | None = None
    fit_options: tuple[str, ...] = ()


@dataclass
class Section:
    """A table with what is to be said about it, and the same for machines."""

    title: str
    heads: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """The section as Markdown: its title, table and notes."""
        lines = [f"## {self.title}", ""]
        lines += [f"| {' | '.join(self.heads)} |", f"|---{'|--:' * (len(self.heads) - 1)}|"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"


def turns(timers: Iterable[Timer], plan: Plan, what: str) -> None:
    """`take_turns` with a bar on a terminal."""
    todo = list(timers)
    with counting(f"timing {what}", (1 + plan.repeats) * len(todo), "runs") as progress:
        take_turns(todo, plan.repeats, progress)


def sizes(data: TrainingData) -> str:
    """What the ratings are."""
    return f"{len(data):,} synthetic ratings by {data.n_users:,} users of {data.n_items:,} items"


def how(plan: Plan) -> str:
    """How all tables with peers were measured."""
    return f"One thread each, taking turns, best of {plan.repeats}."


# -- against LIBMF --------------------------------------------------------------------------------


def sgd(plan: Plan) -> Section:
    """Epochs of our O(N D) rules over those of LIBMF's SGD."""
    out = Section(
        "An epoch beside LIBMF's SGD",
        ("rule", "D", "ms per epoch", "M ratings/s", "times LIBMF's speed"),
    )
    found: list[dict[str, Any]] = []
    with shared_data("ml-10m", plan.scale) as (data, path):
        out.notes.append(f"{sizes(data)}. {how(plan)}")
        for d in SGD_FACTORS:
            found += _beside_libmf(plan, data, path, d, out)
    out.data = {"ratings": len(data), "rows": found}
    for row in found:
        ratio, mark = row["times_libmf"], " (default)" if row["default"] else ""
        out.rows.append(
            (
                f"{LABELS.get(row['rule'], row['rule'])}{mark}",
                f"{row['factors']}",
                f"{1e3 * row['seconds_per_epoch']:.0f}",
                f"{row['ratings_per_second'] / 1e6:.1f}",
                "-" if ratio is None else f"{ratio:.2f}",
            )
        )
    return out


def _beside_libmf(
    plan: Plan, data: TrainingData, path: Path, d: int, out: Section
) -> list[dict[str, Any]]:
    ours = {name: EpochTimer(data, Timed(RULES[name], d)) for name in SGD_RULES}
    with peer_timer(plan.peers, "libmf", path, d) as (peer, missing):
        turns([*([] if peer is None else [peer]), *ours.values()], plan, f"sgd, D = {d}")
    timers: dict[str, Timer] = dict(ours) if peer is None else {"LIBMF": peer, **ours}
    if d == SGD_FACTORS[0]:
        rate = None if peer is None else len(data) / peer.seconds
        version = None if peer is None else peer.version
        out.notes.append(_about_libmf(d, rate, version, missing, len(data)))
    return [
        {
            "rule": name,
            "factors": d,
            "default": name == default_rule(data, d),
            "seconds_per_epoch": timer.seconds,
            "ratings_per_second": len(data) / timer.seconds,
            "times_libmf": None if peer is None else peer.seconds / timer.seconds,
        }
        for name, timer in timers.items()
    ]


def _about_libmf(
    d: int, rate: float | None, version: str | None, missing: str | None, n_ratings: int
) -> str:
    if rate is None:
        return f"LIBMF is left out: {missing}."
    line = f"LIBMF {version} reads {rate / 1e6:.1f}M ratings/s at k = {d}"
    if n_ratings < ENOUGH:
        return f"{line}; that are too few ratings to judge its build."
    if rate < UNVECTORISED:
        return (
            f"{line}, which looks like a build without vector instructions: build it by `{BUILD}`."
        )
    return f"{line}, as only a build with vector instructions does."


# -- against SMURFF and myFM ----------------------------------------------------------------------


def gibbs(plan: Plan) -> Section:
    """Sweeps of Gibbs over those of others."""
    out = Section(
        "A sweep of Gibbs beside others'",
        ("rule", "D", "ms per sweep", "peer", "its ms per sweep", "times its speed"),
    )
    found: list[dict[str, Any]] = []
    absent: dict[str, str] = {}
    with shared_data("ml-1m", plan.scale) as (data, path):
        for rule, system, case in GIBBS:
            d, ours = case.n_factors, EpochTimer(data, case)
            with peer_timer(plan.peers, system, path, d) as (peer, missing):
                both = [ours] if peer is None else [ours, peer]
                turns(both, plan, f"gibbs, {NAMES[system]}, D = {d}")
            if missing:
                absent[system] = missing
            theirs = None if peer is None else peer.seconds
            found.append(
                {
                    "rule": rule, "prior": case.prior, "factors": d, "seconds": ours.seconds,
                    "peer": system, "peer_version": None if peer is None else peer.version,
                    "peer_seconds": theirs,
                    "times_peer": None if theirs is None else theirs / ours.seconds,
                }
            )  # fmt: skip
        out.notes.append(f"{sizes(data)}. {how(plan)}")
    out.notes += [f"{NAMES[name]} is left out: {why}." for name, why in absent.items()]
    out.data = {"ratings": len(data), "rows": found}
    for row in found:
        theirs = row["peer_seconds"]
        out.rows.append(
            (
                f"{LABELS[row['rule']]}, {row['prior']} prior",
                f"{row['factors']}",
                f"{1e3 * row['seconds']:.0f}",
                NAMES[row["peer"]],
                "-" if theirs is None else f"{1e3 * theirs:.0f}",
                "-" if theirs is None else f"{row['times_peer']:.1f}",
            )
        )
    return out


# -- threads, and growing sizes -------------------------------------------------------------------


def threads(plan: Plan) -> Section:
    """What a second thread brings."""
    out = Section(
        "Two threads", ("what", "D", "s per epoch, 1 thread", "2 threads", "times as fast")
    )
    data = training_data(Synthetic.like("ml-10m", plan.scale, stars=True).ratings().compact())
    timers = scaling_timers(data, THREAD_FACTORS, 2)
    turns((timer for pair in timers.values() for timer in pair), plan, "threads")
    found = scaling_rows(timers)
    out.notes.append(f"{sizes(data)}. Taking turns, best of {plan.repeats}.")
    out.data = {"ratings": len(data), "rows": found}
    for row in found:
        times = (f"{row[name]:.3f}" for name in ("seconds_one_thread", "seconds"))
        out.rows.append((row["case"], f"{row['factors']}", *times, f"{row['speed_up']:.2f}"))
    return out


def linear(plan: Plan) -> Section:
    """Time of an epoch by the number of ratings and by D, and its exponents."""
    out = Section("An epoch by ratings and by D", ("ratings", "D", *map(_seconds, LINEAR_RULES)))
    most = LINEAR_RATINGS if plan.full else LINEAR_RATINGS[:-1]
    cases = [(n, (30,)) for n in most if n != 1e7] + [(1e7, (30, *LINEAR_FACTORS))]
    found: list[dict[str, Any]] = []
    for n, factors in sorted(cases):
        found += _grown(plan, n, factors)
    fits = {
        rule: {
            "ratings": exponent([r for r in found if r["factors"] == 30], rule, "ratings"),
            "factors": exponent([r for r in found if r["factors"] != 30], rule, "factors"),
        }
        for rule in LINEAR_RULES
    }
    out.data = {"rows": found, "exponents": fits}
    for row in found:
        shown = (f"{row[rule]:.4f}" for rule in LINEAR_RULES)
        out.rows.append((f"{row['ratings']:,}", f"{row['factors']}", *shown))
    for name, text in (("ratings", "the number of ratings, D = 30"), ("factors", "D")):
        shown = (f"{fits[rule][name]:.2f}" for rule in LINEAR_RULES)
        out.rows.append((f"exponent of {text}", "", *shown))
    out.notes.append(
        "Synthetic ratings of the shape of Netflix's, scaled down. One thread, taking turns, best "
        f"of {plan.repeats}. Exponents by least squares on logarithms."
    )
    return out


def _seconds(rule: str) -> str:
    return f"{LABELS[rule]}, s"


def _grown(plan: Plan, n: float, factors: Sequence[int]) -> list[dict[str, Any]]:
    part = min(n * plan.scale / SHAPES["netflix"][2], 1.0)
    data = training_data(Synthetic.like("netflix", part, stars=True).ratings().compact())
    rows = []
    for d in factors:
        timers = {rule: EpochTimer(data, Timed(RULES[rule], d)) for rule in LINEAR_RULES}
        turns(timers.values(), plan, f"linear, {len(data):,} ratings, D = {d}")
        seconds = {rule: timer.seconds for rule, timer in timers.items()}
        rows.append({"ratings": len(data), "factors": d, **seconds})
    return rows


def exponent(rows: Sequence[dict[str, Any]], rule: str, by: str) -> float:
    """The slope of a line through the logarithms."""
    x, y = (np.log([row[name] for row in rows]) for name in (by, rule))
    return float(np.polyfit(x, y, 1)[0])
