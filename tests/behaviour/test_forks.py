"""Answers need no polars: without it they are the same, and a forked child gives them at once."""

import subprocess
import sys

import numpy as np
import pytest

from bayesmf import BayesianMF, Gibbs

ANSWERS = """
import os, signal, sys, warnings
import numpy as np
warnings.simplefilter("ignore")

def answers(model, text):
    sent = {"i3" if text else 3: 5, "i4" if text else 4: 1}
    users, items = model.user_ids_.ids[:30], model.item_ids_.ids[:30]
    listed, stars = list(users), np.arange(30) % 5 + 1.0
    columns = {"user": listed, "item": list(items), "rating": list(stars)}
    found = [
        model.predict(listed, list(items)).tolist(), model.predict(users, items).tolist(),
        model.predict(list(zip(listed, items))).tolist(), model.predict(listed[0], items[0]),
        model.predict(None, list(items), ratings=sent).tolist(),
        [tuple(one) for one in model.recommend(ratings=sent, n=3)],
        [tuple(one) for one in model.recommend(listed[3], policy="thompson", random_state=1)],
        model.recommend_many(listed, n=4, level=0.8).mean.tolist(),
        repr(model.explain(listed[0], items[1])), repr(model.similar_items(items[0], 3)),
        model.evaluate(columns).rmse, model.evaluate((users, items, stars)).crps,
        model.evaluate([*zip(listed, items, stars)][::-1]).nll,
        model.predict_interval(users.tolist(), list(items))[1].tolist(),
    ]
    return repr(found)
"""


@pytest.fixture(scope="module", params=[False, True], ids=["integers", "text"])
def saved(request, tmp_path_factory):
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 90, 900).tolist(), rng.integers(0, 60, 900).tolist()
    if request.param:
        users, items = [f"u{k}" for k in users], [f"i{k}" for k in items]
    model = BayesianMF(2, sampler=Gibbs(epochs=3), random_state=0)
    path = tmp_path_factory.mktemp("forks") / "model.bayesmf"
    model.fit((users, items, rng.integers(1, 6, 900).astype(float))).save(path)
    return str(path), str(request.param)


def run(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", ANSWERS + code, *arguments],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_answers_come_without_polars(saved):
    without = run(
        """
sys.modules["polars"] = None  # an import fails
from bayesmf import BayesianMF
print(answers(BayesianMF.load(sys.argv[1]), sys.argv[2] == "True"))
""",
        *saved,
    )
    namespace = {}
    exec(ANSWERS, namespace)  # with it
    assert without.strip() == namespace["answers"](BayesianMF.load(saved[0]), saved[1] == "True")


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_answers(saved, tmp_path):
    """The parent has read a file and worked with polars, whose threads a child does not have."""
    run(
        """
import polars as pl
from bayesmf import BayesianMF, Gibbs
text = sys.argv[2] == "True"
rng = np.random.default_rng(1)
pl.DataFrame({"user": rng.integers(0, 9, 5000), "item": rng.integers(0, 999, 5000),
              "rating": rng.integers(1, 6, 5000)}).unique(["user", "item"]).write_csv(sys.argv[3])
pl.read_csv(sys.argv[3]).lazy().sort("rating").collect()
BayesianMF(2, sampler=Gibbs(epochs=2)).fit(sys.argv[3])
model = BayesianMF.load(sys.argv[1])
before = answers(model, text)
pid = os.fork()
if pid == 0:
    signal.alarm(30)  # ends a child that hangs
    same = before == answers(model, text) == answers(BayesianMF.load(sys.argv[1]), text)
    fitted = BayesianMF(2, sampler=Gibbs(epochs=2)).fit([(1, 2, 3.0), (2, 2, 4.0), (1, 3, 5.0)])
    os._exit(0 if same and len(fitted.user_ids_) == 2 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""",
        *saved,
        str(tmp_path / "a.csv"),
    )
