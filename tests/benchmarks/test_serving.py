"""The benchmark of the HTTP service, on a tiny model: that its client and its judges see faults."""

import json
import socket
import threading
from pathlib import Path

import pytest

from bayesmf import BayesianMF
from small_service import small_model

pytest.importorskip("fastapi")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("serving") / "model"
    small_model().save(path)
    return path


class Fake:
    """A server that answers each request with the next of some texts, on every connection."""

    def __init__(self, *answers):
        self.answers, self.sock = answers, socket.create_server(("127.0.0.1", 0))
        self.port, self.asked = self.sock.getsockname()[1], 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            try:
                one, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, one):
        with one:
            while one.recv(10_000):
                text = self.answers[self.asked % len(self.answers)]
                self.asked += 1
                if text is None:
                    return
                one.sendall(text)


def answer(status, body):
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def ask(fake, **plan):
    from benchmarks.serving.client import Client

    asked = [("GET / HTTP/1.1\r\n\r\n", 200)]
    plan = {"host": "127.0.0.1", "port": fake.port, "connections": 1, "questions": asked, **plan}
    return Client(plan).run()


def test_the_client_sees_statuses_errors_and_answers_that_differ():
    right, other = (answer(200, f'{{"model_version":"a","x":{x}}}') for x in (1, 2))
    fake = Fake(right, right, answer(503, "{}"), None, other, answer(200, '{"model_version":"b"}'))
    found = ask(fake, requests=6, compare=True)
    assert found["answers"] == 5 and found["wrong"] == 1 and found["errors"] == 1
    assert found["different"] == 1 and found["models"] == {"a": 3, "b": 1}
    assert found["statuses"] == {"200": 4, "503": 1, "ConnectionResetError": 1}


def test_the_rate_is_kept_and_waiting_counts():
    found = ask(Fake(answer(200, "{}")), rate=200.0, seconds=0.5, connections=2)
    assert found["answers"] == 101 and found["seconds"] >= 0.5
    # A service that is slower than the rate: requests are late, and that is told.
    slow = Fake(answer(200, "{}"))
    send = slow._answer
    slow._answer = lambda one: (threading.Event().wait(0.3), send(one))
    found = ask(slow, rate=100.0, requests=10)
    assert found["p50"] > 150 and found["max"] >= found["p99"] >= found["p50"]


@pytest.fixture
def service(folder, tmp_path):
    from benchmarks.serving.service import ServiceProcess

    BayesianMF.load(folder).save(tmp_path / "served")
    with ServiceProcess(tmp_path / "served") as made:
        made.wait()
        yield made
    assert made.process.returncode == 0


def test_the_service_beside_the_library(folder, service, tmp_path):
    from benchmarks.serving import serving as checks
    from benchmarks.serving.service import Asker

    model = BayesianMF.load(folder)
    found = checks.same_bits(service, model, 2)
    assert found["ok"] and found["kinds"]["predict"]["numbers"] == 2 * 10 * (4 + 5)
    assert found["kinds"]["explain"]["numbers"] > 2 * 3
    model.save(tmp_path / "half", max_draws=2)
    other = checks.same_bits(service, BayesianMF.load(tmp_path / "half"), 2)
    assert not other["ok"], "another model has other numbers"
    seen = service.load(checks.mixed(Asker(model), 4), requests=120)
    assert seen["answers"] == 120 and not seen["wrong"] and not seen["errors"]
    assert set(seen["statuses"]) == {"200", "404", "422"}


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_memory_is_followed_and_models_change(service, tmp_path):
    from benchmarks.serving import serving as checks

    said = []
    soaked = checks.soak(service, BayesianMF.load(tmp_path / "served"), 1000, said.append)
    assert soaked["requests"] == 1000 and not soaked["wrong"] and not soaked["errors"]
    assert len(said) == 10 and len(soaked["memory"]) == 20
    assert min(size for _, size in soaked["memory"]) > 10_000_000
    swapped = checks.swap(service, tmp_path / "served", 1.5, 8.0)
    assert swapped["saves"] >= 3 and swapped["ok"] and swapped["after"]["files"] > 10


def test_bad_options_are_a_sentence(capsys, folder):
    from benchmarks.serving.serving import main

    for options, said in (
        (["--workers", "0"], "1 or more"),
        (["--connections", "1,x"], "--connections"),
        (["--model", "no-such-folder"], "no-such-folder"),
        (["--model", str(folder), "--soak", "3", "--workers", "1"], "--soak"),
    ):
        assert main(options) == 2
        told = capsys.readouterr()
        assert said in told.err and told.err.count("\n") == 1


def test_the_table_of_speed(capsys, folder):
    from benchmarks.serving.serving import main

    options = ("--seconds", "0.3", "--connections", "2", "--workers", "1", "--json")
    assert main(["--model", str(folder), *options]) == 0
    found = json.loads(capsys.readouterr().out)["speed"]["kinds"]
    assert set(found) == {"known", "sent", "predict", "explain"}
    for one in found.values():
        assert one["most"] > 1 and 0 < one["p50"] <= one["p99"] and not one["failed"]
