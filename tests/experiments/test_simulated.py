"""Virtual clocks: times by hand, bytes by the paper's formulas, and the same bits as without."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from bayesmf import SGLD, BayesianMF, Gibbs, InputError
from bayesmf.chains.callbacks import History
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.state import RunSettings
from bayesmf.engines.base import Workload, payload
from bayesmf.engines.local import Serial
from bayesmf.engines.placement import Homes, spread
from bayesmf.model.priors import GammaPrior
from bayesmf.run.driver import drive, make_rounds, run
from bayesmf.samplers.momentum import SGHMC
from bayesmf.worker.tasks import Shared
from experiments import simulated
from experiments.simulated import SHARED_MEMORY, Network, Simulated
from problems import planted, random_data

DATA = random_data(40, 30, 500)


def _settings(sampler, data=DATA, **more):
    base = RunSettings(sampler.resolve(data_shape(data)), GammaPrior(), 2, None, 0, 50)
    return replace(base, **more)


# -- times by hand ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkJob:
    """A task of so many ratings whose message and answer have so many bytes."""

    partition: int
    count: int
    out: np.ndarray
    back: int
    chain: int = 0

    def execute(self, held):
        return Answer(self.count, np.zeros(self.back, np.uint8))


@dataclass(frozen=True)
class Answer:
    count: int
    rows: np.ndarray


def job(partition, count, out=0, back=0, chain=0):
    return LinkJob(partition, count, np.zeros(out, np.uint8), back, chain)


@pytest.fixture
def engine_of():
    """An engine of 100 ratings a second for partitions, with a worker each if there are enough."""

    def make(n_workers, n_partitions, latency=0.0, bandwidth=math.inf, handling=(), **options):
        network = Network(latency, bandwidth, *handling)
        engine = Simulated(n_workers, network, **{"rate": 100, **options})
        engine.start(Workload([range(1)] * n_partitions, [range(n_partitions)]))
        return engine

    return make


def _arrivals(engine, jobs):
    """When the result of each job is back."""
    flights = [engine.submit(one) for one in jobs]
    left, times = set(flights), {}
    while left:
        done = engine.wait(left)
        times |= dict.fromkeys(done, engine.seconds())
        left -= done
    return pytest.approx([times[flight] for flight in flights], rel=1e-12)


def test_one_worker_does_one_task_after_the_other(engine_of):
    engine = engine_of(1, 1)
    assert _arrivals(engine, [job(0, 50), job(0, 200)]) == [0.5, 2.5]
    assert _arrivals(engine, [job(0, 50)]) == [3.0]
    assert engine.report()["idle"] == [0.0]


def test_the_link_sends_and_receives_one_message_after_another(engine_of):
    """Out: until 1 and 2. Done at 1.5 and 2.5. In: 1.5 to 4.5, and behind it to 7.5."""
    engine = engine_of(2, 2, bandwidth=1000)
    jobs = [job(0, 50, 1000, 3000), job(1, 50, 1000, 3000)]
    assert _arrivals(engine, jobs) == [4.5, 7.5]
    told = engine.report()
    assert told["link_seconds"]["sending"] == 2.0
    assert told["link_seconds"]["receiving"] == 6.0
    assert (told["bytes_sent"], told["bytes_received"]) == (2000, 6000)


def test_results_come_back_in_the_order_in_which_they_are_done(engine_of):
    """The second is sent later and done earlier: its answer takes the link from 1.1 to 2.1."""
    engine = engine_of(2, 2, latency=0.5, bandwidth=1000)
    jobs = [job(0, 200, 50, 1000), job(1, 50, 50, 1000)]
    assert _arrivals(engine, jobs) == [0.05 + 0.5 + 2.0 + 1.0 + 0.5, 0.1 + 0.5 + 0.5 + 1.0 + 0.5]


def test_a_task_sent_after_a_wait_may_overtake_one_under_way(engine_of):
    engine = engine_of(3, 3, latency=0.25)
    slow, quick = engine.submit(job(0, 1000)), engine.submit(job(1, 100))
    assert engine.wait([slow, quick]) == {quick}
    assert engine.seconds() == 1.5
    late = engine.submit(job(2, 100))
    assert engine.wait([slow, late]) == {late}
    assert engine.seconds() == 3.0
    assert engine.wait([slow]) == {slow}
    assert engine.seconds() == 10.5
    assert engine.wait([slow, quick]) == {slow, quick}  # known: no time passes
    assert engine.seconds() == 10.5


def test_two_chains_share_a_worker(engine_of):
    """Chains of two rounds of a second each: on one worker they alternate, 4 seconds in all."""

    def chain(number, partition):
        for _ in range(2):
            yield [job(partition, 100, chain=number)]
            ends.append((number, engine.seconds()))

    ends, engine = [], engine_of(1, 2)
    drive([chain(0, 0), chain(1, 1)], engine)
    assert ends == [(0, 1.0), (1, 2.0), (0, 3.0), (1, 4.0)]
    ends, engine = [], engine_of(2, 2)
    drive([chain(0, 0), chain(1, 1)], engine)
    assert ends == [(0, 1.0), (1, 1.0), (0, 2.0), (1, 2.0)]


def test_messages_take_the_worker_time_too(engine_of):
    """A quarter of a second each, and one for 1000 bytes in and out; that is not the work."""
    engine = engine_of(1, 1, handling=(0.25, 1000.0))
    assert _arrivals(engine, [job(0, 50, 400, 600), job(0, 50)]) == [1.75, 2.5]
    told = engine.report()
    assert told["busy_seconds"] == [1.0]
    assert told["idle"] == pytest.approx([0.6])


def test_measured_time_is_that_of_tasks_and_of_the_server(engine_of, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(simulated.time, "thread_time", lambda: clock[0])

    def execute(task, held):
        clock[0] += 5.0
        return Answer(task.count, np.zeros(0))

    engine = engine_of(2, 2, rate=None)
    monkeypatch.setattr(LinkJob, "execute", execute)
    clock[0] += 1.0  # the server's
    flights = [engine.submit(job(0, 1))]
    clock[0] += 0.25
    flights.append(engine.submit(job(1, 1)))
    assert engine.seconds() == 1.25
    assert engine.wait(flights) == {flights[0]}
    assert engine.seconds() == 6.0
    clock[0] += 2.0  # the second comes in meanwhile
    assert engine.wait(flights[1:]) == {flights[1]}
    assert engine.seconds() == 8.0
    told = engine.report()
    assert told["server_seconds"] == 3.25
    assert told["busy_seconds"] == [5.0, 5.0]


def test_the_servers_seconds_have_a_factor(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(simulated.time, "thread_time", lambda: clock[0])
    engine = Simulated(2, server=0.25)
    engine.start(Workload([], []))
    clock[0] += 8.0
    assert engine.seconds() == 2.0
    with engine.aside():
        clock[0] += 8.0
    assert engine.seconds() == 2.0 == engine.report()["server_seconds"]
    with pytest.raises(InputError, match="server"):
        Simulated(2, server=-1.0)


@dataclass(frozen=True, eq=False)
class Table(Shared):
    clock: list

    def prepare(self):
        self.clock[0] += 3.0
        return np.zeros(10)


@dataclass(frozen=True)
class Reader(LinkJob):
    shared: Table = None


def test_every_worker_prepares_what_tasks_share(engine_of, monkeypatch):
    """Here it is done once, by the first task; on a cluster every worker would do it."""
    clock = [0.0]
    monkeypatch.setattr(simulated.time, "thread_time", lambda: clock[0])

    def execute(task, held):
        assert task.shared.ready is not None
        clock[0] += 5.0
        return Answer(task.count, np.zeros(0))

    engine, table = engine_of(2, 4, rate=None), Table(clock)
    monkeypatch.setattr(LinkJob, "execute", execute)
    jobs = [Reader(p, 1, np.zeros(0), 0, shared=table) for p in range(4)]
    assert sorted(_arrivals(engine, jobs).expected) == [8.0, 8.0, 13.0, 13.0]
    told = engine.report()
    assert told["busy_seconds"] == [13.0, 13.0]
    assert told["alone_seconds"] == 23.0
    assert [node["tables"] for node in told["memory_by_node"]] == [80, 80]


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampler",
    [SGLD(grid=(3, 3), n_chains=3, epochs=4), SGLD(grid=(4, 1), n_chains=4, epochs=3), Gibbs(),
     SGHMC(grid=(2, 2), n_chains=2, epochs=3),
     SGLD(grid=(3, 2), group_size=1, n_chains=6, epochs=3),
     SGLD(grid=(1, 4), n_chains=4, epochs=3)],
)  # fmt: skip
def test_the_same_bits_as_serial(sampler):
    def bits(engine):
        draws = run(DATA, _settings(sampler), engine).draws
        return [a.tobytes() for a in (draws.users, draws.items, draws.tau, draws.user_Lambda)]

    engines = (
        Simulated(9),
        Simulated(1, SHARED_MEMORY, rate=1e6),
        Simulated(4, Network(0.1, 1e5), rate=1e4),
    )
    reference = bits(Serial())
    for engine in engines:
        assert bits(engine) == reference


def test_events_and_limits_follow_the_virtual_clock():
    user, item, value = planted()
    history = History()
    engine = Simulated(1, Network(latency=100.0), rate=1e6)
    model = BayesianMF(
        3, sampler=SGLD(epochs=50, burn_in=1), tau=1.0, engine=engine, callbacks=[history],
        max_seconds=1000, random_state=0,
    )  # fmt: skip
    model.fit((user, item, value))
    # There and back for the first rows, the updates, the moments of rows and the pairs that are
    # followed; then the last three again, and a draw that is kept comes to the driver.
    assert [round(event["seconds"]) for event in history.events] == [800, 1500]


# -- bytes -----------------------------------------------------------------------------------------

L, M, D = 24, 18, 2
FULL = random_data(L, M, L * M)
ROW = 4 * (D + 1)


def _told(sampler, n_workers=6, tau=1.0, **network):
    settings = _settings(sampler, FULL, tau=tau)
    return run(FULL, settings, Simulated(n_workers, Network(**network), rate=1e6)).engine


@pytest.mark.parametrize("S", [2, 3, 6])
def test_bytes_of_the_square_split(S):
    """Rows of users stay; stripes of items move on, M (D + 1) numbers in a chain's round."""
    told = _told(SGLD(grid=(S, S), epochs=4), n_workers=S)
    assert told["rounds"] == 4 * S
    # Once an epoch all workers need all items besides, for pairs that are followed.
    travelled = told["peer_bytes_per_round"] * told["rounds"] / (M * ROW)
    assert 4 * S - 6 <= travelled <= 4 * S + 4 * S


