"""A process forked from one that has used a model: the same answers, and nothing that hangs.

All of it in processes of its own: this one must not be forked, nor end in a child.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bayesmf.errors import InputError
from bayesmf.system import forks

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not hasattr(forks.os, "fork"), reason="nobody forks here")

PRELUDE = """
import multiprocessing, os, signal, sys, tempfile, threading, warnings
import numpy as np, pandas as pd, polars as pl
from bayesmf import BayesianMF, Gibbs, InputError, Ratings
from bayesmf.system import forks

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)

def fitted(text):
    users, items = rng.integers(0, 150, 900), rng.integers(0, 120, 900)
    if text:
        users, items = [f"u{k}" for k in users], [f"film {k}" for k in items]
    model = BayesianMF(2, sampler=Gibbs(epochs=3), random_state=0)
    return model.fit((users, items, rng.random(900)))

def told(model, text=True):
    users, items = model.user_ids_.ids[:100], model.item_ids_.ids[:100]
    listed, strange = list(users), list(users[:-1]) + ["who" if text else 10**9]
    pairs, stars = list(zip(listed, items)), rng_of(100)
    frame = pd.DataFrame({"user": users, "item": items, "rating": stars})
    many = model.recommend_many(listed, n=4, level=0.8, policy="ucb")
    answers = [
        model.predict(listed, list(items)), model.predict(users, items),
        model.predict(pairs), model.predict(pl.Series(listed), pl.Series(list(items))),
        model.predict(pl.from_pandas(frame) if not forks.polars_is_lost() else FRAMES[text]),
        model.predict(strange, list(items)), model.predict_interval(frame)[1],
        model.predict(listed[0], items[0]), many.mean, many.items, many.to_pandas().values,
        [tuple(one) for one in model.recommend(listed[3], policy="thompson", random_state=1)],
        [tuple(one) for one in model.recommend(strange[-1])],
        model.evaluate(frame).rmse, model.evaluate((listed, list(items), list(stars))).crps,
        model.score(pairs, list(stars)), model.calibration(frame).overall.mae,
        model.evaluate(Ratings.from_data(frame)).nll, model.diagnose(20)["tau"]["rhat"],
        model.predict_table(pairs).to_polars().rows(), model.predict_table(pairs).high,
    ]
    FRAMES.setdefault(text, pl.from_pandas(frame) if not forks.polars_is_lost() else None)
    return repr([a.tolist() if isinstance(a, np.ndarray) else a for a in answers])

def rng_of(n):
    return np.random.default_rng(1).integers(1, 6, n).astype(float)

FRAMES = {}

def forked(function):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # what hangs is ended, and seen to be
        status = 3
        try:
            function()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(code, seconds=100):
    program = PRELUDE + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_children_of_a_used_model_give_the_same_answers():
    """Of both kinds of ids; by os.fork, by multiprocessing, and from a server that preloads."""
    run("""
        models = {text: fitted(text) for text in (True, False)}
        before = {text: told(models[text], text) for text in models}
        assert before == {text: told(models[text], text) for text in models}
        pl.DataFrame({"a": [2, 1]}).lazy().sort("a").collect()

        def same(text=True):
            assert forks.polars_is_lost()
            assert told(models[text], text) == before[text]

        def grandchild():
            assert forked(same) == 0

        for text in models:
            assert forked(lambda: same(text)) == 0
        assert forked(grandchild) == 0
        context = multiprocessing.get_context("fork")
        with context.Pool(4) as pool:
            assert pool.map(same, [True, False, True, False]) == [None] * 4
        with tempfile.TemporaryDirectory() as folder:
            models[True].save(folder + "/m")
            loaded = BayesianMF.load(folder + "/m")  # still verified when it is forked
            def served():
                assert told(loaded) == before[True]
            assert forked(served) == 0
        """)


def test_a_child_learns_from_what_is_in_memory():
    run("""
        frame = pd.DataFrame({"user": [f"{k % 31:03}" for k in range(400)],
                              "item": [f"i{k % 23}" for k in range(400)],
                              "rating": [1.0 + k % 5 for k in range(400)],
                              "timestamp": range(400)})
        def learnt(data):
            model = BayesianMF(2, sampler=Gibbs(epochs=3), random_state=0).fit(data)
            return model.predict(frame).tolist(), list(model.user_ids_), model.report_["ratings"]
        wholes = frame.assign(user=frame.user.astype(int) * 10**12, rating=frame.rating.astype(str))
        before = learnt(frame), learnt(frame.drop(columns="timestamp")), learnt(wholes)
        def again():
            assert forks.polars_is_lost()
            now = learnt(frame), learnt(frame.drop(columns="timestamp")), learnt(wholes)
            assert now == before
        assert forked(again) == 0
        """)


