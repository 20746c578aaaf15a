"""Clocks of nodes and links, by hand."""

import math

import pytest

from bayesmf import InputError
from experiments.links import LinkJob, Network, SimCluster, Transfer, in_turn
from experiments.simulated import Simulated


def cluster(n_workers, per_node=1, latency=0.0, bandwidth=100.0):
    return SimCluster(n_workers, Network(latency, bandwidth, workers_per_node=per_node))


def ends(clocks, jobs):
    """When each job is back."""
    for job in jobs:
        clocks.submit(job)
    left, found = list(jobs), {}
    while left:
        done = clocks.wait(left)
        found |= dict.fromkeys(done, clocks.now)
        left = [job for job in left if job not in done]
    return [found[job] for job in jobs]


def test_a_task_waits_for_its_rows():
    clocks, rows = cluster(2), Transfer(1, 0, 300)
    assert ends(clocks, [LinkJob(0, 0, 2.0, 0, [rows], [rows])]) == [5.0]
    assert clocks.out[1].moved == clocks.into[0].moved == 300


def test_rows_come_while_the_worker_does_something_else():
    clocks, rows = cluster(2), Transfer(1, 0, 300)
    first, second = LinkJob(0, 0, 4.0, 0), LinkJob(0, 0, 2.0, 0, [rows], [rows])
    assert ends(clocks, [first, second]) == [4.0, 6.0]


def test_a_short_task_waits_for_no_other_and_takes_its_time_from_it():
    clocks = cluster(1)
    long, short, later = LinkJob(0, 0, 4.0, 0), LinkJob(0, 0, 0.5, 0), LinkJob(0, 0, 1.0, 0)
    short.short = True
    assert ends(clocks, [long, later, short]) == [4.5, 5.5, 0.5]


def test_what_was_brought_for_one_is_there_for_all_of_the_node():
    clocks, rows = cluster(4, per_node=2), Transfer(1, 0, 200)
    jobs = [LinkJob(0, 0, 1.0, 0, [rows], [rows]), LinkJob(1, 0, 1.0, 0, [], [rows])]
    assert ends(clocks, jobs) == [3.0, 3.0]
    assert clocks.into[0].moved == 200


def test_a_link_takes_one_thing_after_another_both_ways_at_once():
    """Both nodes send 100 to each other at once; a third waits for one of them."""
    clocks = cluster(3)
    there, back, third = Transfer(0, 1, 100), Transfer(1, 0, 100), Transfer(0, 2, 100)
    jobs = [
        LinkJob(1, 0, 0.0, 0, [there], [there]),
        LinkJob(0, 0, 0.0, 0, [back], [back]),
        LinkJob(2, 0, 0.0, 0, [third], [third]),
    ]
    assert ends(clocks, jobs) == [1.0, 1.0, 2.0]


@pytest.mark.parametrize("n", [2, 3, 8, 33])
def test_all_gather_keeps_every_link_busy(n):
    """Everybody sends a part to everybody: n - 1 parts over each link, and no second more."""
    clocks, jobs = cluster(n), []
    for node in range(n):
        parts = [Transfer(other, node, 100) for other in range(n) if other != node]
        parts = in_turn(parts, clocks.nodes)
        jobs.append(LinkJob(node, 0, 0.0, 0, parts, parts))
    assert max(ends(clocks, jobs)) == pytest.approx(n - 1)


def test_a_fetch_stands_behind_results():
    clocks = cluster(1)
    job = LinkJob(0, 0, 1.0, 200)
    clocks.submit(job)
    clocks.now = 1.5
    clocks.fetch([Transfer(0, clocks.driver, 100)])
    assert clocks.now == pytest.approx(4.0)
    assert clocks.wait([job]) == {job}


@pytest.mark.parametrize("value", ["x", None, 1j, [1.0], True, 0.0, -1.0, math.nan])
@pytest.mark.parametrize("name", ["bandwidth", "copying"])
def test_rates_that_are_none(name, value):
    with pytest.raises(InputError, match=f"{name} must be bytes a second above 0"):
        Network(**{name: value})


def test_simulated_workers_that_nobody_has():
    with pytest.raises(InputError, match="at most 100,000"):
        Simulated(10**9)
    with pytest.raises(InputError, match="network must be a Network"):
        Simulated(4, "fast")
