"""`bayesmf fit`: learn from ratings, save the model."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesmf.cli import fit_options, options
from bayesmf.cli.output import check_file, note, peak_rss_mb, print_facts, print_json
from bayesmf.diagnostics.convergence import advice
from bayesmf.errors import ConvergenceWarning, InputError
from bayesmf.wording import count, short

if TYPE_CHECKING:
    from bayesmf.checkpoints.folder import Checkpoint
    from bayesmf.data.ratings import Ratings
    from bayesmf.estimator.bayesian_mf import BayesianMF
    from bayesmf.packed.ratings import PackedRatings

SCORES = ("rmse", "mae", "nll", "crps", "coverage")
HYPER = ("alpha_0", "beta_0", "mu_0", "kappa_0", "nu_0", "W_0")
SETTINGS = ("tau", "noise_by", *HYPER, "standardize", "keep", "max_draws", "n_workers")


def parser() -> options.Parser:
    """Options of `fit`."""
    out = options.command(
        "fit",
        "Learn from a file of ratings and save the model. Settings that are not given follow the "
        "data.",
        "ratings.csv --out films.bayesmf --holdout 0.1",
        "ratings.csv --out films.bayesmf --sampler sgld --grid 2x2 --chains 2",
    )
    add = out.add_argument
    add("ratings", metavar="RATINGS", help="file or folder of ratings, packed ones too")
    add("--out", required=True, metavar="MODEL", help="file to save the model to")
    test = out.add_mutually_exclusive_group().add_argument
    test("--test", metavar="FILE", help="ratings to score at the end, not used for training")
    test("--holdout", type=options.share, metavar="SHARE",
         help="share of RATINGS to hold out and score at the end, such as 0.1")  # fmt: skip
    add("--save-holdout", metavar="FILE", type=Path,
        help="write what is held out to a .csv or .parquet file, for diagnose --test")  # fmt: skip
    add("--validation", metavar="FILE", help="ratings whose RMSE is followed while chains run")
    options.add_json(out)
    fit_options.add_model_options(out.add_argument_group("model"))
    saved = out.add_argument_group("what is saved").add_argument
    saved("--no-users", action="store_true",
          help="save MODEL without ids, rows or ratings of users; it then answers for ratings that "
          "are sent (as --keep items)")  # fmt: skip
    saved("--max-saved-draws", type=options.whole(1), metavar="N",
          help="draws in MODEL, spread evenly, at least one of each chain (all)")  # fmt: skip
    fit_options.add_sampler_options(out)
    where = out.add_argument_group("run")
    fit_options.add_engine_options(where)
    options.add_seed(where, "all that is drawn: the same seed gives the same bits")
    kept = out.add_argument_group("checkpoints").add_argument
    kept("--checkpoint", metavar="DIR", help="folder for checkpoints of the run")
    kept("--checkpoint-every", type=options.seconds, metavar="SECONDS",
         help="how often (60); 0 is after every round")  # fmt: skip
    kept("--resume", action="store_true",
         help="continue from DIR, to the same bits; start from the beginning if it is empty",
    )  # fmt: skip
    files = out.add_argument_group("files")
    options.add_file_options(files)
    options.add_duplicates(files)
    return out


def run(args: argparse.Namespace) -> None:
    """Fit, save, and print the result."""
    from bayesmf.cli.evaluate import score
    from bayesmf.storage.artefact import check_writable

    checkpoint = _checkpoint(args)
    model = _model(args)
    check_writable(args.out)
    if args.save_holdout is not None:
        _check_holdout(args)
    if checkpoint is not None:
        args.resumed = _has_checkpoint(checkpoint)
    train, validation, test = _read(args)
    _fit(model, train, validation, checkpoint)
    # Before anything else can fail: it may have taken hours.
    model.save(args.out, users=not args.no_users, max_draws=args.max_saved_draws)
    if args.save_holdout is not None and test is not None:
        try:
            test.write(args.save_holdout)
        except InputError as error:
            saved = f"; the model is saved in {args.out}"
            raise InputError(str(error).rstrip(".") + saved) from None
    scores = None if test is None else score(model, test)
    result = _result(args, model, scores)
    if args.json:
        print_json(result)
    else:
        _print(args, result, scores)


def _checkpoint(args: argparse.Namespace) -> Checkpoint | None:
    """Checkpoint that the options ask for, if any."""
    if args.checkpoint is None:
        if args.checkpoint_every is not None or args.resume:
            name = "--resume" if args.resume else "--checkpoint-every"
            raise InputError(f"{name} needs --checkpoint DIR")
        return None
    from bayesmf.checkpoints.folder import Checkpoint

    if Path(args.checkpoint).resolve().is_relative_to(Path(args.out).resolve()):
        raise InputError(
            f"--checkpoint {args.checkpoint} is {args.out}, the file of the model, or in it: "
            "choose another folder"
        )
    every = 60.0 if args.checkpoint_every is None else args.checkpoint_every
    return Checkpoint(args.checkpoint, every=every, resume=args.resume)


def _has_checkpoint(checkpoint: Checkpoint) -> bool:
    """Whether there is a checkpoint to resume; refuses its folder before the ratings are read."""
    from bayesmf.checkpoints.folder import recorded_run

    begun = recorded_run(checkpoint) is not None
    if checkpoint.resume and not begun:
        note(f"{checkpoint.folder} holds no checkpoint: starting from the beginning")
    return begun


def _model(args: argparse.Namespace) -> BayesianMF:
    from bayesmf.estimator.bayesian_mf import BayesianMF

    if args.no_users and args.keep == "users":
        raise InputError(
            "--no-users leaves nothing of a model with --keep users: use --keep items, or leave "
            "one of them out"
        )
    if args.no_users and args.keep == "auto":
        args.keep = "items"
    sampler, engine = fit_options.make_sampler(args), fit_options.make_engine(args)
    hyper = {name: getattr(args, name) for name in HYPER if getattr(args, name) is not None}
    used = getattr(sampler, "default_prior", "wishart-bias") if args.prior == "auto" else args.prior
    for name in hyper:
        prior = "gamma" if name in HYPER[:2] else "wishart or wishart-bias"
        if args.sampler == "sgd" or used not in prior.split():
            given = "--sampler sgd" if args.sampler == "sgd" else f"--prior {args.prior}"
            raise InputError(
                f"--{name.lower().replace('_', '')} is for --prior {prior}, and may have no effect "
                f"with {given}: add --prior {prior}, with another sampler than sgd, or leave it out"
            )
    return BayesianMF(
        args.factors,
        sampler=sampler,
        target=args.target or "balanced",
        max_seconds=args.max_seconds,
        prior=args.prior,
        tau=args.tau,
        noise_by=None if args.noise_by == "none" else args.noise_by,
        **hyper,
        standardize=not args.no_standardize,
        keep=args.keep,
        max_draws=args.max_draws,
        engine=engine,  # type: ignore[arg-type]
        n_workers=args.workers,
        random_state=args.seed,
    )


def _check_holdout(args: argparse.Namespace) -> None:
    """Refuse now a file that would be in the way of what is read or written later."""
    if args.holdout is None:
        raise InputError("--save-holdout needs --holdout SHARE")
    read = [Path(path) for path in (args.ratings, args.validation) if path is not None]
    check_file(args.save_holdout, (".csv", ".parquet"), inputs=read)
    path = args.save_holdout.resolve()
    if path.exists() and path.is_relative_to(read[0].resolve()):
        raise InputError(f"{args.save_holdout} is among what is read: choose another name")
    for other in (args.out, args.checkpoint):
        if other is not None and path.is_relative_to(Path(other).resolve()):
            raise InputError(
                f"--save-holdout {args.save_holdout} is {other} or in it: choose another path"
            )


def _read(
    args: argparse.Namespace,
) -> tuple[Ratings | PackedRatings, Ratings | None, Ratings | None]:
    """Ratings to learn from, to validate with and to test on."""
    packed = _packed(args)
    validation, test = (
        None if path is None else options.read_ratings(path, args)
        for path in (args.validation, args.test)
    )
    if packed is not None:
        return packed, validation, test
    ratings = options.read_ratings(args.ratings, args)
    if args.holdout is not None:
        ratings, test = ratings.split(args.holdout, random_state=args.seed)
        if len(ratings) < 2:
            raise InputError(
                f"--holdout {args.holdout:g} leaves {len(ratings)} to learn from: hold out less"
            )
    return ratings, validation, test


def _packed(args: argparse.Namespace) -> PackedRatings | None:
    """Ratings that have been packed, None if they have not."""
    from bayesmf.packed.ratings import PackedRatings

    if not PackedRatings.is_packed(args.ratings):
        return None
    if args.holdout is not None:
        raise InputError(
            f"--holdout cannot be taken from the packed ratings in {args.ratings}: hold ratings "
            "out before bayesmf pack, and give them as --test"
        )
    if args.columns is not None or args.format != "auto" or args.duplicates != "last":
        raise InputError(
            f"--columns, --format and --duplicates do nothing for the packed ratings in "
            f"{args.ratings}: give them to bayesmf pack"
        )
    return PackedRatings.open(args.ratings, verify=True)


def _fit(model: BayesianMF, ratings: Any, validation: Any, checkpoint: Checkpoint | None) -> None:
    # Ray reports lost processes on stdout, at length; our log does, in a sentence, on stderr.
    out = sys.stdout if isinstance(model.engine, str) else io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # printed among the facts
        model.fit(ratings, validation=validation, checkpoint=checkpoint)


def _result(
    args: argparse.Namespace, model: BayesianMF, scores: dict[str, Any] | None
) -> dict[str, Any]:
    last: dict[int, Mapping[str, Any]] = {event["chain"]: event for event in model.history_}
    convergence = model.report_["convergence"]
    return {
        **{name: None if scores is None else scores[name] for name in SCORES},
        **model.report_,
        "convergence": {**convergence, "advice": advice(convergence, shell=True)},
        "peak_rss_mb": peak_rss_mb(),
        "train_rmse": [last[chain]["train_rmse"] for chain in sorted(last)],
        "settings": {"engine": args.engine, **{name: getattr(model, name) for name in SETTINGS}},
        "test": scores,
        "model": args.out,
    }


def _print(args: argparse.Namespace, result: dict[str, Any], scores: dict[str, Any] | None) -> None:
    from bayesmf.cli.evaluate import score_facts
    from bayesmf.diagnostics.convergence import fit_facts

    rmse = sum(result["train_rmse"]) / max(len(result["train_rmse"]), 1)
    single = "" if result["convergence"]["state"] == "optimiser" else ", of single draws"
    facts = [*fit_facts(result, shell=True), ("train RMSE", f"{short(rmse)}{single}")]
    if result["validation_rmse"] is not None:
        facts.append(("validation", f"RMSE {short(result['validation_rmse'])}"))
    if result["compile_seconds"] >= 5:
        facts.append(("compiling", f"{result['compile_seconds']:.0f} s; later runs take less"))
    if args.engine not in ("threads", "serial"):
        facts += engine_facts(result["engine"])
    facts.append(("peak memory", f"{result['peak_rss_mb'] or 0:.0f} MB"))
    facts += score_facts(scores) if scores else []
    facts += [("held out", str(args.save_holdout))] if args.save_holdout else []
    if args.checkpoint:
        resumed = ", resumed from it" if args.resumed else ""
        facts.append(("checkpoint", f"{args.checkpoint}{resumed}"))
    print_facts([*facts, ("saved", args.out)])


def engine_facts(report: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Workers, idle time, bytes moved and faults of a report, for people."""
    if not report or "idle" not in report:
        return []
    idle = [100 * share for share in report["idle"]]
    where = f" on {count(report['nodes'], 'node')}" if "nodes" in report else ""
    waited = f"{idle[0]:.0f}%" if len(idle) == 1 else f"{min(idle):.0f} to {max(idle):.0f}%"
    line = f"{report['name']}, {count(report['workers'], 'worker')}{where}, idle {waited}"
    moved = report["bytes_sent"] + report["bytes_received"] + report.get("fetched_bytes", 0)
    moved += report.get("peer_bytes_per_round", 0) * report.get("rounds", 0)
    if moved:
        line += f", {moved / 1e6:,.0f} MB of parameters moved"
    facts = [("engine", line)]
    slow = report["slowest_partitions"]
    if len(report["idle"]) > 1 and slow:
        median, worst = report["task_seconds"]["median"], max(slow, key=lambda one: one["mean"])
        task, block = f"{1e3 * median:.3g} ms", f"{1e3 * worst['mean']:.3g} ms"
        facts.append(
            ("blocks", f"median task {task}, slowest block {block} ({worst['partition']})")
        )
    if report["faults"]:
        faults = count(len(report["faults"]), "fault")
        facts.append(("faults", f"{faults} handled; the last: {report['faults'][-1]}"))
    return facts
