"""Compiled lookup of pairs among the ratings: which of them are rated.

No allocation inside a loop, the interpreter's lock released.
"""

from __future__ import annotations

from bayesmf.kernels.jit import APART, ENTRY, njit


@njit(**ENTRY)
def find_rated(starts, items, user, item, marks, out):
    """out[n] = whether item[n] is among the items of user[n], which stand in ascending order.

    Where a user has many pairs together they are answered by marking the user's items, where it has
    few by bisection. `marks` has one entry for each item and is all False, before and after.
    """
    n, end = 0, user.shape[0]
    while n < end:
        i, begin = user[n], n
        while n < end and user[n] == i:
            n += 1
        if i < 0:
            out[begin:n] = False
        elif starts[i + 1] - starts[i] < 8 * (n - begin):
            lookup_marked(items[starts[i] : starts[i + 1]], item[begin:n], marks, out[begin:n])
        else:
            lookup_bisected(items[starts[i] : starts[i + 1]], item[begin:n], out[begin:n])


@njit(**APART)
def lookup_marked(items, wanted, marks, out):
    """out[n] = whether wanted[n] is one of the items, through a table of marks."""
    for s in range(items.shape[0]):
        marks[items[s]] = True
    for n in range(wanted.shape[0]):
        out[n] = wanted[n] >= 0 and marks[wanted[n]]
    for s in range(items.shape[0]):
        marks[items[s]] = False


@njit(**APART)
def lookup_bisected(items, wanted, out):
    """out[n] = whether wanted[n] is one of the items."""
    for n in range(wanted.shape[0]):
        lo, hi = 0, items.shape[0]
        while lo < hi:
            middle = (lo + hi) // 2
            if items[middle] < wanted[n]:
                lo = middle + 1
            else:
                hi = middle
        out[n] = lo < items.shape[0] and items[lo] == wanted[n]
