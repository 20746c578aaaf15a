"""Attacks on bayesmf: damaged files, odd values, kills, full disks, limits; each has a seed.

| | |
|---|---|
| registry.py | the attacks by name, and the attack of each seed |
| case.py | one attack: its folder, the files that it may change, and the judgement |
| material.py | sound files and folders, from which attacks make damaged ones |
| text.py, binary.py, typed.py, arguments.py, artefacts.py, sharing.py, kernels.py, processes.py | the attacks |
| worker.py, pool.py | processes that run attacks, and their replacement when one dies or hangs |
| plain.py | kernels as plain Python, every index checked |
| failing.py, shims.py, failing.c | I/O that fails at the k-th call, for every k |

A new attack is one function with `@attack("kind")` above it. It takes a `Case`, makes
random choices by `case.rng` alone, calls bayesmf by `case.call` or `case.cli`, and reports wrong
results by `case.find`.
"""  # noqa: E501
