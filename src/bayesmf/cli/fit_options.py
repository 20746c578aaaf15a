"""The settings of samplers as options of `bayesmf fit`, and the sampler they make."""

from __future__ import annotations

import argparse
from typing import Any

from bayesmf.cli import options
from bayesmf.errors import InputError
from bayesmf.samplers.auto import Auto
from bayesmf.samplers.base import BatchRule, Sampler, check_settings
from bayesmf.samplers.registry import REGISTRY
from bayesmf.samplers.settings import Flag, OneOf, Setting, Whole, settings_of

MINI_BATCH = "mini-batch samplers"


def add_model_options(group: argparse._ArgumentGroup) -> None:
    """Options of the model itself, and which sampler, until when."""
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
    add(
        "--noise-by", choices=("auto", "user", "item", "both", "none"), default="auto",
        help="whose ratings have a noise of their own (auto: both; none for sgd, --noise paper and "
        "a fixed --tau)",
    )  # fmt: skip
    add("--alpha0", type=positive, metavar="A", help="shape of the Gamma hyper-priors (1)")
    add("--beta0", type=positive, metavar="B", help="rate of the Gamma hyper-priors (1)")
    add("--no-standardize", action="store_true", help="centre the ratings, do not scale them")
    add(
        "--keep", choices=("auto", "items", "users", "both"), default="auto",
        help="side whose draws are kept (auto: items, unless users are far fewer); rows of the "
        "other follow from their ratings",
    )  # fmt: skip
    add(
        "--max-draws",
        type=options.whole(1),
        metavar="N",
        help="draws kept, over all chains; at least one of each",
    )
    add(
        "--sampler",
        choices=tuple(REGISTRY),
        default="auto",
        metavar="NAME",
        help=f"{', '.join(REGISTRY)}; auto is gibbs, whole rows of few factors, four columns at a "
        "time beyond (auto)",
    )
    add(
        "--target", choices=("fast", "balanced", "accurate"),
        help="auto, gibbs without --epochs: when sampling is enough (balanced)",
    )  # fmt: skip
    add("--max-seconds", type=positive, metavar="S", help="stop sampling after this long")


def add_folder_options(group: argparse._ArgumentGroup) -> None:
    """Options of what is written of a model."""
    add = group.add_argument
    add("--no-users", action="store_true",
        help="leave people out of MODEL: no ids, rows or ratings of any user; it then answers by "
        "the ratings that people send (as --keep items)")  # fmt: skip
    add("--max-saved-draws", type=options.whole(1), metavar="N",
        help="draws in MODEL, spread evenly, at least one of each chain (all)")  # fmt: skip


def check_folder_options(args: argparse.Namespace) -> None:
    """Refuse now what could not be saved after hours; without users, items are kept."""
    if not args.no_users:
        return
    if args.keep == "users":
        raise InputError(
            "--no-users leaves nothing of a model with --keep users: use --keep items, or leave "
            "one of them out"
        )
    if args.keep == "auto":
        args.keep = "items"


def add_sampler_options(parser: argparse.ArgumentParser) -> None:
    """All settings that samplers have, each with those it belongs to."""
    own = parser.add_argument_group("sampler settings")
    batches = parser.add_argument_group("settings of mini-batch samplers")
    for name, (how, default, having) in _settings().items():
        whose = _whose(having)
        group = batches if whose == MINI_BATCH else own
        text = how.help if whose in ("", MINI_BATCH) else f"{whose}: {how.help}"
        if default is not None and not isinstance(how, Flag):
            text += f" ({_shown(default)})"
        group.add_argument(how.flag(name), dest=name, help=text, **_argument(how))


def _shown(default: Any) -> str:
    """A default as it is written on the command line."""
    if isinstance(default, tuple):  # a grid
        return "x".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _settings() -> dict[str, tuple[Setting, Any, list[str]]]:
    """Every setting that is offered, its default if samplers agree on one, and who has it."""
    found: dict[str, tuple[Setting, Any, list[str]]] = {}
    for sampler, rule in REGISTRY.items():
        for name, how in settings_of(rule).items():
            default = getattr(rule, name)  # that of a field
            if name not in found:
                found[name] = how, default, [sampler]
                continue
            first, known, having = found[name]
            agreed = known if known == default else None
            found[name] = (first if first.help else how), agreed, [*having, sampler]
    offered = {name: entry for name, entry in found.items() if entry[0].help}
    # What most samplers have comes first.
    return dict(sorted(offered.items(), key=lambda entry: -len(entry[1][2])))


def _whose(having: list[str]) -> str:
    """Names of the samplers that have a setting, in few words; none where all do."""
    others = [name for name in REGISTRY if name not in having]
    batches = [name for name, rule in REGISTRY.items() if issubclass(rule, BatchRule)]
    if having == batches:
        return MINI_BATCH
    if len(others) <= 2:
        return f"all but {', '.join(others)}" if others else ""
    return ", ".join(having)


def _argument(how: Setting) -> dict[str, Any]:
    """What argparse needs to read a setting."""
    if isinstance(how, OneOf):
        return {"choices": how.choices, "type": type(how.choices[0])}
    if isinstance(how, Flag):
        return {"action": "store_true", "default": None}
    if isinstance(how, Whole):
        return {"type": options.whole(how.least), "metavar": how.metavar}
    return {"type": getattr(options, how.reads), "metavar": how.metavar}


def make_sampler(args: argparse.Namespace) -> Sampler | Auto:
    """The sampler of the options; one sentence for those that it does not have."""
    known = _settings()
    given = {name: getattr(args, name) for name in known if getattr(args, name) is not None}
    for name in given:
        how, _, having = known[name]
        if args.sampler not in having:
            others = " or ".join(f"--sampler {one}" for one in having)
            raise InputError(f"{how.flag(name)} does nothing in {args.sampler}: use {others}")
        if name in ("visits", "shuffle_groups") and args.grid in (None, "1x1"):
            raise InputError(f"{how.flag(name)} does nothing with one block: add --grid RxC")
    sampler: Sampler | Auto = REGISTRY[args.sampler](**given)
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
