"""`bayesmf serve` as a process: it starts, takes up a new model, replaces a worker, and ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from small_service import small_model, write_items

pytest.importorskip("fastapi")

from bayesmf import BayesianMF, Gibbs
from small_service import small_ratings

SECRET = "correct-horse-battery"
# Seconds that anything may take on a busy machine.
PATIENCE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("serve") / "model"
    model = small_model()
    model.save(path)
    write_items(path.parent / "movies.csv", model)
    small_ratings()[1].to_polars().write_csv(path.parent / "held-out.csv")
    return path


@contextmanager
def serving(folder, *options, **environment):
    """A service on a free port, as (process, address)."""
    command = [sys.executable, "-m", "bayesmf", "serve", str(folder), "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | environment,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line + process.stderr.read()
        until(lambda: status(found[0] + "/readyz") == 200)
        yield process, found[0]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        process.stdout.close()
        process.stderr.close()


def until(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def get(url, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        return answer.read().decode()


def status(url, **headers):
    try:
        get(url, **headers)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
    return 200


def children(process):
    """Worker processes; the resource tracker of multiprocessing is another child."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split()
    return [int(pid) for pid in listed if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


def test_one_process_answers_takes_up_a_new_model_and_ends(folder):
    movies, test = str(folder.parent / "movies.csv"), str(folder.parent / "held-out.csv")
    with serving(folder, "--item-info", movies, "--test", test) as (process, at):
        own = BayesianMF.load(folder).recommend(3, 2)
        found = json.loads(get(f"{at}/v1/recommend", {"user": 3, "n": 2}))
        assert [row["mean"] for row in found["items"]] == [one.mean for one in own]
        assert "<html" in get(at + "/")
        until(lambda: json.loads(get(at + "/v1/model"))["calibration"])
        before = found["model_version"]
        other = BayesianMF(2, sampler=Gibbs(epochs=6), random_state=5).fit(small_ratings()[0])
        other.save(folder)
        until(lambda: json.loads(get(f"{at}/healthz"))["model_version"] != before)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        warning, end = process.stderr.read().splitlines()
        assert "1 of the model's 40 items is not" in warning and "has ended" in end
    assert status(at + "/healthz") is None


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux")
def test_several_processes_share_the_work_and_one_is_lost(folder):
    with serving(folder, "--workers", "2", BAYESMF_TOKEN=SECRET) as (process, at):
        assert status(at + "/v1/model") == 401
        token = {"authorization": f"Bearer {SECRET}"}
        until(lambda: len(children(process)) == 2)
        for _ in range(30):
            get(f"{at}/v1/recommend", {"user": 3}, **token)
        counted = r'bayesmf_requests_total{method="POST",route="/v1/recommend",status="200"} (\d+)'
        text = get(at + "/metrics", **token)
        assert re.search(counted, text)[1] == "30", "of both processes together"
        first = children(process)
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(children(process)) == 2 and children(process) != first)
        until(lambda: status(at + "/v1/model", **token) == 200)
        mine = children(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert not [pid for pid in mine if os.path.exists(f"/proc/{pid}")]
        assert process.stderr.read().count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux")
def test_processes_end_with_their_parent(folder):
    with serving(folder, "--workers", "2") as (process, _):
        until(lambda: len(children(process)) == 2)
        mine = children(process)
        process.kill()
        process.wait(PATIENCE)
        until(lambda: not [pid for pid in mine if os.path.exists(f"/proc/{pid}")])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["no-such-model"], "There is no model"),
        (["MODEL", "--port", "70000"], "is not a port"),
        (["MODEL", "--host", "256.1.1.1"], "cannot listen"),
        (["MODEL", "--item-info", "no-such.csv"], "no-such.csv"),
        (["MODEL", "--test", "no-such.csv"], "no-such.csv"),
        (["MODEL", "--cors-origin", "shop"], "is not an origin"),
        (["MODEL", "--workers", "0"], "whole number"),
        (["MODEL", "--workers", "1000"], "too many"),
        (["MODEL", "--allow-host", "http://shop.example"], "without a port"),
        (["MODEL", "--columns", "user=0"], "give --test"),
        (["MODEL"], "BAYESMF_TOKEN cannot be used"),
        (["MODEL", "--timeout", "0"], "positive"),
        (["MODEL"], "token"),
    ],
)
def test_bad_options_are_one_sentence(folder, options, said):
    given = [str(folder) if one == "MODEL" else one for one in options]
    bad = {"token": "short", "BAYESMF_TOKEN cannot be used": ""}.get(said)
    done = subprocess.run(
        [sys.executable, "-m", "bayesmf", "serve", "--port", "0", *given],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
        env=os.environ | ({"BAYESMF_TOKEN": bad} if bad is not None else {}),
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and done.stderr.count("\n") <= 3
    assert "Traceback" not in done.stderr and not done.stdout
