"""Errors of SG-MCMC and of SGD pass by pass: `python -m benchmarks.early_errors -h`.

Samplers with their defaults, on one thread; and three chains on three workers against DSGD on as
many. Errors are those that `history_` has: of an average that grows from the first pass on, with
users integrated out, and of SGD's own state. A tenth of the ratings is held out; nothing was tuned
on it. Seconds are those of simulated workers: measured processor time, without looking at errors.

    python -m benchmarks.early_errors --data FOLDER --out results
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesmf import SGD, SGLD, BayesianMF, Event, Ratings, RowClock
from bayesmf.errors import ConvergenceWarning, InputError
from bayesmf.plots.style import COLOURS, GREY, drawing, save
from bayesmf.samplers.base import Sampler
from benchmarks.arguments import Parser
from experiments.simulated import SHARED_MEMORY, Simulated

WORKERS, HELD_OUT = 3, 0.1
SHOWN = (1, 2, 4, 8, 16, 32, 64, 128)  # passes of the table
FROM = 4  # the pass from which on SGD must not be better
Row = dict[str, Any]


class System(NamedTuple):
    """One line of the figure, and what it is compared with."""

    rule: type[Sampler]
    workers: int
    chains: int
    against: str | None
    style: dict[str, Any]

    def sampler(self, passes: int) -> Any:
        """The sampler with its defaults, but for grid, chains and length."""
        columns = self.workers if self.chains == 1 else 1
        chains = {} if self.rule is SGD else {"n_chains": self.chains}
        make: Any = self.rule
        return make(grid=(self.workers, columns), epochs=passes, **chains)


SYSTEMS = {
    "SGD": System(SGD, 1, 1, None, {"color": GREY, "linestyle": "-"}),
    "SGLD": System(SGLD, 1, 1, "SGD", {"color": COLOURS[1], "linestyle": "--"}),
    "RowClock": System(RowClock, 1, 1, "SGD", {"color": COLOURS[5], "linestyle": "-."}),
    "DSGD": System(SGD, WORKERS, 1, None, {"color": GREY, "linestyle": "-"}),
    "DSGLD-C": System(SGLD, WORKERS, WORKERS, "DSGD", {"color": COLOURS[1], "linestyle": "--"}),
    "RowClock, 3 chains": System(
        RowClock, WORKERS, WORKERS, "DSGD", {"color": COLOURS[5], "linestyle": "-."}
    ),
}


def make_parser() -> Parser:
    """The options."""
    parser = Parser("early_errors", __doc__)
    add = parser.add_argument
    add("--data", type=Path, metavar="FOLDER", help="MovieLens 1M: a folder with ratings.dat")
    add("--out", type=Path, default=Path("early-errors"), metavar="FOLDER")
    add("--factors", type=int, default=30, help="latent features (30)")
    add("--passes", type=int, default=60, help="over the ratings, of every system (60)")
    add("--seeds", type=int, default=3, help="repeats, each with a split of its own (3)")
    add("--draw", action="store_true", help="draw the figure from the CSV that is there")
    return parser


def check(args: argparse.Namespace) -> None:
    """One sentence about what cannot be meant."""
    for name in ("factors", "passes", "seeds"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name} must be a whole number from 1 on")
    if not args.draw and (args.data is None or not (args.data / "ratings.dat").exists()):
        raise InputError("--data must name a folder with ratings.dat of MovieLens 1M")


def follow(name: str, train: Ratings, test: Ratings, d: int, passes: int, seed: int) -> list[Row]:
    """One system on one split: its error after every pass."""
    system, rows = SYSTEMS[name], dict[int, Row]()

    def note(event: Event) -> None:
        # The chains' last event of a pass counts: it has the average of them all.
        rows[event.epoch] = {
            "system": name, "seed": seed, "pass": event.epoch,
            "seconds": round(event.seconds, 4), "rmse": round(float(event.rmse_all_chains or 0), 6),
        }  # fmt: skip

    model = BayesianMF(
        d, sampler=system.sampler(passes), engine=Simulated(system.workers, SHARED_MEMORY),
        random_state=seed, callbacks=[note], progress=False, max_draws=1,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # short runs are the point
        model.fit(train, validation=test)
    return list(rows.values())


def run_all(args: argparse.Namespace, path: Path) -> list[Row]:
    """Every system on every split; what is done is written at once, and not done again."""
    rows = read(path)
    done = {(row["system"], row["seed"]) for row in rows}
    ratings = Ratings.read(args.data / "ratings.dat")
    for seed in range(args.seeds):
        train, test = ratings.split(HELD_OUT, random_state=seed)
        for name in SYSTEMS:
            if (name, seed) not in done:
                rows += follow(name, train, test, args.factors, args.passes, seed)
                write(rows, path)
                print(f"seed {seed}, {name}: {rows[-1]['rmse']:.4f}", file=sys.stderr, flush=True)
    return rows


def write(rows: list[Row], path: Path) -> None:
    """All rows, as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path: Path) -> list[Row]:
    """What an earlier run has written."""
    if not path.exists():
        return []
    kinds = {"seed": int, "pass": int, "seconds": float, "rmse": float}
    with path.open(newline="") as file:
        return [
            {key: kinds.get(key, str)(value) for key, value in row.items()}
            for row in csv.DictReader(file)
        ]