def test_files_are_refused_in_a_sentence_where_polars_would_wait():
    out = run("""
        frame = pl.DataFrame({"user": [1, 2], "item": [3, 4], "rating": [5.0, 1.0]})
        folder = tempfile.mkdtemp()
        frame.write_csv(folder + "/a.csv"), frame.write_parquet(folder + "/a.parquet")
        model = fitted(False)
        from bayesmf import Synthetic, pack

        def refused():
            for ask in (
                lambda: Ratings.read(folder + "/a.csv"),
                lambda: Ratings.from_data(folder + "/a.parquet"),
                lambda: model.predict(folder + "/a.csv"), lambda: model.evaluate(folder + "/a.csv"),
                lambda: Ratings.from_data(frame.lazy()),
                lambda: pack(folder + "/a.csv", folder + "/p"),
                lambda: Ratings.from_data(frame).write(folder + "/b.csv"),
                lambda: Synthetic(9, 9, 20).write(folder + "/c.csv"),
                lambda: model.predict_table([1], [2]).to_arrow(),
            ):
                try:
                    ask()
                except InputError as error:
                    print(str(error).count("forkserver"))
                else:
                    print("taken")
            sys.stdout.flush()

        assert forked(refused) == 0
        """)
    assert out.split() == ["1"] * 9


def test_a_process_that_never_used_polars_may_fork_and_read():
    run("""
        folder = tempfile.mkdtemp()
        with open(folder + "/a.csv", "w") as file:
            file.write("user,item,rating\\n1,2,3\\n2,2,4\\n")
        def read():
            assert not forks.polars_is_lost()
            assert len(Ratings.read(folder + "/a.csv")) == 2
        assert forked(read) == 0
        """)


def test_no_lock_is_left_locked():
    """A thread compiles, another is inside of a cached property, a line is drawn: then a fork."""
    run("""
        import time
        from bayesmf.system import progress
        from bayesmf.kernels.jit import CLOCK, njit
        from bayesmf.system.forks import once

        class Slow:
            @once
            def value(self):
                inside.set(); time.sleep(0.5)
                return 1

        @njit()
        def kernel(x):
            return x + 1

        inside = threading.Event()
        threading.Thread(target=lambda: Slow().value).start()
        inside.wait()
        drawn, held = progress.Line(show=True), threading.Event()
        def draw():
            with drawn._lock, CLOCK._lock:
                held.set(); time.sleep(0.5)
        threading.Thread(target=draw).start()
        held.wait()
        compiling = threading.Event()
        CLOCK.observers.append(compiling.set)
        threading.Thread(target=lambda: kernel(1)).start()
        compiling.wait()
        def free():
            assert Slow().value == 1 and kernel(1.5) == 2.5 and CLOCK.seconds() >= 0
            with progress.set_aside():
                pass
            drawn.close()
        assert forked(free) == 0
        drawn.close()
        """)


def test_threads_and_processes_answer_from_one_model():
    """The benchmark, for a moment; `python -m benchmarks.soak` runs it for a minute."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", "--seconds", "2"],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["forked"] >= 4 and found["answers of forked processes"] > 10
    assert found["answers"] - found["answers of forked processes"] > 10


def test_threads_of_polars_are_told_by_their_names(tmp_path, monkeypatch):
    def threads(*names):
        for k, name in enumerate(names):
            (tmp_path / str(k)).mkdir(exist_ok=True)
            (tmp_path / str(k) / "comm").write_text(f"{name}\n")
        return forks._polars_has_threads()

    monkeypatch.setattr(forks, "_TASKS", str(tmp_path))
    assert not threads("python", "polars-ooc-clea", "jemalloc_bg_thd")
    assert threads("python", "polars-0")
    monkeypatch.setattr(forks, "_TASKS", str(tmp_path / "none"))
    assert forks._polars_has_threads()  # nobody tells


def test_what_is_refused_says_what_to_do(monkeypatch):
    forks.check_polars("reading a.csv")
    monkeypatch.setattr(forks._State, "lost", True)
    with pytest.raises(InputError, match=r"reading a\.csv is not possible .*spawn"):
        forks.check_polars("reading a.csv")
