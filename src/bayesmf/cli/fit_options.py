"""Options of `bayesmf fit` for the model, its sampler and its engine, and what they make."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from bayesmf.cli import options
from bayesmf.engines.registry import ENGINES
from bayesmf.errors import InputError
from bayesmf.samplers.base import BatchRule, Sampler, check_settings
from bayesmf.samplers.gibbs import Auto
from bayesmf.samplers.registry import REGISTRY
from bayesmf.samplers.settings import Flag, OneOf, Setting, Whole, settings_of

if TYPE_CHECKING:
    from bayesmf.engines.ray.cluster import Cluster

MINI_BATCH = "mini-batch samplers"
# Options of Ray alone: their names in the parsed arguments and in `Cluster`.
RAY_OPTIONS = {"ray_address": "address", "task_timeout": "task_timeout", "retries": "retries"}

# fmt: off


def add_model_options(group: argparse._ArgumentGroup) -> None:
    """Options of the model itself, which sampler, and how long it samples."""
    add, positive, whole = group.add_argument, options.positive, options.whole(1)
    add("--factors", type=whole, metavar="D", help="latent factors (from the data)")
    add("--prior", choices=("auto", "gamma", "wishart", "wishart-bias"), default="auto",
        help="prior of the factors (auto: wishart-bias with gibbs, gamma elsewhere)")
    add("--tau", type=options.tau, default="sample", metavar="sample|X",
        help="noise precision (sample)")
    add("--noise-by", choices=("auto", "user", "item", "both", "none"), default="auto",
        help="whose ratings have a noise of their own (auto: both; none for sgd, --noise paper and "
        "a fixed --tau)")
    add("--alpha0", dest="alpha_0", type=positive, metavar="A",
        help="prior gamma: shape of the hyper-priors (1)")
    add("--beta0", dest="beta_0", type=positive, metavar="B", help="prior gamma: rate of these (1)")
    add("--mu0", dest="mu_0", type=options.any_number, metavar="M",
        help="prior wishart: mean of the hyper-prior of means (0)")
    add("--kappa0", dest="kappa_0", type=positive, metavar="K",
        help="prior wishart: its precision, in units of that of the rows (2)")
    add("--nu0", dest="nu_0", type=positive, metavar="N",
        help="prior wishart: degrees of freedom of the precisions (columns of a row)")
    add("--w0", dest="W_0", type=positive, metavar="W", help="prior wishart: scale of these (1)")
    add("--no-standardize", action="store_true", help="centre the ratings, do not scale them")
    add("--keep", choices=("auto", "items", "users", "both"), default="auto",
        help="side whose draws are kept (auto: items, unless users are far fewer); rows of the "
        "other follow from their ratings")
    add("--max-draws", type=whole, metavar="N",
        help="draws kept, over all chains; at least one of each")
    add("--sampler", choices=tuple(REGISTRY), default="auto", metavar="NAME",
        help=f"{', '.join(REGISTRY)}; auto is gibbs, whole rows of few factors, four columns at a "
        "time beyond (auto)")
    add("--target", choices=("fast", "balanced", "accurate"),
        help="auto, gibbs without --epochs: when sampling is enough (balanced)")
    add("--max-seconds", type=positive, metavar="S", help="stop sampling after this long")


def add_engine_options(group: argparse._ArgumentGroup) -> None:
    """Options of where tasks run."""
    add = group.add_argument
    add("--engine", choices=ENGINES, default="threads", help="where tasks run (threads)")
    add("--workers", type=options.whole(1), metavar="W",
        help="threads or workers (one for each core)")
    add("--ray-address", metavar="A",
        help="ray: cluster to join, auto for this machine's (else one is started)")
    add("--task-timeout", type=options.positive, metavar="S",
        help="ray: seconds until a worker counts as hung (600)")
    add("--retries", type=options.whole(0), metavar="N",
        help="ray: tries of a task after its worker was lost (3)")


# fmt: on


def add_sampler_options(parser: argparse.ArgumentParser) -> None:
    """All settings of samplers, each with the samplers that have it."""
    own = parser.add_argument_group("sampler settings")
    batches = parser.add_argument_group("settings of mini-batch samplers")
    for name, (setting, default, having) in _settings().items():
        whose = _whose(having)
        text = setting.help if whose in ("", MINI_BATCH) else f"{whose}: {setting.help}"
        if isinstance(default, tuple):  # a grid
            text += f" ({'x'.join(map(str, default))})"
        elif default is not None and not isinstance(setting, Flag):
            text += f" ({default:g})" if isinstance(default, float) else f" ({default})"
        group = batches if whose == MINI_BATCH else own
        group.add_argument(setting.flag(name), dest=name, help=text, **_argument(setting))


def _settings() -> dict[str, tuple[Setting, Any, list[str]]]:
    """Every setting with an option, its default if samplers agree on one, and who has it."""
    found: dict[str, tuple[Setting, Any, list[str]]] = {}
    for sampler, rule in REGISTRY.items():
        for name, setting in settings_of(rule).items():
            default = getattr(rule, name)  # that of a field
            if name not in found:
                found[name] = setting, default, [sampler]
                continue
            first, known, having = found[name]
            agreed = known if known == default else None
            found[name] = (first if first.help else setting), agreed, [*having, sampler]
    offered = {name: entry for name, entry in found.items() if entry[0].help}
    # What most samplers have comes first.
    return dict(sorted(offered.items(), key=lambda entry: -len(entry[1][2])))


def _whose(having: list[str]) -> str:
    """Names of the samplers that have a setting, in few words; none where all do."""
    others = [name for name in REGISTRY if name not in having]
    if having == [name for name, rule in REGISTRY.items() if issubclass(rule, BatchRule)]:
        return MINI_BATCH
    if len(others) <= 2:
        return f"all but {', '.join(others)}" if others else ""
    return ", ".join(having)


def _argument(setting: Setting) -> dict[str, Any]:
    """Arguments of argparse by which a setting is read."""
    if isinstance(setting, OneOf):
        return {"choices": setting.choices, "type": type(setting.choices[0])}
    if isinstance(setting, Flag):
        return {"action": "store_true", "default": None}
    if isinstance(setting, Whole):
        return {"type": options.whole(setting.least), "metavar": setting.metavar}
    return {"type": getattr(options, setting.reads), "metavar": setting.metavar}


def make_sampler(args: argparse.Namespace) -> Sampler | Auto:
    """Make the sampler; InputError for options that it does not have."""
    known = _settings()
    given = {name: getattr(args, name) for name in known if getattr(args, name) is not None}
    for name in given:
        setting, _, having = known[name]
        if args.sampler not in having:
            others = " or ".join(f"--sampler {one}" for one in having)
            raise InputError(f"{setting.flag(name)} does nothing in {args.sampler}: use {others}")
        if name in ("visits", "group_size", "shuffle_groups") and args.grid in (None, "1x1"):
            raise InputError(f"{setting.flag(name)} does nothing with one block: add --grid RxC")
    sampler: Sampler | Auto = REGISTRY[args.sampler](**given)
    check_settings(sampler)  # now, because reading the ratings may take minutes
    if args.target is not None and not getattr(sampler, "adaptive", args.epochs is None):
        why = "--epochs" if args.epochs is not None else f"--sampler {args.sampler}"
        raise InputError(f"--target does nothing with {why}, which sets the length of the run")
    if "rmse:" in str(args.burn_in) and args.validation is None:
        raise InputError(f"--burn-in {args.burn_in} needs --validation FILE")
    return sampler


def make_engine(args: argparse.Namespace) -> str | Cluster:
    """Make the engine; InputError for options of another engine."""
    given = {name: getattr(args, name) for name in RAY_OPTIONS if getattr(args, name) is not None}
    if args.engine == "ray":
        from bayesmf.engines import registry
        from bayesmf.engines.ray.cluster import Cluster

        cluster = Cluster(**{RAY_OPTIONS[name]: value for name, value in given.items()})
        registry.make_engine(cluster, args.workers)  # without Ray, fail before the reading
        return cluster
    for name in given:
        raise InputError(f"--{name.replace('_', '-')} is for --engine ray")
    if args.workers is not None and args.engine == "serial":
        raise InputError("--workers is for the other engines: serial has one")
    return str(args.engine)
