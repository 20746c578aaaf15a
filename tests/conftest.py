"""The order of files: long ones first, so that two processes end at the same time.

`make test` gives whole files to processes, in this order. Files that are not named here are short,
and fill what is left at the end. The first two have few kernels in common to compile.
"""

from __future__ import annotations

import pytest

LONG = (
    "test_geweke.py",
    "test_row_clock.py",
    "test_terminal.py",
    "test_contract.py",
    "test_one_user.py",
    "test_ray.py",
    "test_ray_faults.py",
    "test_ray_signals.py",
    "test_momentum.py",
    "test_cli.py",
    "test_gradient.py",
    "test_examples.py",
    "test_sbc.py",
    "test_columns.py",
    "test_pack.py",
    "test_resume.py",
    "test_paper.py",
    "test_plots.py",
    "test_estimator.py",
    "test_cli_checkpoints.py",
    "test_model_plots.py",
    "test_demo.py",
    "test_rescale.py",
    "test_checkpoints.py",
    "test_benchmarks.py",
    "test_attack.py",
    "test_failing_calls.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files, and leave the tests of a file in their order."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))
