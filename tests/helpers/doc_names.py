"""Names that a page of the documentation gives, looked up in the code.

`unresolved(text)` has every name that looks like ours and is none of ours: paths of files, dotted
names, classes, functions and their arguments, options of commands, targets of make, test files.
Single words in backticks must occur somewhere in the source, as a name or as a string.
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

# What only looks like ours: other programs' classes and settings, files that are made, and prose.
ALLOWED = {
    "AdaptiveNoise", "SampledNoise",  # SMURFF
    "RayJob", "KillMode", "CFLAGS", "NUMBA_CACHE_DIR",  # KubeRay, systemd, compilers
    "BAYESMF_RATINGS",  # what a notebook is told by
    "implicitPrefs", "regParam", "n_iter", "n_jobs",  # Spark, myFM, scikit-learn
    "BiasedMFScorer", "exclude_unknowns",  # LensKit, Cornac
    "ann",  # somebody who rates
    "users", "items", "ratings", "path",  # what stands for an argument
    "CyclicalSGLD", "cyclical",  # the sampler that CONTRIBUTING.md adds
    "S", "R", "C", "a_i", "b_j", "timeout", "dev", "arviz", "docs", "dist", "__pycache__",
    "folder", "vector",  # a path, and the type of pgvector
}  # fmt: skip
# Objects that pages call by a plain name, and what they are.
OBJECTS = {
    "model": "BayesianMF", "ratings": "Ratings", "train": "Ratings", "test": "Ratings",
    "scores": "Scores", "lists": "Recommendations", "best": "RecommendationList",
    "ours": "BayesianMFRecommender",
}  # fmt: skip
OTHER_PACKAGES = {"duckdb", "faiss", "lenskit", "cornac", "mlflow", "optuna"}
OUTSIDE = ("benchmarks.", "experiments.")  # packages beside the library
OTHERS = ("ray ", "pip ", "uv ", "ray.", "ray_", "git ")
FILES = r"\.(?:py|md|ipynb|png|yaml|toml|txt|cff)"


def unresolved(text, folder=ROOT / "docs"):
    """Names in a page of a folder that do not resolve, each as it stands there."""
    yield from _paths(text, folder)
    yield from _tests(text)
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    # An entry of a table is no program.
    trees = [ast.parse(block if block[0] != " " else f"{{{block}}}") for block in blocks]
    theirs = _of_other_tools(trees)
    for tree in trees:
        yield from _in_code(tree, strict=False, calls=not theirs)
    fenced = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)).splitlines()
    for line in [*re.findall(r"^    \$? ?(.*)$", text, re.M), *fenced]:
        yield from _command(line)
    prose = re.sub(r"^```.*?^```$|^    [^\n]*$", "", text, flags=re.M | re.S)
    for span in re.findall(r"`([^`]+)`", prose):
        yield from _span(" ".join(span.split()), theirs)


def _of_other_tools(trees):
    """Names in the code of a page that uses another tool: that they are right, running it shows."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = [
        name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", None), *(alias.name for alias in node.names))
    ]
    if not any(name and name.split(".")[0] in OTHER_PACKAGES for name in imported):
        return set()
    fields = [value for node in nodes for _, value in ast.iter_fields(node)]
    return {value for value in fields if isinstance(value, str)}


def _span(span, theirs=frozenset()):
    """Names in one piece of text in backticks."""
    if span.lower().startswith(OTHERS) or re.search(rf"^[./]|[/*]|^\w+: |{FILES}$", span):
        return  # other programs; commit messages; files, which are looked up elsewhere
    if re.match(r"(bayesmf|python|make) \w|python -m|-|\w+ --?\w", span):
        yield from _command(span)
        return
    setting = re.fullmatch(r"(\w+)=(.*)", span)
    if setting and setting[1] not in ALLOWED | theirs and not span.isupper():
        if setting[1] not in public_arguments() and not setting[1].startswith("RAY_"):
            yield span
        span = setting[2]
    try:
        tree = ast.parse(span.strip(), mode="eval")
    except SyntaxError:
        return
    if any(found not in theirs for found in _in_code(tree, strict=True)):
        yield setting[0] if setting else span


