"""What `benchmarks serving` looks at besides speed: memory, models that change, and the bits."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bayesmf import BayesianMF
from bayesmf.posterior import POLICIES
from benchmarks.serving.service import KINDS, Asker, Question, Service

CONNECTIONS = 8
# Memory is looked at so often, the first tenth of which does not count.
LOOKS, PRINTED = 20, 10
# Bytes per request that memory may grow by and still be called flat: a counted, freed megabyte
# here and there is less, a list that keeps a line for each request is more.
FLAT = 64.0
# Requests whose slope says anything.
FEWEST = 1000
IN_ROWS = ("mean", "std", "low", "high", "rating", "share", "share_std", "effect")
Say = Callable[[str], None]


def mixed(asker: Asker, n: int) -> list[Question]:
    """Questions of all kinds, those that are refused among them."""
    found = [one for kind in KINDS for one in asker.of(kind, n)]
    while len(found) < 5 * n:
        found += asker.other()
    return found


def soak(service: Service, model: BayesianMF, requests: int, say: Say) -> dict[str, Any]:
    """Memory of the service's processes while it answers, and what a request adds to it."""
    questions, each = mixed(Asker(model), 60), requests // LOOKS
    done, seen, failed = 0, [], {"wrong": 0, "errors": 0}
    for k in range(LOOKS):
        found = service.load(questions, requests=each, connections=CONNECTIONS, seed=k)
        done += each
        seen.append((done, service.memory()))
        for name in failed:
            failed[name] += found[name]
        if (k + 1) % (LOOKS // PRINTED) == 0:
            rate = found["answers"] / found["seconds"]
            say(f"{done:>12,} requests  {seen[-1][1] / 1e6:8.1f} MB  {rate:8.0f} a second")
    late = np.array(seen[LOOKS // PRINTED - 1 :], float)
    slope = float(np.polyfit(late[:, 0], late[:, 1], 1)[0])
    return {
        "requests": done, **failed, "memory": seen, "bytes_per_request": slope, "bound": FLAT,
        "flat": slope < FLAT, "ok": slope < FLAT and not any(failed.values()),
    }  # fmt: skip


def tell_soak(found: dict[str, Any], say: Say) -> None:
    """In a sentence."""
    say(
        f"{found['bytes_per_request']:+.1f} bytes per request after the first tenth "
        f"({'flat: below' if found['flat'] else 'not flat: not below'} {found['bound']:g}); "
        f"{found['wrong']:,} wrong statuses, {found['errors']:,} connection errors"
    )


def swap(service: Service, folder: Path, every: float, seconds: float) -> dict[str, Any]:
    """Save two models in turn to the folder that is served, while it is asked.

    The second has half of the draws of the first. Connections are kept by half of the clients and
    made anew for each request by the others; each answer is compared with all others of the same
    model to the same question.
    """
    with tempfile.TemporaryDirectory() as scratch:
        first = BayesianMF.load(folder)
        sources = [Path(scratch) / name for name in ("whole", "half")]
        first.save(sources[0])
        first.save(sources[1], max_draws=max(1, len(first.posterior_.draws) // 2))
        models = [BayesianMF.load(path) for path in sources]
        questions = [one for kind in KINDS for one in Asker(first).of(kind, 10)]
        plan = {"seconds": seconds, "connections": 4, "fresh": 4, "compare": True}
        before = service.held()
        client = subprocess.Popen(
            service.client(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )  # fmt: skip
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write(service.plan(questions, **plan))
        client.stdin.close()
        saves, end = 0, time.monotonic() + seconds
        while client.poll() is None and time.monotonic() + every < end:
            time.sleep(every)
            saves += 1
            models[saves % 2].save(folder)
        found = json.loads(client.stdout.read())
        client.wait()
        client.stdout.close()
    failed = found["answers"] - found["statuses"].get("200", 0) + found["errors"]
    return {
        "answers": found["answers"], "saves": saves, "failed": failed,
        "different": found["different"], "statuses": found["statuses"], "models": found["models"],
        "before": before, "after": service.held(),
        "ok": not failed and not found["different"] and len(found["models"]) == 2,
    }  # fmt: skip


def tell_swap(found: dict[str, Any], say: Say) -> None:
    """In two sentences."""
    say(
        f"{found['answers']:,} requests while models were saved {found['saves']:,} times: "
        f"{found['failed']:,} failed, {found['different']:,} answers unlike another of the same "
        "model to the same question"
    )
    told = ", ".join(f"{name} {n:,}" for name, n in found["models"].items())
    say(f"{len(found['models'])} models answered: {told}; statuses {found['statuses']}")
    first, last = (found[name] for name in ("before", "after"))
    say(
        f"{first['memory'] / 1e6:.1f} MB and {first['files']:,} open or mapped files before, "
        f"{last['memory'] / 1e6:.1f} MB and {last['files']:,} after"
    )


def same_bits(service: Service, model: BayesianMF, n: int) -> dict[str, Any]:
    """Numbers of the service beside those of the library, for n questions of each kind."""
    asker, found = Asker(model, seed=1), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, make in _ways(asker, model):
            compared = different = 0
            for _ in range(n):
                question, own = make()
                status, answer = service.ask(question)
                told = _numbers(answer) if status == 200 else [status]
                compared += len(own)
                different += told != own
            found[kind] = {"questions": n, "numbers": compared, "different": different}
    return {"kinds": found, "ok": not any(one["different"] for one in found.values())}


def tell_same_bits(found: dict[str, Any], say: Say) -> None:
    """A table."""
    say(f"{'':<28}{'questions':>10}{'numbers':>10}{'different':>10}")
    for kind, one in found["kinds"].items():
        say(f"{kind:<28}{one['questions']:>10,}{one['numbers']:>10,}{one['different']:>10,}")


Way = Callable[[], tuple[Question, list[float]]]


def _ways(asker: Asker, model: BayesianMF) -> Iterator[tuple[str, Way]]:
    """Kinds of questions: what is asked of the service, and the numbers of the library."""
    names = ("mean", "std", "low", "high")

    def recommend(body: dict[str, Any]) -> list[float]:
        sent = body.get("ratings")
        ratings = None if sent is None else [(one["item"], one["rating"]) for one in sent]
        found = model.recommend(
            body.get("user"), body["n"], ratings=ratings, policy=body["policy"],
            random_state=body["seed"],
        )  # fmt: skip
        return [getattr(one, name) for one in found for name in names]

    def listed(policy: str, sent: bool) -> Way:
        def make() -> tuple[Question, list[float]]:
            asked = (asker.new() if sent else asker.known()).body
            assert asked is not None
            body = asked | {"policy": policy, "seed": asker.draw.randrange(2**53)}
            return Question("known", "/v1/recommend", body), recommend(body)

        return make

    def predict() -> tuple[Question, list[float]]:
        asked = asker.predict()
        assert asked.body is not None
        users, items = ([pair[side] for pair in asked.body["pairs"]] for side in ("user", "item"))
        table = model.predict_table(users, items)
        columns = [getattr(table, name) for name in names]
        if hasattr(model, "rating_levels_"):
            columns += list(model.predict_proba(users, items).T)
        return asked, np.stack(columns, 1).astype(float).ravel().tolist()

    def explain() -> tuple[Question, list[float]]:
        asked = asker.explain()
        assert asked.body is not None
        found = model.explain(asked.body["user"], asked.body["item"])
        rows = np.stack([found.ratings, found.shares, found.share_std, found.effects], 1)[:10]
        rest = float(found.shares[10:].sum())
        return asked, [found.prediction, found.rest, rest, *rows.ravel().tolist()]

    def similar() -> tuple[Question, list[float]]:
        item = asker.draw.choice(asker.items)
        found = model.similar_items(item, 10)
        rows = np.stack([found.similarity, found.std], 1)
        return Question("similar", f"/v1/similar?item={item}"), rows.ravel().tolist()

    for policy in POLICIES:
        yield f"recommend, known, {policy}", listed(policy, False)
        yield f"recommend, sent, {policy}", listed(policy, True)
    yield "predict", predict
    yield "explain", explain
    yield "similar", similar


def _numbers(answer: dict[str, Any]) -> list[float]:
    """The numbers of an answer that the library gives, in the order of `_ways`."""
    found = [answer[name] for name in ("prediction", "rest", "others") if name in answer]
    for rows in ("items", "predictions", "shares"):
        for row in answer.get(rows, ()):
            names = ("similarity", "std") if "similarity" in row else IN_ROWS
            found += [row[name] for name in names if name in row]
            found += row.get("probabilities") or ()
    return found
