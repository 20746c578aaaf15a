"""Names on a page of the documentation, looked up in the code.

`unresolved(text)` yields names that look like ours and do not exist: paths of files, tests,
commands, options, targets of make, arguments, imports, and words of code in backticks. What code of
a page does is checked by running it (tests/project/test_pages.py).
"""

import ast
import builtins
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import bayesmf

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "bayesmf"
MADE = {"_build", "generated"}  # by Sphinx
PAGES = [
    *sorted(p for p in ROOT.glob("docs/**/*.md") if not MADE & {*p.relative_to(ROOT).parts}),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
]

# Names of other programs, of generated files, and stand-ins for arguments.
ALLOWED = {
    "AdaptiveNoise", "SampledNoise", "RayJob", "KillMode", "CFLAGS", "NUMBA_CACHE_DIR",
    "BAYESMF_RATINGS", "implicitPrefs", "regParam", "n_iter", "n_jobs", "BiasedMFScorer",
    "exclude_unknowns", "ann", "users", "items", "ratings", "path", "CyclicalSGLD", "cyclical", "S",
    "R", "C", "a_i", "b_j", "timeout", "dev", "arviz", "docs", "dist", "prefer_stored",
    "__pycache__", "folder", "vector", "U", "V", "test",
}  # fmt: skip
OTHER_PACKAGES = {"duckdb", "faiss", "lenskit", "cornac", "mlflow", "optuna"}
OUTSIDE = ("benchmarks.", "experiments.")  # packages beside the library
OTHERS = ("ray ", "pip ", "uv ", "ray.", "ray_", "git ")
FILES = r"\.(?:py|md|ipynb|png|yaml|toml|txt|cff)"


def unresolved(text, folder=ROOT / "docs"):
    """Names in a page of a folder that do not resolve."""
    yield from _paths(text, folder)
    yield from (n for n in re.findall(r"(?<![/\w])(test_\w+)(?!\.|\w|=)", text) if n not in tests())
    for file, name in re.findall(r"\b(test_\w+)\.py: (test_\w+)", text):
        if name not in tests_of(file):
            yield f"{file}.py: {name}"
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    code = "".join(block if block[0] != " " else f"{{{block}}}\n" for block in blocks)
    theirs = OTHER_PACKAGES & _words("".join(re.findall(r"^(?:from|import) .*$", code, re.M)))
    for node in ast.walk(ast.parse(code)):
        yield from _import_or_call(node)
    fenced = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)).splitlines()
    for line in [*re.findall(r"^    \$? ?(.*)$", text, re.M), *fenced]:
        yield from _command(line)
    prose = re.sub(r"^```.*?^```$|^    [^\n]*$", "", text, flags=re.M | re.S)
    for span in re.findall(r"`([^`]+)`", prose):
        yield from _span(" ".join(span.split()), _words(code) if theirs else set())


def _words(text):
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _paths(text, folder):
    for path in re.findall(rf"(?<![\w/:.<-])((?:[\w.-]+/)+[\w.-]+{FILES})\b", text):
        homes = (folder, ROOT, SOURCE, ROOT / "docs", ROOT / "examples")
        if not any((home / path).exists() for home in homes):
            yield path
    for file in re.findall(r"`(\w+\.(?:toml|txt|md))`", text):
        if not any((home / file).exists() for home in (ROOT, ROOT / "docs")):
            yield file


def _import_or_call(node):
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bayesmf"):
        try:
            module = importlib.import_module(node.module)
        except (ModuleNotFoundError, bayesmf.InputError) as error:
            if str(getattr(error, "name", "")).startswith("bayesmf"):
                yield node.module
            return  # of a tool that is not installed
        yield from (alias.name for alias in node.names if not hasattr(module, alias.name))
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in bayesmf.__all__:
        taken = inspect.signature(getattr(bayesmf, ast.unparse(node.func))).parameters
        yield from (f"{word.arg}=" for word in node.keywords if word.arg and word.arg not in taken)