def curve(rows: list[Row], name: str, column: str = "rmse") -> np.ndarray:
    """Values of a system, (seeds, passes)."""
    own = [row for row in rows if row["system"] == name]
    seeds = sorted({row["seed"] for row in own})
    return np.array(
        [[r[column] for r in sorted(own, key=lambda r: r["pass"]) if r["seed"] == s] for s in seeds]
    )


def table(rows: list[Row]) -> list[str]:
    """Mean and standard deviation over seeds of every system, a line for each of some passes."""
    last, names = max(row["pass"] for row in rows), present(rows)
    curves = [curve(rows, name) for name in names]
    lines = ["| passes | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for p in [p for p in SHOWN if p < last] + [last]:
        cells = [f"{found[:, p - 1].mean():.4f} ± {found[:, p - 1].std(ddof=1):.4f}"
                 if len(found) > 1 else f"{found[0, p - 1]:.4f}" for found in curves]  # fmt: skip
        lines.append(f"| {p} | " + " | ".join(cells) + " |")
    return lines


def present(rows: list[Row]) -> list[str]:
    """Systems of which there are results, in order."""
    return [name for name in SYSTEMS if any(row["system"] == name for row in rows)]


def verdicts(rows: list[Row]) -> Iterator[str]:
    """Whether each sampler is at or below SGD, at which passes and times, and by how much."""
    for name in present(rows):
        against = SYSTEMS[name].against
        if against is None or against not in present(rows):
            continue
        own, other = curve(rows, name), curve(rows, against)
        above = np.flatnonzero((own > other).any(axis=0)) + 1
        when = f"in every pass of every seed below {against}'s"
        if len(above):
            when = f"above {against}'s in passes {', '.join(map(str, above))} of some seed"
        late = "" if len(above) and above[-1] >= FROM else f"; from pass {FROM} on at or below"
        gain = 100 * (1 - own[:, -1] / other[:, -1])
        times = curve(rows, name, "seconds"), curve(rows, against, "seconds")
        first = times[0][:, 0].max()
        behind = sum(
            float(rmse) > best_by(other[s], times[1][s], at)
            for s in range(len(own))
            for rmse, at in zip(own[s], times[0][s], strict=True)
        )
        yield (
            f"{name}: {when}{late}; in the end {gain.mean():.2f}% below (per seed "
            f"{', '.join(f'{g:.2f}' for g in gain)}); by the clock behind {against} at {behind} of "
            f"{own.size} passes, its first ends after {first:.2f} s"
        )


def best_by(rmse: np.ndarray, seconds: np.ndarray, at: float) -> float:
    """The error of the last pass that had ended by then; infinite before the first."""
    done = np.searchsorted(seconds, at, side="right")
    return float(rmse[done - 1]) if done else np.inf


def draw(rows: list[Row], path: Path) -> None:
    """One panel for one thread, one for three workers; bars are standard deviations."""
    names = present(rows)
    with drawing(9.6, 4.2) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axis, workers in zip(panels, (1, WORKERS), strict=True):
            for name in (n for n in names if SYSTEMS[n].workers == workers):
                found, style = curve(rows, name), SYSTEMS[name].style
                x, mean = np.arange(1, found.shape[1] + 1), found.mean(axis=0)
                spread = found.std(axis=0, ddof=1) if len(found) > 1 else 0 * mean
                axis.plot(x, mean, label=name, linewidth=1.6, **style)
                some = [p - 1 for p in SHOWN if p <= len(x)]
                axis.errorbar(
                    x[some], mean[some], spread[some], fmt="none", capsize=3, color=style["color"]
                )
            axis.set_xscale("log")
            axis.set_xticks(ticks := [p for p in SHOWN if p <= len(x)], [str(p) for p in ticks])
            axis.minorticks_off()
            axis.set_xlabel("passes over the ratings, of each chain (log scale)")
            one = workers == 1
            axis.set_title("one thread" if one else f"{workers} workers: one chain against three")
            axis.grid(color="#E5E5E5", linewidth=0.7)
            axis.legend(fontsize=8.5)
        panels[0].set_ylabel("RMSE of held-out ratings")
        save(figure, path)


def main(argv: list[str] | None = None) -> int:
    """0 where all went well; 2 for bad input."""
    args = make_parser().parse_args(argv)
    path = args.out / "early_errors.csv"
    try:
        check(args)
        args.out.mkdir(parents=True, exist_ok=True)
        rows = read(path) if args.draw else run_all(args, path)
        if not rows:
            raise InputError(f"there is no {path} to draw from: leave --draw out")
    except (InputError, OSError) as error:
        print(f"early_errors: {error}", file=sys.stderr)
        return 2
    text = [*table(rows), "", *(f"- {line}." for line in verdicts(rows))]
    (args.out / "early_errors.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))
    try:
        draw(rows, args.out / "early_errors.png")
    except ImportError:
        print("no figure: matplotlib is not installed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
