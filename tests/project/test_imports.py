"""Imports go one way, by the order of the rooms; `import bayesmf` drags nothing heavy along."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bayesmf

ROOT = Path(bayesmf.__file__).parent
# Each may import those before it, and no other: the list of docs/design.md.
ROOMS = (
    "wording", "errors", "checks", "kernels", "process", "storage", "ids",
    "reading", "data", "packed", "synthetic", "model", "blocks", "samplers", "worker", "engines",
    "diagnostics", "chains", "checkpoints", "run", "posterior", "plots", "estimator",
    "demo", "integrations", "web", "cli",
)  # fmt: skip
# The public names and the entry point stand above all rooms.
ABOVE = {"__init__", "__main__"}
# What kernels may import that is not of their own room.
OF_KERNELS = {"numpy", "numba", "llvmlite"}


def imported(source):
    """Modules that a source names in its imports, those under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports say whence, from the root"
            if node.module != "bayesmf":
                yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room_of(path, root):
    return path.relative_to(root).parts[0].removesuffix(".py")


def violations(root):
    """Imports of a later room, as "room/module.py: bayesmf.later.module"."""
    for path in sorted(root.rglob("*.py")):
        room = room_of(path, root)
        if room in ABOVE:
            continue
        where = f"{path.relative_to(root)}"
        if room not in ROOMS:
            yield f"{where}: not in a room of the list"
            continue
        for name in imported(path.read_text()):
            parts = name.split(".")
            if parts[0] != "bayesmf":
                if room == "kernels" and parts[0] not in OF_KERNELS | set(sys.stdlib_module_names):
                    yield f"{where}: {name}"
            elif parts == ["bayesmf"]:
                yield f"{where}: {name}, which has everything"
            elif parts[1] != "__version__":
                of_kernels = room == "kernels" and parts[1] != "kernels"
                if parts[1] not in ROOMS or ROOMS.index(parts[1]) > ROOMS.index(room) or of_kernels:
                    yield f"{where}: {name}"


def test_imports_go_one_way():
    assert not list(violations(ROOT))


@pytest.mark.parametrize(
    ("module", "statement", "found"),
    [
        ("model/priors.py", "from bayesmf.chains.chain import Chain", "bayesmf.chains.chain"),
        ("kernels/keys.py", "from bayesmf.errors import InputError", "bayesmf.errors"),
        ("kernels/keys.py", "import polars", "polars"),
        ("kernels/keys.py", "import bayesmf", "which has everything"),
        ("engines/base.py", "from bayesmf.run import driver", "bayesmf.run.driver"),
        ("plots/style.py", "import bayesmf.cli.output", "bayesmf.cli.output"),
        (
            "data/ratings.py",
            "if TYPE_CHECKING:\n    from bayesmf import estimator",
            "bayesmf.estimator",
        ),
        ("loose.py", "", "not in a room"),
    ],
)
def test_a_planted_import_is_found(module, statement, found, tmp_path):
    path = tmp_path / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(statement)
    assert found in " ".join(violations(tmp_path))


def test_every_room_tells_its_subject():
    """In the first line of its `__init__.py`; and few files stand beside the rooms."""
    for folder in (path for path in ROOT.iterdir() if (path / "__init__.py").exists()):
        first = (folder / "__init__.py").read_text().splitlines()[0]
        assert first.startswith('"""') and first.endswith(('."""', ".")), folder.name
    assert len([path for path in ROOT.iterdir() if path.is_file()]) <= 12


def test_rooms_have_no_cycle_inside():
    """Modules of one room import each other one way too."""
    wanted = {}
    for path in ROOT.rglob("*.py"):
        name = ".".join(("bayesmf", *path.relative_to(ROOT).with_suffix("").parts))
        wanted[name.removesuffix(".__init__")] = set(imported(path.read_text()))
    del wanted["bayesmf"]
    graph = {name: used & wanted.keys() - {name} for name, used in wanted.items()}
    while free := {name for name, used in graph.items() if not used & graph.keys()}:
        graph = {name: used for name, used in graph.items() if name not in free}
    assert not graph


def test_import_is_quick():
    """Processor time of an import in a fresh process, beside that of numba alone.

    A ratio, because machines are shared; it is 2.3 to 2.6.
    """

    def seconds(statement):
        code = f"import time; t = time.process_time()\n{statement}\nprint(time.process_time() - t)"
        runs = [
            subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
            for _ in range(4)
        ]
        return min(map(float, runs))

    assert seconds("from bayesmf import BayesianMF, SGLD, Ratings") < 3 * seconds("import numba")


def test_public_names():
    assert sorted(bayesmf.__all__) == sorted(bayesmf._HOMES)
    for name in bayesmf.__all__:
        assert getattr(bayesmf, name).__name__ in (name, name.removeprefix("D"))
    with pytest.raises(AttributeError, match="NMF"):
        _ = bayesmf.NMF


def code_lines(source):
    """Lines of a module, without docstrings and blank lines."""
    documents = [
        node.body[0].end_lineno - node.body[0].lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)
    ]
    return sum(bool(line.strip()) for line in source.splitlines()) - sum(documents)


def test_files_stay_small():
    long = {
        path.name: n for path in ROOT.rglob("*.py") if (n := code_lines(path.read_text())) > 500
    }
    assert not long


@pytest.mark.parametrize("room", ["diagnostics", "estimator", "plots", "posterior", "web"])
def test_a_room_lists_its_modules(room):
    about = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()))
    modules = {path.stem for path in (ROOT / room).glob("*.py")} - {"__init__"}
    assert set(re.findall(r"(?m)^(\w+) {2,}\w", about)) == modules