def _span(span, theirs):
    """Names in one piece of text in backticks."""
    if span.lower().startswith(OTHERS) or re.search(rf"^[./]|[/*]|^\w+: |{FILES}$", span):
        return  # other programs, commit messages; files are checked elsewhere
    if re.match(r"(bayesmf|python|make) \w|python -m|-|\w+ --?\w", span):
        yield from _command(span)
        return
    try:
        tree = ast.parse(re.sub(r"^(\w+)=(.*)$", r"f(\1=\2)", span.strip()), mode="eval")
    except SyntaxError:
        return
    known = words() | ALLOWED | theirs | {"f"}
    arguments = public_arguments() | ALLOWED | {w for w in words() if w.startswith("RAY_")}
    for node in ast.walk(tree):
        yield from _import_or_call(node)
        if isinstance(node, ast.keyword) and node.arg not in arguments | theirs:
            yield span
        name = getattr(node, "id", getattr(node, "attr", getattr(node, "value", "")))
        if isinstance(name, str) and name.isidentifier() and name not in known:
            yield span


def _command(line):
    """Commands, their options, benchmarks and targets of make in a line."""
    parts = line.split()
    if parts[:1] == ["make"] and len(parts) > 1 and parts[1] not in make_targets():
        yield line
    if parts[:3] == ["python", "-m", "benchmarks"]:
        if len(parts) > 3 and parts[3] not in benchmark_names():
            yield f"benchmarks {parts[3]}"
        options = bench_options()
    elif parts[:2] == ["python", "-m"] and parts[2].startswith(OUTSIDE):
        path = ROOT.joinpath(*parts[2].split("."))
        if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists():
            yield parts[2]
        options = bench_options()
    elif match := re.search(r"(?:^|=\w+ )bayesmf(?:$| (\w+))", line):
        if match[1] and match[1] not in command_options():
            yield f"bayesmf {match[1]}"
            return
        options = command_options()[match[1] or "fit"]
    elif parts and parts[0] in command_options():
        options = command_options()[parts[0]]
    elif line.startswith("-"):
        options = set().union(*command_options().values(), bench_options(), {"--version"})
        options |= {"--system-config"}  # of `ray start`
    else:
        return
    for option in re.findall(r"(?<![\w-])(--[a-z][\w-]*)", line.split("#")[0]):
        if option not in options and option != "--cycle":  # of the sampler in CONTRIBUTING.md
            yield option


@cache
def words():
    """Every name and every word of a string in the source, of the library and beside it."""
    folders = (SOURCE, ROOT / "experiments", ROOT / "benchmarks")
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    code = "\n".join(re.sub(r'""".*?"""', "", p.read_text("utf-8"), flags=re.S) for p in paths)
    return (
        _words(code)
        | {path.stem for path in paths}
        | {*dir(builtins), *OTHER_PACKAGES}
        | {path.name for path in SOURCE.iterdir()}
    )


@cache
def public_arguments():
    """Arguments of public classes, of their methods, of functions."""
    found = set()
    for public in (getattr(bayesmf, name) for name in bayesmf.__all__):
        methods = [m for _, m in inspect.getmembers(public, callable) if inspect.isroutine(m)]
        for one in (public, *methods):
            try:
                found.update(inspect.signature(one).parameters)
            except ValueError:
                continue  # of C, and not ours
    return found


@cache
def tests():
    """Test files without their ending, and test functions."""
    folders = (ROOT / "tests", ROOT / "benchmarks", ROOT / "experiments")
    files = {path.stem for folder in folders for path in folder.rglob("*.py")}
    return files.union(*map(tests_of, files))


@cache
def tests_of(file):
    """Test functions of a file, by its name without ending."""
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob(f"{file}.py")]
    return set(re.findall(r"^def (test_\w+)", "\n".join(texts), re.M))


@cache
def make_targets():
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.M))


@cache
def command_options():
    """Options of each command, from its parser."""
    from bayesmf.cli import COMMANDS

    found = {}
    for name in COMMANDS:
        parser = importlib.import_module(f"bayesmf.cli.{name}").parser()
        found[name] = {option for action in parser._actions for option in action.option_strings}
        found[name].add("--version")
    return found


@cache
def benchmark_names():
    from benchmarks.__main__ import find

    return find()


@cache
def bench_options():
    folders = (ROOT / "benchmarks", ROOT / "experiments")
    texts = [path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py")]
    return set(re.findall(r"[\"'](--[a-z][\w-]*)[\"']", "\n".join(texts)))
