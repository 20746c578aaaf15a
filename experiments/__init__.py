"""Experiments with the library: those of the paper, plans of clusters, simulated workers.

They import `bayesmf`, which never imports them, and are not part of the wheel.
"""
