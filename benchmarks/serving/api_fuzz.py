"""Hostile and malformed requests to the HTTP service.

A tiny model is served, once with integers and once with text as ids. schemathesis makes requests
from the service's own description, right and wrong ones, until there were `--cases` of them: from
the description as it is, whose ids are nobody's, and from one whose ids are those of the model and
a few others, so that most requests reach it. Each answer must be one that the description has, and
no server error. Then come requests that are meant to harm: each must be refused by the right status
and one sentence within `--limit` milliseconds, but for those that wait by design, while others are
answered. The exit status is 1 where anything was not so.

schemathesis 4 is in an environment of its own: `python -m venv st && st/bin/pip install
schemathesis`, then `--schemathesis st/bin/schemathesis`; without it only the second part is done.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayesmf import BayesianMF, Gibbs, Ratings, Synthetic
from bayesmf.errors import BayesMFError
from benchmarks.options import Parser, command
from benchmarks.serving.api_fuzz_hostile import (
    TIMEOUT,
    Hostile,
    Meanwhile,
    ask,
    hostile,
    idle,
    methods,
    pipelined,
)
from benchmarks.serving.service import HOST, Question, Service

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,unsupported_method"
)
PHASES = "examples,coverage,fuzzing"
EXAMPLES = 60  # of each operation in a run
TRIES = 3  # of a request whose time counts: the machine may be busy
ASKED = ("RecommendRequest", "PredictRequest", "ExplainRequest", "SentRating", "Pair")


def make_model(text: bool) -> BayesianMF:
    """A model whose ids are integers or text, some of which look like numbers."""
    found = Synthetic(60, 40, 1200, stars=True, random_state=1).ratings()
    users, items = found.users.tolist(), found.items.tolist()
    if text:
        users = [f"u {k}" if k % 3 else str(k) for k in users]
        items = [f"Ünïcode/{k}?&" if k % 3 else str(k) for k in items]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = BayesianMF(3, sampler=Gibbs(epochs=12, n_chains=2), random_state=0)
        return made.fit(Ratings(users, items, found.rating))


def narrowed(described: dict[str, Any], model: BayesianMF) -> dict[str, Any]:
    """The description with ids that exist, and a few that do not, in what is asked."""
    made = copy.deepcopy(described)
    users, items = model.user_ids_.ids.tolist()[:12], model.item_ids_.ids.tolist()[:12]
    odd = [-1, 2**63 - 1, "0", "nobody", " ", "\u0000", "1e3"]
    for name in ASKED:
        _narrow(made["components"]["schemas"][name], [*users, *items, *odd])
    for path in made["paths"].values():
        for operation in path.values():
            for one in operation.get("parameters", ()):
                if one["name"] in ("user", "item", "id"):
                    ids = items if "items" in operation["tags"] else users
                    known = {*map(str, ids), *map(str, odd)}
                    one["schema"] = {"type": "string", "enum": sorted(known)}
    low, high = model.posterior_.low, model.posterior_.high
    made["components"]["schemas"]["SentRating"]["properties"]["rating"] |= {
        "minimum": low, "maximum": high,
    }  # fmt: skip
    return made


def _narrow(part: Any, ids: list[Any]) -> None:
    """Replace what may be any id, wherever it is."""
    for value in list(part.values()) if isinstance(part, dict) else part:
        if isinstance(value, dict | list):
            _narrow(value, ids)
    if isinstance(part, dict) and any(one.get("maxLength") == 512 for one in part.get("anyOf", ())):
        null = [one for one in part["anyOf"] if one.get("type") == "null"]
        part["anyOf"] = [{"enum": ids}, *null]


def schemathesis(program: str, described: dict[str, Any], port: int, seed: int) -> dict[str, Any]:
    """One run: how many cases there were, how many failed, and what it printed of these."""
    with tempfile.TemporaryDirectory() as folder:
        schema, report = Path(folder) / "openapi.json", Path(folder) / "report.json"
        schema.write_text(json.dumps(described), "utf-8")
        done = subprocess.run(
            [program, "run", str(schema), "--url", f"http://{HOST}:{port}", "--checks", CHECKS,
             "--phases", PHASES, "-n", str(EXAMPLES), "--seed", str(seed), "--continue-on-failure",
             "--report", "json", "--report-json-path", str(report), "--warnings", "off"],
            capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
        if not report.exists():
            raise BayesMFError(f"schemathesis made no report: {done.stdout[-500:]}{done.stderr}")
        found = json.loads(report.read_text("utf-8"))["test_cases"]
    failed = found["with_failures"] + found["errored"]
    begin = done.stdout.find("= FAILURES =")
    told = done.stdout[max(0, begin) :] if failed or done.returncode else ""
    failed = max(failed, int(done.returncode != 0))
    return {"cases": found["generated"], "failed": failed, "told": told}


def fuzz(args: argparse.Namespace, kind: str, model: BayesianMF, service: Service) -> list[Any]:
    """Runs of schemathesis on one model until it has had half of all cases."""
    _, described = service.ask(Question("", "/openapi.json"))
    ways = {"ids of the model": narrowed(described, model), "as described": described}
    found, seed = list[Any](), args.seed
    while sum(one["cases"] for one in found) < args.cases / 2:
        for way, schema in ways.items():
            one = schemathesis(args.schemathesis, schema, service.port, seed)
            found.append({"ids": kind, "way": way, "seed": seed, **one})
            _print(args, f"{kind}, {way}, seed {seed}: {one['cases']:,} cases, {one['failed']:,} "
                         f"failed\n{one['told']}".rstrip())  # fmt: skip
        seed += 1
    return found


def attack(args: argparse.Namespace, model: BayesianMF, service: Service) -> list[dict[str, Any]]:
    """Requests that are meant to harm, and whether they were dealt with."""
    _, described = service.ask(Question("", "/openapi.json"))
    paths = {path: set(one) for path, one in described["paths"].items()}
    known, unknown = model.user_ids_[0], "nobody" if model.user_ids_.ids.dtype == object else 10**9
    found = []
    with Meanwhile(service.port) as other:
        for what in hostile(unknown, known):
            found.append(_quickest(service.port, what, args.limit))
        found += [*methods(service.port, paths), pipelined(service.port), idle(service.port)]
    wrong = [f"{other.failed} failed"] if other.failed else []
    found.append({"name": f"{other.answers:,} others meanwhile, the slowest", "status": 200,
                  "ms": 1e3 * other.worst, "wrong": wrong, "waits": True})  # fmt: skip
    for one in found:
        if not one.get("waits") and one["ms"] > args.limit:
            one["wrong"].append(f"slower than {args.limit:g} ms")
        _print(args, f"{one['name']:<42}{one['status']!s:>7}{one['ms']:>9.1f} ms  "
                     f"{', '.join(one['wrong'])}".rstrip())  # fmt: skip
    return found


def _quickest(port: int, what: Hostile, limit: float) -> dict[str, Any]:
    tries = [ask(port, what)]
    while not what.waits and len(tries) < TRIES and tries[-1]["ms"] > limit:
        tries.append(ask(port, what))
    wrong = next((one["wrong"] for one in tries if one["wrong"]), [])
    return {**min(tries, key=lambda one: one["ms"]), "wrong": wrong, "waits": what.waits}


def _print(args: argparse.Namespace, line: str) -> None:
    if not args.json:
        print(line, flush=True)


def make_parser() -> Parser:
    """The options."""
    parser = Parser("api_fuzz", __doc__)
    parser.add_argument("--schemathesis", metavar="PROGRAM", help="where it is")
    parser.add_argument("--cases", type=int, default=5000, help="at least so many (5000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=100.0, metavar="MS", help="(100)")
    parser.add_argument("--json", action="store_true")
    return parser


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Both parts, with both kinds of ids."""
    found: dict[str, Any] = {"fuzzed": [], "hostile": []}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("integers", "text"):
            model, path = make_model(kind == "text"), Path(folder) / kind
            model.save(path)
            with Service(path, "--timeout", str(TIMEOUT)) as service:
                service.wait()
                if args.schemathesis:
                    found["fuzzed"] += fuzz(args, kind, model, service)
                found["hostile"] += attack(args, model, service)
                if said := service.said():
                    _print(args, f"The service printed: {said}")
    found["cases"] = sum(one["cases"] for one in found["fuzzed"])
    found["failed"] = sum(one["failed"] for one in found["fuzzed"])
    found["wrong"] = sum(bool(one["wrong"]) for one in found["hostile"])
    return found


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Do it, and tell how it went."""
    args = make_parser().parse_args(argv)
    if args.cases < 1:
        print("api_fuzz: --cases must be 1 or more", file=sys.stderr)
        return 2
    found = run(args)
    if args.json:
        print(json.dumps(found))
    else:
        print(
            f"{found['cases']:,} cases of schemathesis, {found['failed']:,} failed; "
            f"{len(found['hostile']):,} hostile ones, {found['wrong']:,} not as they must be"
        )
    return 1 if found["failed"] or found["wrong"] else 0
