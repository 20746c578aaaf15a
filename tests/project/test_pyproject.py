"""pyproject.toml: what stands in two places is the same, and what is installed is within bounds."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]


def package(requirement):
    return re.match(r"[\w-]+", requirement)[0].lower()


def group(name):
    """Packages of a dependency group, those of included groups too."""
    for entry in PROJECT["dependency-groups"][name]:
        yield from group(entry["include-group"]) if isinstance(entry, dict) else [package(entry)]


def test_the_group_and_the_extra_have_the_same_tools():
    extra = {package(entry) for entry in EXTRAS["test"]} - {"bayesmf"}
    assert sorted(group("dev")) == sorted(extra)
    listed = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    assert not [tool for tool in extra if not re.search(rf"\b{tool}\b", listed)]


def test_all_that_is_asked_for_is_pinned():
    pins = (ROOT / "constraints.txt").read_text("utf-8").lower().replace("_", "-").split()
    pinned = {pin.split("==")[0] for pin in pins}
    asked = [
        *PROJECT["project"]["dependencies"],
        *(one for extra in EXTRAS.values() for one in extra),
    ]
    assert not {package(one) for one in asked} - pinned - {"bayesmf"}


def test_ray_is_a_release_that_was_tried():
    for extra, asked in (("ray", EXTRAS["ray"][0]), ("ray-serve", EXTRAS["ray-serve"][1])):
        bound = re.search(r"<(\d+)\.(\d+)", asked)
        first_untried = int(bound[1]), int(bound[2])
        installed = tuple(int(part) for part in version("ray").split(".")[:2])
        assert installed < first_untried, f"{extra}: run the suite, then raise the bound"
