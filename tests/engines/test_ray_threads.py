"""A worker on Ray has two threads, one for what does not wait: neither hides the other."""

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("ray")

from bayesmf.engines.ray.addresses import check_listening
from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.contents import Order
from bayesmf.engines.ray.crew import Crew
from bayesmf.engines.ray.dispatch import Dispatch
from bayesmf.engines.ray.servers import _reason
from bayesmf.engines.ray.slots import Call, Pending, Process, Slot
from bayesmf.engines.ray.worker import About, Holder, NotHeld, Store
from bayesmf.worker.row_tasks import StartTask
from bayesmf.worker.stripe_tasks import MomentsTask


def a_process(now):
    process = Process(0, None, None, now)
    process.about, process.since = About(1, "node", "host", {}), {False: now, True: now}
    return process


def a_call(beside, told=None):
    blamed = (lambda why: None) if told is None else told.append
    return Call(object(), beside, lambda found: None, lambda: None, blamed=blamed)


@pytest.mark.parametrize("hangs", [False, True])
def test_a_thread_that_hangs_is_noticed_while_the_other_answers(monkeypatch, hangs):
    crew, lost = object.__new__(Crew), []
    crew.cluster, crew.keeper, crew.slots = Cluster(task_timeout=60), None, [Slot(0)]
    monkeypatch.setattr(crew, "lost", lambda slot, why, hung: lost.append(why))
    now = time.monotonic()
    process = crew.slots[0].process = a_process(now)
    process.running = [a_call(not hangs), a_call(hangs)]
    crew._look_after()
    assert not lost
    process.since[hangs] = now - 61
    crew._look_after()
    assert lost == ["did not answer for 60 s"]


def test_of_several_that_are_silent_the_first_is_replaced_and_the_others_have_time(monkeypatch):
    crew, lost = object.__new__(Crew), []
    crew.cluster, crew.keeper = Cluster(task_timeout=60), None
    crew.slots = [Slot(0), Slot(1), Slot(2)]
    monkeypatch.setattr(crew, "lost", lambda slot, why, hung: lost.append(slot.number))
    now = time.monotonic()
    for slot, silent in zip(crew.slots, (62, 70, 65), strict=True):
        slot.process = a_process(now - silent)
        slot.process.running = [a_call(False)]
    crew._look_after()
    crew._look_after()
    assert lost == [1]


def test_what_both_threads_were_at_is_blamed(monkeypatch):
    crew, told = object.__new__(Crew), []
    crew.ledger = SimpleNamespace(fault=lambda text: None)
    monkeypatch.setattr(crew, "_replace", lambda slot: None)
    slot = Slot(0)
    slot.process = a_process(0.0)
    slot.process.running = [a_call(False, told), a_call(False, told), a_call(True, told)]
    crew.lost(slot, "was lost")
    assert len(told) == 2


def test_a_short_task_that_came_before_its_ratings_waits_for_them_the_next_time():
    dispatch = Dispatch(SimpleNamespace(ledger=None, slots=[]))
    pending = Pending(MomentsTask(0, 3, None, True), None)
    pending.sent = True
    assert pending.short
    dispatch._failed(Slot(0), a_process(0.0), [pending], NotHeld("they were never sent"))
    assert not pending.short and pending.ripe and not pending.sent and not pending.tries


def test_keys_that_nobody_asks_for_are_told_once():
    process = a_process(0.0)
    process.dropped = [(1, 0), (2, 1)]
    assert process.forget() == [(1, 0), (2, 1)] and process.forget() == []


class Shelf(Store):
    """A store of one process."""

    def put(self, value):
        return pickle.dumps(value)


def test_short_orders_run_beside_long_ones_to_the_same_bits():
    holder = Holder([], Shelf())
    rows = [np.random.default_rng(k).standard_normal((60, 9)).astype(np.float32) for k in range(4)]
    key = np.zeros(2, np.uint32)
    starts = [(100 + k, StartTask(0, k, 0, 8, True, 1.0, key)) for k in range(4)]
    moments = [(200 + k, MomentsTask(0, k, rows[k], True)) for k in range(4)]
    numbers = np.arange(240, dtype=np.int32).reshape(4, 60)
    held = [SimpleNamespace(numbers=lambda side, k=k: numbers[k]) for k in range(4)]
    for k in range(4):
        holder.hold(k, held[k])
    first = [task.execute(held[k]).rows for k, (_, task) in enumerate(starts)]
    second = [task.execute(held[k]).moments for k, (_, task) in enumerate(moments)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            long = pool.submit(holder.run, Order(0, starts, 0, {}, [], True, 1.0), None)
            beside = Order(0, moments, 0, {}, [], True, 1.0, short=True)
            short = pool.submit(holder.run, beside, None)
            for (found, _), wanted in zip(short.result(), second, strict=True):
                assert pickle.dumps(found.moments) == pickle.dumps(wanted)
            lefts = [found.rows for found, _ in long.result()]
            assert all(left.export is not None for left in lefts)
            for mine, wanted in zip(holder.give([left.key for left in lefts]), first, strict=True):
                assert mine.tobytes() == wanted.tobytes()


def test_auto_is_refused_where_nobody_has_started_a_cluster(monkeypatch, tmp_path):
    """Ray would find any cluster of this machine by its processes, and try it for minutes."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(OSError, match="none was started here"):
        check_listening("auto", "127.0.0.1")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("starting\nno room left\n", "no room left"),
        ("no room left\nFatal Python error: Aborted\n\nStack (most recent", "no room left"),
        ("Fatal Python error: Aborted\n<no Python frame>\n", "`ray start` has ended"),
    ],
)
def test_why_ray_did_not_start_is_what_it_said_last(said, reason):
    assert _reason(said).startswith(reason)