def test_no_rows_go_through_the_driver():
    """Ten times as many users: the same keys, precisions and statistics."""
    sampler = SGLD(grid=(2, 2), epochs=4, batch_size=50)
    few, many = (
        run(data, _settings(sampler, data, tau=1.0), Simulated(2, rate=1e6)).engine
        for data in (random_data(40, 30, 800), random_data(400, 30, 800))
    )
    assert many["driver_bytes_per_round"] == pytest.approx(few["driver_bytes_per_round"], rel=0.02)
    assert many["fetched_bytes"] > 0


def test_the_other_side_travels_once_to_each_node():
    """Gibbs: every node lacks what the others hold, whatever its workers do with it."""
    big = random_data(640, 320, 4000)
    settings = _settings(Gibbs(epochs=3, burn_in=0, n_stripes=4), big, tau=1.0)

    def peers(n_workers, per_node):
        engine = Simulated(n_workers, Network(workers_per_node=per_node), rate=1e6)
        told = run(big, settings, engine).engine
        return told["peer_bytes_per_round"] * told["rounds"]

    assert peers(4, 4) == 0
    assert peers(4, 2) > 2.5 * (640 + 320) * ROW
    # Four nodes lack three quarters each, two nodes a half each: also of the means of items, which
    # probe pairs are scored with.
    assert peers(4, 1) == pytest.approx(3 * peers(4, 2), rel=0.25)


