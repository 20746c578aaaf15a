"""Attacks on bayesmf: damaged files, odd values, kills, full disks, limits; each has a seed.

| | |
|---|---|
| registry.py | the attacks by name, and which of them a seed stands for |
| case.py | the ground of one attack: its folder, what it may touch, and how it is judged |
| material.py | sound files and folders, from which attacks make damaged ones |
| text.py, binary.py, typed.py, arguments.py, artefacts.py, sharing.py, kernels.py, processes.py | the attacks |
| worker.py, pool.py | processes that run them, and what becomes of one that dies or hangs |
| plain.py | kernels as plain Python, every index checked |
| failing.py, shims.py, failing.c | I/O that fails at the k-th call, for every k |

A new attack is one function with `@attack("kind")` above it. It takes a `Case`, does harm with
`case.rng` alone to decide, asks bayesmf for an answer by `case.call` or `case.cli`, and reports
with `case.find` what should not have come of it.
"""  # noqa: E501