def _paths(text, folder):
    for path in re.findall(rf"(?<![\w/:.<-])((?:[\w.-]+/)+[\w.-]+{FILES})\b", text):
        homes = (folder, ROOT, SOURCE, ROOT / "docs", ROOT / "examples")
        if not any((home / path).exists() for home in homes):
            yield path
    for file in re.findall(r"`(\w+\.(?:toml|txt|md))`", text):
        if not any((home / file).exists() for home in (ROOT, ROOT / "docs")):
            yield file


def _tests(text):
    for name in re.findall(r"(?<![/\w])(test_\w+)(?!\.|\w|=)", text):
        if name not in test_names():
            yield name


def _command(line):
    """Commands, their options, modules of benchmarks and targets of make that a line names."""
    words = line.split()
    if words[:1] == ["make"] and len(words) > 1 and words[1] not in make_targets():
        yield line
    if words[:3] == ["python", "-m", "benchmarks"]:
        if len(words) > 3 and words[3] not in benchmark_names():
            yield f"benchmarks {words[3]}"
        options = bench_options()
    elif words[:2] == ["python", "-m"] and words[2].startswith(OUTSIDE):
        path = ROOT.joinpath(*words[2].split("."))
        if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists():
            yield words[2]
        options = bench_options()
    elif match := re.search(r"(?:^|=\w+ )bayesmf(?:$| (\w+))", line):
        if match[1] and match[1] not in command_options():
            yield f"bayesmf {match[1]}"
            return
        options = command_options()[match[1] or "fit"]
    elif words and words[0] in command_options():
        options = command_options()[words[0]]
    elif line.startswith("-"):
        options = set().union(*command_options().values(), bench_options(), {"--version"})
        options |= {"--system-config"}  # of `ray start`
    else:
        return
    for option in re.findall(r"(?<![\w-])(--[a-z][\w-]*)", line.split("#")[0]):
        if option not in options and option != "--cycle":  # of the sampler in CONTRIBUTING.md
            yield option


def _in_code(tree, strict, calls=True):
    """Names in parsed code; `strict` where a reader sees a name and not a whole program.

    `calls` is whether functions are ours, so that their arguments can be looked up.
    """
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bayesmf"):
            yield from _imported(node)
        if isinstance(node, ast.Call) and calls:
            yield from _call(node, strict)
        if not strict:
            continue
        if isinstance(node, ast.Attribute):
            inner.update(id(below) for below in ast.walk(node) if below is not node)
            if id(node) not in inner and not _dotted(ast.unparse(node)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Name) and id(node) not in inner:
            if node.id in ALLOWED:
                continue
            known = names().defined if node.id[:1].isupper() else names().known
            if node.id not in known and not (SOURCE / node.id).is_dir():
                yield node.id
        elif isinstance(node, ast.Constant):
            word = node.value if isinstance(node.value, str) else ""
            if word.isidentifier() and word not in names().strings | ALLOWED:
                yield word


def _imported(node):
    """What is imported is there; in the source, where the tool it is for is not installed."""
    try:
        module = importlib.import_module(node.module)
        yield from (alias.name for alias in node.names if not hasattr(module, alias.name))
    except (ModuleNotFoundError, bayesmf.InputError) as error:
        if str(getattr(error, "name", "")).startswith("bayesmf"):
            yield node.module
            return
        source = SOURCE.joinpath(*node.module.split(".")[1:]).with_suffix(".py").read_text("utf-8")
        defined = {getattr(made, "name", None) for made in ast.parse(source).body}
        yield from (alias.name for alias in node.names if alias.name not in defined)


