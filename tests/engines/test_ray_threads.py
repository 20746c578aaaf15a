"""A worker on Ray has two threads, one for what does not wait: neither hides the other."""

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("ray")

from bayesmf.engines.ray.cluster import Cluster
from bayesmf.engines.ray.dispatch import Dispatch, Pending
from bayesmf.engines.ray.lineage import Order
from bayesmf.engines.ray.pool import Call, Process, Slot, WorkerPool
from bayesmf.engines.ray.worker import About, NotHeld, Store, Worker
from bayesmf.worker.row_tasks import StartTask
from bayesmf.worker.stripe_tasks import MomentsTask


def a_process(now):
    process = Process(0, None, None, now)
    process.about, process.since = About(1, "node", "host", {}), {False: now, True: now}
    return process


def a_call(beside, told=None):
    on_loss = (lambda why: None) if told is None else told.append
    return Call(object(), beside, lambda found: None, lambda: None, on_loss=on_loss)


@pytest.mark.parametrize("hangs", [False, True])
def test_a_thread_that_hangs_is_noticed_while_the_other_answers(monkeypatch, hangs):
    pool, lost = object.__new__(WorkerPool), []
    pool.cluster, pool.backup, pool.slots = Cluster(task_timeout=60), None, [Slot(0)]
    monkeypatch.setattr(pool, "lost", lambda slot, why, hung: lost.append(why))
    now = time.monotonic()
    process = pool.slots[0].process = a_process(now)
    process.running = [a_call(not hangs), a_call(hangs)]
    pool._check_workers()
    assert not lost
    process.since[hangs] = now - 61
    pool._check_workers()
    assert lost == ["did not answer for 60 s"]


def test_of_several_that_are_silent_the_first_is_replaced_and_the_others_have_time(monkeypatch):
    pool, lost = object.__new__(WorkerPool), []
    pool.cluster, pool.backup = Cluster(task_timeout=60), None
    pool.slots = [Slot(0), Slot(1), Slot(2)]
    monkeypatch.setattr(pool, "lost", lambda slot, why, hung: lost.append(slot.number))
    now = time.monotonic()
    for slot, silent in zip(pool.slots, (62, 70, 65), strict=True):
        slot.process = a_process(now - silent)
        slot.process.running = [a_call(False)]
    pool._check_workers()
    pool._check_workers()
    assert lost == [1]


def test_the_calls_of_both_threads_count_as_tried(monkeypatch):
    pool, told = object.__new__(WorkerPool), []
    pool.ledger = SimpleNamespace(fault=lambda text: None)
    monkeypatch.setattr(pool, "_replace", lambda slot: None)
    slot = Slot(0)
    slot.process = a_process(0.0)
    slot.process.running = [a_call(False, told), a_call(False, told), a_call(True, told)]
    pool.lost(slot, "was lost")
    assert len(told) == 2


def test_a_short_task_that_came_before_its_ratings_waits_for_them_the_next_time():
    dispatch = Dispatch(SimpleNamespace(ledger=None, slots=[]))
    pending = Pending(MomentsTask(0, 3, None, True), None)
    pending.sent = True
    assert pending.short
    dispatch._failed(Slot(0), a_process(0.0), [pending], NotHeld("they were never sent"))
    assert not pending.short and pending.ready and not pending.sent and not pending.tries


class Shelf(Store):
    """A store of one process."""

    def put(self, value):
        return pickle.dumps(value)


def test_short_orders_run_beside_long_ones_to_the_same_bits():
    worker = Worker("here", [], Shelf())
    rows = [np.random.default_rng(k).standard_normal((60, 9)).astype(np.float32) for k in range(4)]
    key = np.zeros(2, np.uint32)
    starts = [(100 + k, StartTask(0, k, 0, 8, True, 1.0, key)) for k in range(4)]
    moments = [(200 + k, MomentsTask(0, k, rows[k], True)) for k in range(4)]
    numbers = np.arange(240, dtype=np.int32).reshape(4, 60)
    held = [SimpleNamespace(numbers=lambda side, k=k: numbers[k]) for k in range(4)]
    for k in range(4):
        worker.hold(k, held[k])
    first = [task.execute(held[k]).rows for k, (_, task) in enumerate(starts)]
    second = [task.execute(held[k]).moments for k, (_, task) in enumerate(moments)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            long = pool.submit(worker.run, Order(0, starts, 0, {}, [], True, 1.0), None)
            beside = Order(0, moments, 0, {}, [], True, 1.0, short=True)
            short = pool.submit(worker.run, beside, None)
            for (found, _), wanted in zip(short.result(), second, strict=True):
                assert pickle.dumps(found.moments) == pickle.dumps(wanted)
            refs = [found.rows for found, _ in long.result()]
            assert all(ref.export is not None for ref in refs)
            for mine, wanted in zip(worker.fetch([ref.key for ref in refs]), first, strict=True):
                assert mine.tobytes() == wanted.tobytes()
