"""What people are told to type: clusters with a token, and packages that can be installed."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOLD = [
    ROOT / "README.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/**/*.md"),
    *ROOT.glob("examples/**/*.yaml"),
    *ROOT.glob("examples/*.ipynb"),
    *ROOT.glob("src/**/*.py"),
    *ROOT.glob("benchmarks/*.py"),
]


def lines(pattern):
    found = [(path, line) for path in TOLD for line in path.read_text().splitlines()]
    return [(path.name, line.strip()) for path, line in found if re.search(pattern, line)]


def test_no_package_is_asked_for_that_is_on_no_index():
    installs = lines("pip install")
    assert len(installs) > 5
    ours = re.compile(r"install( -\S+)* ['\"]?bayesmf\b(?!-\d)")  # a wheel of it is a file
    assert [line for line in installs if ours.search(line[1])] == []


def test_every_cluster_that_is_started_has_a_token():
    """By the line itself; in the text of messages and explanations there is no line to type."""
    typed = lines(r"^( {4}|  - )(\w+=\w+ )*ray start ")
    assert len(typed) == 4
    assert all("RAY_AUTH_MODE=token ray start" in line for _, line in typed), typed
    assert lines("^ *mode: token") and lines("ports private")
