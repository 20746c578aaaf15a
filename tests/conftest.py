"""Fixtures of all rooms, and the order of files.

What is imported from bayesmf is so inside fixtures: the process that hands out tests needs none.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Programs that tests start are to buffer their output as those of users do.
os.environ.pop("PYTHONUNBUFFERED", None)

# Long ones first, so that processes end at the same time: `make test` gives whole files to
# processes, in this order. Files that are not named here are short, and fill what is left at the
# end. The first three have few kernels in common to compile; what starts programs of its own, Ray's
# workers above all, comes when most is compiled.
LONG = (
    "test_contract.py",
    "test_geweke.py",
    "test_terminal.py",
    "test_momentum.py",
    "test_resume.py",
    "test_ray.py",
    "test_paper.py",
    "test_pack.py",
    "test_exact_posterior.py",
    "test_gradient.py",
    "test_demo.py",
    "test_benchmarks.py",
    "test_answers_page.py",
    "test_stopping.py",
    "test_estimator.py",
    "test_docstrings.py",
    "test_partial_fit.py",
    "test_failing_calls.py",
    "test_model_plots.py",
    "test_plots.py",
    "test_jit.py",
    "test_ray_signals.py",
    "test_checkpoints.py",
    "test_sbc.py",
    "test_nuts_reference.py",
    "test_cli_checkpoints.py",
    "test_rescale.py",
    "test_cli.py",
    "test_hostile_models.py",
    "test_escapes.py",
)


# Tests, or cases of them, that `make test` leaves out; a test of the project looks for each.
LEFT_OUT = Path(__file__).with_name("long.txt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long, and sort files; the tests of a file stay in their order."""
    long = set(LEFT_OUT.read_text().splitlines())
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if name in long or name.partition("[")[0] in long:
            item.add_marker("long")
    order = {name: index for index, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONG)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say loudly what was not looked at, such as the page where there is no browser."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)}
    for reason in sorted(reasons):
        if "not looked at" in reason:
            terminalreporter.write_line(f"WARNING, {reason.removeprefix('Skipped: ')}", red=True)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Do not flush to the disk: no test pulls the plug. Processes that tests start do flush."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def signals_reach_us() -> Iterator[None]:
    """Listen to SIGINT, which a job in the background, and its children, may have to ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def reference() -> Any:
    """What the run of helpers/checkpointed.py gives where nothing stops it."""
    from checkpointed import run_kept

    return run_kept(None)


@pytest.fixture
def stopped(tmp_path: Path) -> Any:
    """The folder of that run, killed after six or seven of its nine rounds."""
    from checkpointed import stop

    return stop(tmp_path / "stopped")
