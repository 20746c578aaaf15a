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

from bayesmf.cli import engine_options, fit_options, options
from bayesmf.cli.output import check_file, note, peak_rss_mb, print_facts, print_json
from bayesmf.diagnostics.convergence import advice
from bayesmf.errors import InputError
from bayesmf.wording import short

if TYPE_CHECKING:
    from bayesmf.checkpoints.folder import Checkpoint
    from bayesmf.data.ratings import Ratings
    from bayesmf.estimator.bayesian_mf import BayesianMF
    from bayesmf.packed.ratings import PackedRatings

SCORES = ("rmse", "mae", "nll", "crps", "coverage")


def parser() -> options.Parser:
    """The options of `fit`."""
    out = options.command(
        "fit",
        "Learn from a file of ratings and save the model. What is not given follows the data.",
        "ratings.csv --out model --holdout 0.1",
        "ratings.csv --out model --sampler sgld --grid 2x2 --chains 2",
    )
    add = out.add_argument
    add("ratings", metavar="RATINGS", help="file or folder of ratings, packed ones too")
    add("--out", required=True, metavar="MODEL", help="folder to save the model to")
    scored = out.add_mutually_exclusive_group()
    scored.add_argument(
        "--test", metavar="FILE", help="ratings to score at the end, never learnt from"
    )
    scored.add_argument(
        "--holdout", type=options.share, metavar="SHARE",
        help="share of RATINGS to hold out at random and score at the end, such as 0.1",
    )  # fmt: skip
    add("--save-holdout", metavar="FILE", type=Path,
        help="write what is held out to a .csv or .parquet file, for diagnose --test")  # fmt: skip
    add("--validation", metavar="FILE", help="ratings whose RMSE is followed while chains run")
    options.add_json(out)
    fit_options.add_model_options(out.add_argument_group("model"))
    fit_options.add_folder_options(out.add_argument_group("what is saved"))
    fit_options.add_sampler_options(out)
    run = out.add_argument_group("run")
    engine_options.add_engine_options(run)
    options.add_seed(run, "all that is drawn: the same seed gives the same bits")
    _add_checkpoint_options(out.add_argument_group("checkpoints"))
    files = out.add_argument_group("files")
    options.add_file_options(files)
    options.add_duplicates(files)
    return out


