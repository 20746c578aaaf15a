"""The order of files: long ones first, so that processes end at the same time.

`make test` gives whole files to three processes, in this order: those of Ray mostly wait, and stand
apart. Files that are not named here are short, and fill what is left at the end. The first have few
kernels in common to compile.
"""

from __future__ import annotations

import pytest

LONG = (
    "test_ray.py",  # waits
    "test_geweke.py",
    "test_row_clock.py",
    "test_terminal.py",
    "test_contract.py",
    "test_exact_posterior.py",
    "test_ray_faults.py",  # waits
    "test_momentum.py",
    "test_kernels.py",
    "test_benchmarks.py",
    "test_examples.py",
    "test_packing.py",
    "test_movielens.py",
    "test_cli_checkpoints.py",
    "test_resume.py",
    "test_paper.py",
    "test_estimator.py",
    "test_compiling.py",
    "test_plots.py",
    "test_sbc.py",
    "test_demo.py",
    "test_habits.py",
    "test_looking.py",
    "test_cli.py",
    "test_columns.py",
    "test_scales.py",
    "test_checkpoints.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files, and leave the tests of a file in their order."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))
