"""Workers of a packing without a cluster: calls are done here, in an odd order, some twice."""

import random


class Lost(BaseException):
    """What ends a worker in the middle of a task."""


class Hands:
    """Do what `bayesmf.packed.cluster.Workers` do, a few calls at a time, in a random order.

    `lose(n)` may be given: called before the n-th call, it breaks the worker in its own way and
    returns how to mend it. The call is then done once more.
    """

    def __init__(self, seed=0, at_a_time=4, lose=None):
        self.random, self.at_a_time, self.lose = random.Random(seed), at_a_time, lose
        self.done = []
        self.lost = 0

    def share(self, value):
        return value

    def each(self, calls):
        waiting, errors, todo = [], {}, enumerate(calls)
        while True:
            while not errors and len(waiting) < self.at_a_time and (one := next(todo, None)):
                waiting.append(one)
            if not waiting:
                break
            n, (key, function, arguments) = waiting.pop(self.random.randrange(len(waiting)))
            try:
                result = self.perform(function, arguments)
            except Exception as error:
                errors[n] = error
            else:
                yield key, result
        if errors:
            raise errors[min(errors)]

    def perform(self, function, arguments):
        self.done.append(function.__name__)
        if self.lose is not None:
            mend = self.lose(len(self.done))
            try:
                function(*arguments)
            except Lost:
                self.lost += 1
            finally:
                mend()
        return function(*arguments)
