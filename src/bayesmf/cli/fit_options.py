"""The settings of samplers as options of `bayesmf fit`, and the sampler they make."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING

from bayesmf.cli import options
from bayesmf.errors import InputError

if TYPE_CHECKING:
    from bayesmf.samplers.registry import Auto, Sampler

# Settings of samplers, by the name that samplers/registry.py gives them.
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
    "pace": "--pace",
    "decay": "--decay",
    "noise": "--noise",
    "minibatch": "--minibatch",
    "precision_every": "--precision-every",
    "precisions_from": "--precisions-from",
    "visits": "--visits",
    "shuffle_groups": "--shuffle-groups",
    "regularization": "--regularization",
    "initial_precision": "--initial-precision",
    "overrelax": "--overrelax",
    "joint": "--joint",
    "delta_max": "--delta-max",
    "rho": "--rho",
    "exact_below": "--exact-below",
    "friction": "--friction",
    "gain": "--gain",
}
SAMPLERS = ("auto", "gibbs", "rowclock", "sghmc", "sgnht", "sgld", "sgd")


def add_model_options(group: argparse._ArgumentGroup) -> None:
    """Of the model itself, and which sampler, until when."""
    add, positive = group.add_argument, options.positive
    add("--factors", type=options.whole(1), metavar="D", help="latent features (by the data)")
    add(
        "--prior", choices=("auto", "gamma", "wishart", "wishart-bias"), default="auto",
        help="of the factors (auto: wishart-bias with gibbs, gamma elsewhere)",
    )  # fmt: skip
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
    add(
        "--max-draws",
        type=options.whole(1),
        metavar="N",
        help="draws kept, over all chains; at least one of each",
    )
    add(
        "--sampler",
        choices=SAMPLERS,
        default="auto",
        help="auto (default): gibbs, whole rows of few factors, four columns at a time beyond",
    )
    add(
        "--target", choices=("fast", "balanced", "accurate"),
        help="auto, gibbs without --epochs: when sampling is enough (balanced)",
    )  # fmt: skip
    add("--max-seconds", type=positive, metavar="S", help="stop sampling after this long")


def add_sampler_options(group: argparse._ArgumentGroup) -> None:
    """Settings that samplers have, each with those it belongs to."""
    add, whole, positive = group.add_argument, options.whole, options.positive
    add("--epochs", type=positive, metavar="E", help="passes over the ratings")
    add("--chains", type=whole(1), dest="n_chains", metavar="C", help="all but sgd: chains")
    add(
        "--burn-in", type=options.burn_in, metavar="B",
        help="all but sgd: epochs dropped, or rmse:0.85 (by --validation), or stationary",
    )  # fmt: skip
    add("--thin", type=positive, metavar="K", help="all but sgd: epochs between kept draws")
    add("--initial-precision", type=positive, metavar="P", help="before the first draw (2)")
    add(
        "--overrelax",
        type=options.unit,
        metavar="A",
        help="auto, gibbs: from 0, plain draws, to below 1 (0.9)",
    )
    add(
        "--joint", type=int, choices=(4, 1),
        help="gibbs: columns drawn together (all of a row); 1 is coordinate Gibbs",
    )  # fmt: skip
    add("--delta-max", type=positive, metavar="D", help="rowclock, sghmc, sgnht: longest step")
    add("--rho", type=positive, metavar="R", help="the same: largest share of mini-batch noise")
    add("--exact-below", type=whole(0), metavar="N", help="the same: rarer rows are drawn exactly")
    add("--friction", type=positive, metavar="F", help="sghmc, sgnht: loss of momentum")
    add("--gain", type=positive, metavar="G", help="sgnht: how fast the thermostat reacts")
    add("--regularization", type=positive, metavar="R", help="sgd: precision of all columns")
    add("--noise", choices=("matched", "paper"), help="sgld: variance of the noise (matched)")
    add(
        "--precision-every", type=whole(1), metavar="K",
        help="mini-batch samplers: rounds between their draws",
    )  # fmt: skip
    add(
        "--precisions-from", choices=("start", "burn-in"),
        help="sgld: when precisions are drawn (start)",
    )  # fmt: skip


def add_gradient_options(group: argparse._ArgumentGroup) -> None:
    """Of those that go by mini-batches."""
    add, whole, positive = group.add_argument, options.whole, options.positive
    add("--grid", type=options.grid, metavar="RxC", help="blocks of the rating matrix (1x1)")
    add("--batch-size", type=whole(1), metavar="m", help="ratings in a mini-batch")
    add("--round-length", type=whole(1), metavar="g", help="mini-batch updates in a round")
    add("--step-size", type=positive, metavar="e", help="e (1 + t/k)^-y is the step of round t")
    add("--pace", type=positive, metavar="p", help="times the step chosen without --step-size (1)")
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


def make_sampler(args: argparse.Namespace) -> Sampler | Auto:
    """The sampler of the options; one sentence for those that it does not have."""
    from bayesmf.samplers.base import check_settings
    from bayesmf.samplers.registry import SAMPLERS as RULES

    given = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    rules = RULES
    known = {name: {field.name for field in fields(rule)} for name, rule in rules.items()}
    for setting in given:
        if setting not in known[args.sampler]:
            having = " or ".join(f"--sampler {name}" for name in rules if setting in known[name])
            raise InputError(f"{SETTINGS[setting]} does nothing in {args.sampler}: use {having}")
    for setting in ("visits", "shuffle_groups"):
        if setting in given and args.grid in (None, "1x1"):
            raise InputError(f"{SETTINGS[setting]} does nothing with one block: add --grid RxC")
    sampler: Sampler | Auto = rules[args.sampler](**given)
    # Now, because reading the ratings may take minutes.
    check_settings(sampler)
    if args.target is not None and not getattr(sampler, "adaptive", args.epochs is None):
        why = "--epochs says" if args.epochs is not None else f"--sampler {args.sampler} says"
        raise InputError(
            f"--target does nothing where {why} how long to sample: leave one of them out"
        )
    if str(args.burn_in).startswith("rmse:") and args.validation is None:
        raise InputError(f"--burn-in {args.burn_in} needs --validation FILE")
    return sampler