def test_memory_by_node():
    told = _told(SGLD(grid=(3, 3), n_chains=3, epochs=2), 9, workers_per_node=3)
    held = told["memory_by_node"]
    assert len(held) == 3
    assert all(node["ratings"] > 0 and node["rows"] > 0 for node in held)
    # Each chain has its users once, wherever they lie.
    assert sum(node["rows"] for node in held) >= 3 * (L + M) * ROW


@pytest.mark.parametrize(("n_users", "n_items"), [(12, 60), (60, 12), (30, 30)])
@pytest.mark.parametrize(
    "rule",
    [SGLD(grid=(4, 1), n_chains=4, epochs=2), SGLD(grid=(1, 4), n_chains=4, epochs=2),
     SGHMC(grid=(4, 1), n_chains=4, epochs=2, exact_below=0)],
)  # fmt: skip
def test_workers_of_a_split_of_one_side_hold_one_block_each(rule, n_users, n_items):
    """Whichever side is larger; so a block's ratings are sent once, and no worker has all."""
    data = random_data(n_users, n_items, 300)
    settings = _settings(rule, data, tau=1.0)
    rounds = make_rounds(data, settings.sampler, 0)
    homes = Homes(Workload(rounds.held, rounds.together, (), (), rounds.units, 4), 4)
    assert homes.n_workers == 4
    assert sorted(homes.held_by(worker) for worker in range(4)) == [[0], [1], [2], [3]]
    assert {homes.of(chain, 2) for chain in range(4)} == {homes.of(0, 2)}
    told = run(data, settings, Simulated(4, Network(workers_per_node=1), rate=1e6)).engine
    sizes = sorted(payload(held) for held in rounds.held)
    assert sorted(node["ratings"] for node in told["memory_by_node"]) == sizes
    assert told["ratings_bytes_sent"] == sum(sizes)


