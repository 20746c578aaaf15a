"""`python -m benchmarks.namespaces`: its arithmetic, and one small cluster where there is root."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import namespaces, namespaces_driver
from benchmarks.namespaces_runs import counters, ledger, rounds_of_an_epoch, seconds_of_an_epoch
from benchmarks.netns import Wires, ip, why_not

NO_RAY = importlib.util.find_spec("ray") is None
rooted = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cases", "flood"], "'flood' is none of default"),
        (["--nodes", "2,0"], "numbers from 1 to 16"),
        (["--epochs", "3"], "at least 5"),
        (["--gbits", "0"], "above 0"),
    ],
)
def test_bad_options_are_one_sentence(options, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        namespaces.main(options)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("namespaces: ") and said in line


def test_where_there_is_no_root_nothing_is_measured_loudly(capsys, monkeypatch):
    monkeypatch.setattr(namespaces, "why_not", lambda: "network namespaces need root")
    assert namespaces.main([]) == 0
    assert "NOTHING IS MEASURED: network namespaces need root" in capsys.readouterr().err


def test_an_epoch_is_over_when_all_chains_are():
    events = [(0, 1, 1.0), (1, 1, 2.0), (0, 2, 2.5), (0, 3, 3.0), (1, 2, 4.0), (1, 3, 8.0)]
    assert seconds_of_an_epoch(events, 1, 3) == pytest.approx(3.0)
    assert seconds_of_an_epoch(events, 1, 2) == pytest.approx(2.0)


def test_rounds_are_groups_of_blocks():
    assert [rounds_of_an_epoch(grid) for grid in (None, "1x1", "4x1", "3x3")] == [1, 1, 4, 3]


def test_the_ledger_is_read_when_all_chains_were_there():
    def told(n):
        return {"driver": n, "peers": 10 * n}

    # Chain, epoch, seconds and bytes; the second chain is late.
    events = [(0, 1, 0.1, told(1)), (1, 1, 0.2, told(3)), (0, 2, 0.3, told(4)),
              (0, 3, 0.4, told(5)), (1, 2, 0.5, told(8)), (1, 3, 0.6, told(9))]  # fmt: skip
    assert ledger(events, 1, 2, 2) == {"driver": 8 - 3, "peers": 80 - 30}
    assert ledger(events, 2, 3, 2) == {"driver": 9 - 8, "peers": 90 - 80}


def test_a_network_is_given_what_it_knows(monkeypatch):
    @dataclass
    class Nodes:
        latency: float = 0.0
        bandwidth: float = 1.0
        workers_per_node: int = 4

    made = []
    monkeypatch.setattr(namespaces_driver, "Network", Nodes)
    monkeypatch.setattr(namespaces_driver, "Simulated", lambda *a, **k: made.append((a, k)))
    namespaces_driver.simulated(3, {"latency": 1.0, "bandwidth": 2.0, "overhead": 3.0}, 1.5)
    assert made == [((3, Nodes(1.0, 2.0, 1)), {"contention": 1.5})]


@rooted
def test_counters_are_those_of_each_card():
    talk = "import socket, sys; socket.socket(2, 2).sendto(bytes(1000), (sys.argv[1], 9))"
    with Wires(3) as wires, counters(wires) as counts:
        before = counts.read()
        for _ in range(20):
            command = [*wires.inside(1), sys.executable, "-c", talk, wires.address(2)]
            subprocess.run(command, check=True)
        end = time.process_time() + 0.1  # processors are counted in hundredths of a second
        while time.process_time() < end:
            pass
        after = counts.read()
    sent, received = (
        [a[way] - b[way] for a, b in zip(after.wires, before.wires, strict=True)] for way in (0, 1)
    )
    # To a port where nobody listens: small answers, and questions about addresses.
    assert 20_000 < sent[1] < 25_000 and 20_000 < received[2] < 25_000
    assert sent[0] < 2_000 and received[0] < 2_000
    assert after.own > before.own and after.all >= after.busy


@rooted
@pytest.mark.skipif(NO_RAY, reason="the extra 'ray' is not installed")
def test_a_small_cluster_is_measured_and_predicted(capsys):
    small = ["--shape", "ml-100k", "--scale", "0.1", "--factors", "4", "--epochs", "6"]
    assert namespaces.main(["--nodes", "1", "--cases", "DSGLD-C", "--json", *small]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["same"] and line["seconds"] > 0.002  # a message there and back
    assert line["own_cores"] > line["link_alone"] > 0.002
    (out, back), (_, got) = line["wires"]
    assert line["ledger"]["driver"] < 1.5 * (out + back) and got == pytest.approx(out, rel=0.2)
    assert f"bmf{os.getpid()}-" not in ip("netns", "list")
