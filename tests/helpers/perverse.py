"""An engine that ends tasks in an order nobody would choose."""

from __future__ import annotations

import time

import numpy as np

from bayesmf.model.refs import fetch_here


class Perverse:
    """Does tasks one at a time, in an order drawn at random; chain 0 last where `stall` is set."""

    def __init__(self, seed, stall=False):
        self.rng, self.stall = np.random.default_rng(seed), stall
        self.finished = []

    def start(self, work):
        self.held, self.open, self.begin = work.held, [], time.monotonic()

    def seconds(self):
        return time.monotonic() - self.begin

    def report(self):
        return {"name": "perverse", "seconds": self.seconds()}

    def fetch(self, refs):
        return fetch_here(refs)

    def settled(self, chain, refs):
        pass

    def submit(self, task):
        handle = _Handle(task)
        self.open.append(handle)
        return handle

    def wait(self, handles):
        ready = [h for h in self.open if h in handles]
        if self.stall:
            ready = [h for h in ready if h.task.chain != 0] or ready
        handle = ready[self.rng.integers(len(ready))]
        self.open.remove(handle)
        self.finished.append(handle.task)
        handle.value = handle.task.execute(self.held[handle.task.partition])
        return {handle}

    def close(self):
        self.open = []


class _Handle:
    def __init__(self, task):
        self.task = task

    def result(self):
        return self.value