def test_ratings_that_a_worker_can_reach_are_not_sent():
    rounds = make_rounds(FULL, SGLD(grid=(2, 1)).resolve(data_shape(FULL)), 0)
    engine = Simulated(2, rate=1e6)
    engine.start(Workload(rounds.held, rounds.together))
    every = engine.report()["ratings_bytes_sent"]
    assert every == payload(rounds.held[0]) + payload(rounds.held[1]) > 5 * L * M
    engine.start(Workload(rounds.held, rounds.together, recipes=[object(), None]))
    assert engine.report()["ratings_bytes_sent"] == payload(rounds.held[1])


# -- who holds what --------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 7, 9])
@pytest.mark.parametrize(
    "sampler", [SGLD(grid=(3, 3)), SGLD(grid=(4, 1)), SGLD(grid=(2, 3)), Gibbs(n_stripes=6),
                SGHMC(grid=(3, 3))],
)  # fmt: skip
def test_partitions_that_run_together_are_spread(sampler, n_workers):
    data = random_data(120, 90, 4000)
    rounds = make_rounds(data, sampler.resolve(data_shape(data)), 0)
    work = Workload(rounds.held, rounds.together)
    owner = spread(work, n_workers)
    assert owner == spread(work, n_workers)
    for partitions in work.together:
        counts = np.bincount([owner[p] for p in partitions], minlength=n_workers)
        assert counts.max() - counts.min() <= 1
    sizes = [len(held) for held in work.held]
    loads = np.bincount(owner, sizes, minlength=n_workers)
    assert loads.sum() == sum(sizes)
    assert loads.max() - loads.min() <= 1.01 * max(sizes)


# -- what cannot be meant --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Simulated(0), "n_workers"),
        (lambda: Simulated(2, rate=0), "rate"),
        (lambda: Simulated(2, contention=-1), "contention"),
        (lambda: Network(latency=-1), "latency"),
        (lambda: Network(latency=math.nan), "latency"),
        (lambda: Network(bandwidth=0), "bandwidth"),
        (lambda: Network(bandwidth=math.nan), "bandwidth"),
        (lambda: Network(overhead=math.inf), "overhead"),
        (lambda: Network(copying=0), "copying"),
        (lambda: Network(workers_per_node=0), "workers_per_node"),
        (lambda: Network(calling=-1), "calling"),
    ],
)
def test_settings_are_checked(make, words):
    with pytest.raises(InputError, match=words):
        make()