def _call(node, strict):
    """The function is one of ours, and has the arguments that are given by name."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if name in ALLOWED or ast.unparse(node.func).split(".")[0] in OTHER_PACKAGES:
        return
    given = [word.arg for word in node.keywords if word.arg]
    found = getattr(bayesmf, name, None) if name in bayesmf.__all__ else None
    if inspect.isclass(found):
        taken = set(inspect.signature(found).parameters)
        yield from (f"{name}({word}=)" for word in given if word not in taken)
    elif name in names().functions:
        taken = names().functions[name]
        yield from (f"{name}({word}=)" for word in given if word not in taken and "**" not in taken)
    elif strict and name not in names().defined | set(dir(builtins)):
        yield f"{name}()"


def _dotted(name):
    """Whether `room.module.name`, `Class.attribute` or `model.attribute` is there."""
    parts = re.sub(r"\[.*?\]|\(.*?\)", "", name).split(".")
    if parts[0] == "bayesmf":
        parts = parts[1:]
    if parts[0] in OTHER_PACKAGES:
        return True
    if name.startswith((*OUTSIDE, "paper.")):
        return _module(parts)
    if parts[0] in OBJECTS and not (SOURCE / parts[0] / f"{parts[1]}.py").exists():
        return parts[1] in members(OBJECTS[parts[0]])
    if (SOURCE / parts[0]).is_dir() or (SOURCE / f"{parts[0]}.py").exists():
        return _module(parts)
    return parts[0] in names().members and parts[1] in members(parts[0])


def _module(parts):
    root = () if parts[0] in ("benchmarks", "experiments") else ("bayesmf",)
    root = ("experiments",) if parts[0] == "paper" else root
    found = importlib.import_module("bayesmf")
    for k, part in enumerate(parts):
        try:
            found = importlib.import_module(".".join((*root, *parts[: k + 1])))
        except ModuleNotFoundError:
            if not hasattr(found, part):
                return part in getattr(found, "__annotations__", {})
            found = getattr(found, part)
    return True


class Names:
    """Every name in the source: what is defined, what arguments are called, what strings say."""

    def __init__(self):
        self.defined, self.arguments, self.strings, self.known = set(), set(), set(), set()
        self.functions, self.members, self.bases = {}, {}, {}
        for path in (*SOURCE.rglob("*.py"), *(ROOT / "experiments").rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                self._take(node)
        self.known |= self.defined | self.arguments | self.strings

    def _take(self, node):
        if isinstance(node, ast.FunctionDef):
            args = node.args
            every = {arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
            self.arguments |= every
            self.functions.setdefault(node.name, set()).update(every, {"**"} if args.kwarg else ())
            self.defined.add(node.name)
        elif isinstance(node, ast.ClassDef):
            self.defined.add(node.name)
            self.bases.setdefault(node.name, set()).update(map(ast.unparse, node.bases))
            inside = self.members.setdefault(node.name, set())
            for below in ast.walk(node):
                if isinstance(below, ast.FunctionDef):
                    inside.add(below.name)
                elif isinstance(below, ast.Attribute) and ast.unparse(below.value) == "self":
                    inside.add(below.attr)
                elif isinstance(below, ast.AnnAssign | ast.Assign):
                    inside.update(n.id for n in ast.walk(below) if isinstance(n, ast.Name))
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (n for target in targets for n in ast.walk(target)):
                if isinstance(name, ast.Name):
                    self.defined.add(name.id)
                    self.arguments |= {name.id} if isinstance(node, ast.AnnAssign) else set()
                elif isinstance(name, ast.Attribute):
                    self.known.add(name.attr)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[\w-]+", str(node.value)):
            self.strings.add(node.value)


@cache
def names():
    return Names()


@cache
def members(name):
    """Methods and attributes of a class and of those it stands on."""
    found = set(names().members.get(name, ()))
    return found.union(*(members(base) for base in names().bases.get(name, ())))


@cache
def public_arguments():
    """What users can set: arguments of public classes, of their methods, of functions."""
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
def test_names():
    """Test files without their ending, and test functions."""
    files = [
        path
        for folder in ("tests", "benchmarks", "experiments")
        for path in (ROOT / folder).rglob("*.py")
    ]
    functions = re.findall(r"def (test_\w+)", "\n".join(f.read_text("utf-8") for f in files))
    return {path.stem for path in files} | set(functions)


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
