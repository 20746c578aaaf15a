"""`bayesmf serve` as a process: it starts, is told of signals, loses a process, and ends."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

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
    path = f"/proc/{process.pid}/task/{process.pid}/children"
    with open(path, encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def test_one_process_answers_is_told_of_a_new_model_and_ends(folder):
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
        process.send_signal(signal.SIGHUP)
        until(lambda: json.loads(get(f"{at}/healthz"))["model_version"] != before)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        told = process.stderr.read()
        assert told.count("\n") == 1 and "1 of the model's 40 items is not" in told
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
        time.sleep(10)  # one that ends at once would do so again, and ends the service
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(children(process)) == 2 and children(process) != first)
        until(lambda: status(at + "/v1/model", **token) == 200)
        mine = children(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert not [pid for pid in mine if os.path.exists(f"/proc/{pid}")]
        assert "another is started" in process.stderr.read()


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux")
def test_processes_end_with_their_parent(folder):
    with serving(folder, "--workers", "2") as (process, _):
        until(lambda: len(children(process)) == 2)
        mine = children(process)
        process.kill()
        process.wait(PATIENCE)
        until(lambda: not [pid for pid in mine if os.path.exists(f"/proc/{pid}")])


def test_a_closed_terminal_ends_it(folder):
    """SIGHUP comes from there too; where the terminal is still open it asks for a new model."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "bayesmf", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    try:
        text = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", text)):
            text += os.read(ours, 4096).decode()
        until(lambda: status(found[0] + "/readyz") == 200)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None
        os.close(ours)
        assert process.wait(PATIENCE) is not None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_an_answer_that_nobody_waits_for_does_not_keep_the_process():
    script = (
        "import threading, time\n"
        "from bayesmf.web.environment import ANSWERING\n"
        "from bayesmf.web.worker import leave_what_is_computed\n"
        "threading.Thread(target=time.sleep, args=(60,), name=ANSWERING + '_0').start()\n"
        "print('told', flush=True)\n"
        "leave_what_is_computed(0.1)\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=50)
    assert done.returncode == 0 and done.stdout == b"told\n" and time.monotonic() - began < 50


def test_processes_that_end_again_and_again_end_the_service(capsys):
    from bayesmf.errors import BayesMFError
    from bayesmf.web.run import Processes

    processes = Processes(None, None, 2, {})
    for pause in (1, 2):
        processes._wait("It has ended (1)", 100.0, 0.5)
        assert processes._not_before == 100 + pause
    with pytest.raises(BayesMFError, match=r"It has ended \(1\), and others before it"):
        processes._wait("It has ended (1)", 100.0, 0.5)
    processes._wait("It has ended (1)", 100.0, 50.0)  # after a while it is another matter
    assert processes._not_before == 100
    assert capsys.readouterr().err.count("another is started") == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["no-such-model"], "There is no model folder"),
        (["MODEL", "--port", "70000"], "is not a port"),
        (["MODEL", "--host", "256.1.1.1"], "nothing can listen"),
        (["MODEL", "--item-info", "no-such.csv"], "no-such.csv"),
        (["MODEL", "--test", "no-such.csv"], "no-such.csv"),
        (["MODEL", "--cors-origin", "shop"], "is no origin"),
        (["MODEL", "--workers", "0"], "whole number"),
        (["MODEL", "--workers", "1000"], "too many"),
        (["MODEL", "--allow-host", "http://shop.example"], "without a port"),
        (["MODEL", "--columns", "user=0"], "without --test"),
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