def _add_checkpoint_options(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--checkpoint", metavar="DIR", help="folder in which the run is written down while it lasts"
    )
    add("--checkpoint-every", type=options.seconds, metavar="SECONDS",
        help="how often (60); 0 is after every round")  # fmt: skip
    add("--resume", action="store_true",
        help="go on from DIR to the same bits; from the beginning if there is nothing in it",
    )  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Fit, save, and print the result."""
    from bayesmf.cli.scores import score
    from bayesmf.server.settings import least_bytes
    from bayesmf.storage.writer import check_writable

    checkpoint = _checkpoint(args)
    fit_options.check_folder_options(args)
    model = _model(args)
    check_writable(args.out)
    if args.save_holdout is not None:
        _check_holdout(args)
    if checkpoint is not None:
        args.resumed = _look(checkpoint)
    train, validation, test = _read(args)
    sizes = train.n_users, train.n_items, len(train)
    least = least_bytes(args.factors, _least_draws(args), *sizes, args.keep, not args.no_users)
    check_writable(args.out, least)
    _fit(model, train, validation, checkpoint)
    # Before anything else can fail: it may have taken hours.
    model.save(args.out, users=not args.no_users, max_draws=args.max_saved_draws)
    if args.save_holdout is not None:
        assert test is not None
        try:
            test.write(args.save_holdout)
        except InputError as error:
            saved = f"; the model is saved in {args.out}"
            raise InputError(str(error).rstrip(".") + saved) from None
    scores = None if test is None else score(model, test)
    if args.json:
        print_json(_result(args, model, scores))
    else:
        _tell(args, model, scores)


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


def _least_draws(args: argparse.Namespace) -> int:
    """Fewest arrays of rows that a model has; Gibbs has conditional means beside draws."""
    if args.sampler == "sgd":
        return 1
    draws = min(16, args.max_draws or 16, args.max_saved_draws or 16)
    return draws * (2 if args.sampler in ("auto", "gibbs") else 1)


def _checkpoint(args: argparse.Namespace) -> Checkpoint | None:
    """Checkpoint that the options ask for, if any."""
    if args.checkpoint is None:
        for name, given in (
            ("--checkpoint-every", args.checkpoint_every is not None),
            ("--resume", args.resume),
        ):
            if given:
                raise InputError(f"{name} needs --checkpoint DIR")
        return None
    from bayesmf.checkpoints.folder import Checkpoint
    from bayesmf.storage.paths import real_path

    one, other = real_path(args.checkpoint), real_path(args.out)
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise InputError(
            f"--checkpoint {args.checkpoint} and --out {args.out} must be two folders, neither of "
            "them in the other"
        )
    every = 60.0 if args.checkpoint_every is None else args.checkpoint_every
    return Checkpoint(args.checkpoint, every=every, resume=args.resume)


def _check_holdout(args: argparse.Namespace) -> None:
    """Refuse now a file that would be in the way of what is read or written later."""
    if args.holdout is None:
        raise InputError("--save-holdout needs --holdout SHARE")
    from bayesmf.storage.paths import real_path

    read = [Path(path) for path in (args.ratings, args.validation) if path is not None]
    check_file(args.save_holdout, (".csv", ".parquet"), inputs=read)
    path = args.save_holdout.resolve()
    if path.exists() and path.is_relative_to(read[0].resolve()):
        raise InputError(f"{args.save_holdout} is among what is read: choose another name")
    for folder in (args.out, args.checkpoint):
        if folder is not None and path.is_relative_to(real_path(folder)):
            raise InputError(
                f"--save-holdout {args.save_holdout} is in {folder}: choose another folder"
            )


def _look(checkpoint: Checkpoint) -> bool:
    """Whether there is a checkpoint to resume; refuses its folder before the ratings are read."""
    from bayesmf.checkpoints.folder import noted_run

    begun = noted_run(checkpoint) is not None
    if checkpoint.resume and not begun:
        note(f"{checkpoint.folder} holds no checkpoint: starting from the beginning")
    return begun


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
    from bayesmf.engines.ray.cluster import Cluster
    from bayesmf.errors import ConvergenceWarning

    # Ray tells of lost processes on stdout, at length; so does our log, in a sentence, on stderr.
    silence = io.StringIO() if isinstance(model.engine, Cluster) else sys.stdout
    with contextlib.redirect_stdout(silence), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told among the facts
        model.fit(ratings, validation=validation, checkpoint=checkpoint)


def _model(args: argparse.Namespace) -> BayesianMF:
    from bayesmf.estimator.bayesian_mf import BayesianMF

    sampler = fit_options.make_sampler(args)
    engine = engine_options.engine_from_options(args)
    if args.sampler == "sgd" or args.prior != "gamma":
        # Then no Gamma precision is drawn, or none need be: these would be without effect.
        for name in ("alpha0", "beta0"):
            if getattr(args, name) is not None:
                asked = "--sampler sgd" if args.sampler == "sgd" else f"--prior {args.prior}"
                raise InputError(
                    f"--{name} is for --prior gamma, and may have no effect with {asked}: "
                    "add --prior gamma, with another sampler than sgd, or leave it out"
                )
    return BayesianMF(
        args.factors,
        sampler=sampler,
        target=args.target or "balanced",
        max_seconds=args.max_seconds,
        prior=args.prior,
        tau=args.tau,
        noise_by=None if args.noise_by == "none" else args.noise_by,
        alpha_0=1.0 if args.alpha0 is None else args.alpha0,
        beta_0=1.0 if args.beta0 is None else args.beta0,
        standardize=not args.no_standardize,
        keep=args.keep,
        max_draws=args.max_draws,
        engine=engine,  # type: ignore[arg-type]
        n_workers=args.workers,
        random_state=args.seed,
    )


def _result(
    args: argparse.Namespace, model: BayesianMF, scores: dict[str, Any] | None
) -> dict[str, Any]:
    settings = (
        "tau",
        "noise_by",
        "alpha_0",
        "beta_0",
        "standardize",
        "keep",
        "max_draws",
        "n_workers",
    )
    last: dict[int, Mapping[str, Any]] = {event["chain"]: event for event in model.history_}
    events = [last[chain] for chain in sorted(last)]
    found = model.report_["convergence"]
    return {
        **(dict.fromkeys(SCORES) if scores is None else {name: scores[name] for name in SCORES}),
        **model.report_,
        "convergence": {**found, "advice": advice(found, shell=True)},
        "peak_rss_mb": peak_rss_mb(),
        "train_rmse": [event["train_rmse"] for event in events],
        "settings": {"engine": args.engine, **{name: getattr(model, name) for name in settings}},
        "test": scores,
        "model": args.out,
    }


def _tell(args: argparse.Namespace, model: BayesianMF, scores: dict[str, Any] | None) -> None:
    from bayesmf.cli.scores import score_facts
    from bayesmf.estimator.facts import fit_facts

    result = _result(args, model, scores)
    rmse = sum(result["train_rmse"]) / max(len(result["train_rmse"]), 1)
    single = "" if result["convergence"]["state"] == "optimiser" else ", of single draws"
    facts = [*fit_facts(result, shell=True), ("train RMSE", f"{short(rmse)}{single}")]
    if result["validation_rmse"] is not None:
        facts.append(("validation", f"RMSE {short(result['validation_rmse'])}"))
    if result["compile_seconds"] >= 5:
        facts.append(("compiling", f"{result['compile_seconds']:.0f} s; later runs take less"))
    if args.engine not in ("threads", "serial"):
        facts += engine_options.engine_facts(result["engine"])
    facts.append(("memory", f"{result['peak_rss_mb'] or 0:.0f} MB at the most"))
    facts += score_facts(scores) if scores else []
    facts += [("held out", str(args.save_holdout))] if args.save_holdout else []
    if args.checkpoint:
        went_on = ", from which this run went on" if args.resumed else ""
        facts.append(("checkpoint", f"{args.checkpoint}{went_on}"))
    print_facts([*facts, ("saved", args.out)])
