"""`bayesmf fit`: learn from ratings, save the model."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.cli.output import count, print_facts, print_json, short
from bayesmf.errors import InputError

if TYPE_CHECKING:
    from bayesmf.estimator import BayesianMF
    from bayesmf.samplers import Auto, Sampler

# Settings of samplers, by the name that samplers.py gives them.
SETTINGS = {
    "grid": "--grid",
    "n_chains": "--chains",
    "epochs": "--epochs",
    "burn_in": "--burn-in",
    "thin": "--thin",
    "batch_size": "--batch-size",
    "round_length": "--round-length",
    "step_size": "--step-size",
    "kappa": "--kappa",
    "decay": "--decay",
    "noise": "--noise",
    "minibatch": "--minibatch",
    "precision_every": "--precision-every",
    "precisions_from": "--precisions-from",
    "visits": "--visits",
    "shuffle_groups": "--shuffle-groups",
    "regularization": "--regularization",
    "initial_precision": "--initial-precision",
}
SCORES = ("rmse", "mae", "nll", "crps", "coverage")


def parser() -> options.Parser:
    """The options of `fit`."""
    out = options.command(
        "fit",
        "Learn from a file of ratings and save the model. What is not given follows the data.",
        "ratings.csv --out model --holdout 0.1",
        "ratings.csv --out model --sampler sgld --grid 2x2 --chains 2",
    )
    out.add_argument("ratings", metavar="RATINGS", help="file or folder of ratings")
    out.add_argument("--out", required=True, metavar="MODEL", help="folder to save the model to")
    scored = out.add_mutually_exclusive_group()
    scored.add_argument(
        "--test", metavar="FILE", help="ratings to score at the end, never learnt from"
    )
    scored.add_argument(
        "--holdout",
        type=options.level,
        metavar="SHARE",
        help="share of RATINGS to hold out at random and score at the end, such as 0.1",
    )
    out.add_argument(
        "--validation", metavar="FILE", help="ratings whose RMSE is followed meanwhile"
    )
    options.add_json(out)
    _model_options(out.add_argument_group("model"))
    _sampler_options(out.add_argument_group("sampler settings"))
    _gradient_options(out.add_argument_group("settings of sgd and sgld alone"))
    run = out.add_argument_group("run")
    run.add_argument(
        "--engine", choices=("serial", "threads"), default="threads", help="where it runs (threads)"
    )
    run.add_argument("--workers", type=options.whole(1), metavar="W", help="threads (all cores)")
    run.add_argument(
        "--seed", type=options.whole(0), default=0, metavar="S", help="same seed, same bits (0)"
    )
    files = out.add_argument_group("files")
    options.add_file_options(files)
    files.add_argument(
        "--duplicates",
        choices=("last", "mean", "error"),
        default="last",
        help="what to do where a user rated an item more than once (last)",
    )
    return out


def _model_options(group: argparse._ArgumentGroup) -> None:
    add, positive = group.add_argument, options.positive
    add("--factors", type=options.whole(1), metavar="D", help="latent features (by the data)")
    add("--prior", choices=("gamma", "wishart"), default="gamma", help="of the factors (gamma)")
    add(
        "--tau",
        type=options.tau,
        default="sample",
        metavar="sample|X",
        help="noise precision (sample)",
    )
    add("--alpha0", type=positive, metavar="A", help="shape of the Gamma hyper-priors (1)")
    add("--beta0", type=positive, metavar="B", help="rate of the Gamma hyper-priors (1)")
    add("--no-standardize", action="store_true", help="centre the ratings, do not scale them")
    add("--max-draws", type=options.whole(1), metavar="N", help="draws kept, over all chains")
    add(
        "--sampler",
        choices=("auto", "sgd", "sgld", "gibbs"),
        default="auto",
        help="auto (default): gibbs where a sweep is affordable, sgld beyond",
    )


def _sampler_options(group: argparse._ArgumentGroup) -> None:
    add, whole, positive = group.add_argument, options.whole, options.positive
    add("--epochs", type=positive, metavar="E", help="passes over the ratings")
    add("--chains", type=whole(1), dest="n_chains", metavar="C", help="auto, sgld, gibbs: chains")
    add(
        "--burn-in", type=options.burn_in, metavar="B",
        help="auto, sgld, gibbs: epochs dropped, or rmse:0.85 (by --validation), or stationary",
    )  # fmt: skip
    add("--thin", type=positive, metavar="K", help="auto, sgld, gibbs: epochs between kept draws")
    add(
        "--initial-precision", type=positive, metavar="P", help="sgld, gibbs: before the first draw"
    )
    add("--regularization", type=positive, metavar="R", help="sgd: precision of all columns")
    add("--noise", choices=("matched", "paper"), help="sgld: variance of the noise (matched)")
    add("--precision-every", type=whole(1), metavar="K", help="sgld: rounds between their draws")
    add(
        "--precisions-from",
        choices=("start", "burn-in"),
        help="sgld: when precisions are drawn (start)",
    )


def _gradient_options(group: argparse._ArgumentGroup) -> None:
    add, whole, positive = group.add_argument, options.whole, options.positive
    add("--grid", type=options.grid, metavar="RxC", help="blocks of the rating matrix (1x1)")
    add("--batch-size", type=whole(1), metavar="m", help="ratings in a mini-batch")
    add("--round-length", type=whole(1), metavar="g", help="mini-batch updates in a round")
    add("--step-size", type=positive, metavar="e", help="e (1 + t/k)^-y is the step of round t")
    add("--kappa", type=positive, metavar="k", help="rounds before the step begins to fall (all)")
    add("--decay", type=options.unit, metavar="y", help="how fast it falls, from 0 to 1 (0.51)")
    add("--minibatch", choices=("shuffled", "replacement"), help="how mini-batches are made")
    add(
        "--visits", type=options.visits, metavar="equal|size|w1,w2,..",
        help="how often each orthogonal group is visited",
    )  # fmt: skip
    add(
        "--shuffle-groups",
        action="store_true",
        default=None,
        help="draw the order of groups anew each cycle",
    )


def run(args: argparse.Namespace) -> None:
    """Fit, save, and tell."""
    from bayesmf.ratings import Ratings
    from bayesmf.storage import check_writable

    model = _model(args)
    check_writable(args.out)

    def read(path: str | None) -> Ratings | None:
        if path is None:
            return None
        return Ratings.read(
            path, format=args.format, columns=args.columns, duplicates=args.duplicates
        )

    ratings, validation, test = map(read, (args.ratings, args.validation, args.test))
    if args.holdout is not None:
        assert ratings is not None
        ratings, test = ratings.split(args.holdout, seed=args.seed)
    _fit(model, ratings, validation)
    # Before anything else can fail: it may have taken hours.
    model.save(args.out)
    scores = None
    if test is not None:
        from bayesmf.cli.scores import score

        scores = score(model, test)
    if args.json:
        print_json(_result(args, model, scores))
    else:
        _tell(args, model, scores)


def _fit(model: BayesianMF, ratings: Any, validation: Any) -> None:
    from bayesmf.callbacks import Progress

    progress = Progress()
    model.callbacks = (progress,)
    try:
        model.fit(ratings, validation)
    finally:
        progress.close()


def _model(args: argparse.Namespace) -> BayesianMF:
    from bayesmf.estimator import BayesianMF

    sampler = _sampler(args)
    if args.workers is not None and args.engine == "serial":
        raise InputError("--workers is for --engine threads: serial has one")
    if args.sampler == "sgd" or args.prior == "wishart":
        # Then no Gamma precision is drawn, so these would be without effect.
        for name in ("alpha0", "beta0"):
            if getattr(args, name) is not None:
                raise InputError(
                    f"--{name} has no effect with --sampler sgd, nor with --prior wishart: "
                    "leave it out"
                )
    return BayesianMF(
        args.factors,
        sampler=sampler,
        prior=args.prior,
        tau=args.tau,
        alpha_0=1.0 if args.alpha0 is None else args.alpha0,
        beta_0=1.0 if args.beta0 is None else args.beta0,
        standardize=not args.no_standardize,
        max_draws=args.max_draws,
        engine=args.engine,
        n_workers=args.workers,
        random_state=args.seed,
    )


def _sampler(args: argparse.Namespace) -> Sampler | Auto:
    from bayesmf.rules import check_settings
    from bayesmf.samplers import SGD, SGLD, Auto, Gibbs

    given = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    rules: dict[str, Any] = {"auto": Auto, "sgd": SGD, "sgld": SGLD, "gibbs": Gibbs}
    known = {name: {field.name for field in fields(rule)} for name, rule in rules.items()}
    for setting in given:
        if setting not in known[args.sampler]:
            having = " or ".join(f"--sampler {name}" for name in rules if setting in known[name])
            raise InputError(f"{SETTINGS[setting]} does nothing in {args.sampler}: use {having}")
    sampler: Sampler | Auto = rules[args.sampler](**given)
    # Now, because reading the ratings may take minutes.
    check_settings(sampler)
    if str(args.burn_in).startswith("rmse:") and args.validation is None:
        raise InputError(f"--burn-in {args.burn_in} needs --validation FILE")
    return sampler


def _result(
    args: argparse.Namespace, model: BayesianMF, scores: dict[str, Any] | None
) -> dict[str, Any]:
    settings = ("tau", "alpha_0", "beta_0", "standardize", "max_draws", "engine", "n_workers")
    last: dict[int, Mapping[str, Any]] = {event["chain"]: event for event in model.history_}
    events = [last[chain] for chain in sorted(last)]
    return {
        **(dict.fromkeys(SCORES) if scores is None else {name: scores[name] for name in SCORES}),
        **model.report_,
        "peak_rss_mb": _peak_rss_mb(),
        "train_rmse": [event["train_rmse"] for event in events],
        "validation_rmse": [event["rmse"] for event in events],
        "settings": {name: getattr(model, name) for name in settings},
        "test": scores,
        "model": args.out,
    }


def _peak_rss_mb() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _tell(args: argparse.Namespace, model: BayesianMF, scores: dict[str, Any] | None) -> None:
    from bayesmf.cli.scores import score_facts

    result = _result(args, model, scores)
    rmse = sum(result["train_rmse"]) / max(len(result["train_rmse"]), 1)
    facts = [*fit_facts(result), ("train RMSE", short(rmse))]
    if result["validation_rmse"] and result["validation_rmse"][-1] is not None:
        facts.append(("validation", f"RMSE {short(result['validation_rmse'][-1])}"))
    facts.append(("memory", f"{result['peak_rss_mb'] or 0:.0f} MB at the most"))
    print_facts([*facts, *(score_facts(scores) if scores else ()), ("saved", args.out)])


def fit_facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How a model was fitted, for people."""
    settings = dict(report["sampler"])
    rule = settings.pop("rule")
    told = ", ".join(
        f"{name} {_told(value)}" for name, value in settings.items() if value is not None
    )
    chains = count(settings.get("n_chains", 1), "chain")
    seconds = f"{report['seconds']:.1f} s, {report['ratings_per_second'] / 1e6:.2f}M ratings/s"
    return [
        (
            "ratings",
            f"{report['ratings']:,} by {count(report['users'], 'user')} "
            f"of {count(report['items'], 'item')}",
        ),
        ("model", f"{count(report['factors'], 'factor')}, {report['prior']} prior"),
        ("sampler", "\n".join(textwrap.wrap(f"{rule}: {told}", 86))),
        ("seed", str(report["seed"])),
        ("time", f"{seconds} (and {report['compile_seconds']:.1f} s to compile)"),
        ("draws", f"{report['draws']} from {chains} of {report['epochs']:g} epochs"),
        (
            "noise",
            f"tau {report['tau']:.4g}, a standard deviation of {short(report['tau'] ** -0.5)}",
        ),
    ]


def _told(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
