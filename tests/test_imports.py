"""Imports follow docs/design.md; `import bayesmf` is quick and drags nothing heavy along."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bayesmf

ROOT = Path(bayesmf.__file__).parent
FREE = {
    "errors", "checks", "ids", "unknown", "ratings", "params", "keys", "compiling", "wording",
    "forks",
}  # fmt: skip
# Who may import whom, beyond FREE. Readers of ratings are one family.
ALLOWED = {
    "errors": set(),
    "wording": set(),
    "checks": set(),
    "compiling": set(),
    "keys": {"vectors"},
    "series": {"foreign"},
    "forks": set(),
    "string_kernels": set(),
    "strings": {"parallel", "string_kernels"},
    "plain": {"series", "strings"},
    "unthreaded": {"plain", "series", "strings"},
    "ids": {"plain", "series", "strings"},
    "unknown": {"strings"},
    "params": set(),
    "naming": set(),
    "cells": {"foreign", "series", "unthreaded"},
    "files": {"foreign"},
    "text": {"files"},
    "positions": {"cells", "naming"},
    "layouts": {"files", "naming", "positions", "text"},
    "delimited": {"cells", "files", "layouts", "naming", "series", "text"},
    "readers": {"cells", "delimited", "files", "naming", "text"},
    "frames": {"foreign", "naming"},
    "tables": {"cells", "foreign", "frames", "naming", "positions", "readers", "series"},
    "formats": {"cells", "delimited", "files", "naming", "readers", "series", "text"},
    "repeats": set(),
    "ratings": {"tabular", "splitting", "formats", "places", "repeats", "replacing", "tables"},
    "row_lists": set(),
    "places": set(),
    "foreign": set(),
    "replacing": {"exchange", "foreign", "places"},
    "packed_parts": {"contents", "row_lists"},
    "packed": {
        "folders", "manifests", "packed_parts", "places", "row_lists", "storage", "verifying",
    },
    "streams": {"cells", "delimited", "files", "formats", "layouts", "naming", "text"},
    "journal": {"exchange", "folders", "places"},
    "written": {"folders"},
    "pack_values": {"row_lists"},
    "runs": {"written", "row_lists", "tables"},
    "pack_steps": {
        "folders", "foreign", "journal", "manifests", "npy", "pack_values", "repeats", "row_lists",
        "runs", "storage", "streams", "written",
    },
    "packing": {
        "exchange", "folders", "journal", "manifests", "pack_steps", "packed", "places", "repeats",
        "streams", "tables",
    },
    "truth": {"files", "npy", "replacing"},
    "planting": set(),
    "synthetic_chunks": {"planting", "synthetic"},  # synthetic for its type alone
    "synthetic_files": {"replacing", "synthetic_chunks"},
    "synthetic": {"planting", "synthetic_chunks", "synthetic_files", "truth"},
    "oracle_kernels": set(),
    "oracle": {"oracle_kernels", "truth"},
    "dealing": set(),
    "noise": {"vectors"},
    "batch_kernels": {"gathering", "noise", "row_lists", "vectors"},
    "kernels": {"batch_kernels", "vectors"},
    "answer_kernels": {"kernels"},
    "user_kernels": {"vectors"},
    "parallel": set(),
    "gibbs": {"gathering", "row_lists"},
    "row_draws": {"batches", "columns", "gathering", "gibbs"},
    "mixture": set(),
    "matrices": {"vectors"},
    "priors": {"kernels", "matrices"},
    "grid": set(),
    "vectors": set(),
    "gathering": {"row_lists", "vectors"},
    "columns": {"gathering", "vectors"},
    "batches": {"dealing", "grid", "row_lists"},
    "correctors": {"batches"},
    "schedules": set(),
    "clock_kernels": {"batch_kernels", "vectors"},
    "rules": {"grid", "schedules"},
    "clocks": {"rules", "schedules"},
    "samplers": {"clocks", "grid", "rules", "schedules"},
    "worker": {
        "batch_kernels", "batches", "clock_kernels", "gathering", "kernels", "row_draws",
    },
    "phases": {"worker"},
    "sweeps": {"batches", "gathering", "phases", "samplers", "sources", "worker"},
    "block_rounds": {"batches", "correctors", "grid", "phases", "rules", "worker"},
    "clock_rounds": {
        "batches", "block_rounds", "clocks", "gathering", "phases", "rules", "sources", "worker",
    },
    "rounds": {
        "batches", "block_rounds", "clock_rounds", "clocks", "phases", "rules", "samplers",
        "schedules", "sources", "sweeps", "worker",
    },
    "sources": {"batches", "grid", "packed", "row_lists", "worker"},
    "engines": {"batches", "engines", "gathering", "worker"},
    "callbacks": {"progress"},
    "draws": set(),
    "monitor": {"batches", "callbacks", "kernels", "phases", "seen"},
    "keeping": {"chain", "monitor", "rules", "schedules"},
    "scales": {"priors"},
    "chain": {
        "callbacks", "draws", "keeping", "monitor", "phases", "priors", "rules", "samplers",
        "scales", "schedules", "worker",
    },
    "tuning": {"chain", "convergence", "diagnostics"},
    "server": {
        "batches", "callbacks", "chain", "checkpoints", "convergence", "draws", "engines",
        "keeping", "monitor", "rounds", "saving", "tuning", "worker",
    },
    "snapshots": {"callbacks", "chain", "monitor", "phases"},
    "identity": {"batches", "chain", "monitor", "samplers"},
    "snapshot_parts": {"chain", "contents", "model_parts"},
    "checkpoints": {
        "draws", "exchange", "folders", "identity", "journal", "places", "snapshot_parts",
        "snapshots", "storage", "verifying",
    },
    "interruption": set(),
    "saving": {
        "batches", "chain", "checkpoints", "identity", "interruption", "monitor",
        "snapshot_parts", "snapshots",
    },
    "moments": {"answer_kernels", "draws", "parallel", "seen"},
    "posterior": {"answer_kernels", "draws", "mixture", "moments", "parallel", "seen"},
    "one_user": {"parallel", "posterior", "user_kernels", "vectors"},
    "ranking": {"answer_kernels", "one_user", "parallel", "posterior", "tabular"},
    "diagnostics": {"mixture", "tabular"},
    "gaps": {"diagnostics"},
    "calibration": {"diagnostics", "gaps", "mixture", "tabular"},
    "history": {"callbacks"},
    "seen": {"answer_kernels", "batches"},
    "npy": set(),
    "contents": set(),
    "folders": set(),
    "exchange": {"folders", "places"},
    "verifying": {"contents", "npy", "parallel", "places"},
    "manifests": {"folders"},
    "storage": {"contents", "exchange", "folders", "manifests", "npy", "places", "verifying"},
    "model_parts": {"contents"},
    "model_folder": {
        "draws", "fitted", "history", "model_parts", "posterior", "rules", "samplers", "seen",
        "storage", "verifying",
    },
    "recommending": {"fitted", "posterior", "questions", "ranking", "results"},
    "settings": {
        "batches", "chain", "clocks", "engines", "gibbs", "grid", "monitor", "priors", "rounds",
        "row_lists", "rules", "samplers", "server", "tuning",
    },
    "preparing": {"batches", "chain", "draws", "monitor", "packed", "samplers", "server"},
    "estimator": {
        "callbacks", "checkpoints", "engines", "habits", "learning", "looking",
        "model_folder", "predicting", "recommending", "samplers", "tables",
    },
    "looking": {
        "calibration", "canvas", "convergence", "monitor", "panels", "posterior", "scoring",
    },
    "timing": {
        "batches", "chain", "clocks", "engines", "estimator", "rounds", "samplers", "server",
        "settings",
    },
    "progress": set(),
    "tabular": set(),
    "results": {"tabular"},
    "habits": {"samplers"},
    "learning": {
        "callbacks", "chain", "checkpoints", "engines", "fitted", "interruption", "packed",
        "posterior",
        "preparing", "priors", "seen", "server", "settings", "tables",
    },
    "questions": {"learning", "packed", "seen", "unknown"},
    "convergence": set(),
    "fitted": {"habits", "parallel", "posterior", "progress", "seen", "verifying"},
    "predicting": {"fitted", "posterior", "questions", "results", "tables"},
    "scoring": {
        "calibration", "diagnostics", "fitted", "habits", "progress", "questions", "tables",
    },
    "splitting": set(),
    "canvas": {"replacing"},
    "figures": {"canvas"},
    "panels": {"calibration", "canvas", "gaps"},
    "plots": {"calibration", "canvas", "convergence", "diagnostics", "gaps", "panels"},
    "paper": {
        "callbacks", "canvas", "engines", "files", "oracle", "preparing", "progress", "replacing",
        "samplers", "schedules", "server", "settings", "storage", "synthetic", "timing",
    },
    "demo": {
        "diagnostics", "estimator", "figures", "places", "progress", "results", "samplers",
        "synthetic",
    },
}  # fmt: skip
TOP = {"cli", "__init__", "__main__"}
OUTSIDE_OF_KERNELS = {"numpy", "numba", "math", "typing", "__future__", "bayesmf"}


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, []


def _modules():
    for path in sorted(ROOT.rglob("*.py")):
        yield path, path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_imports_follow_the_arrows():
    for path, module in _modules():
        if module in TOP:
            continue
        for name, members in _imports(path):
            if name == "bayesmf":
                used = {m for m in members if (ROOT / f"{m}.py").exists()}
            elif name.startswith("bayesmf."):
                used = {name.split(".")[1]}
            else:
                continue
            extra = used - FREE - ALLOWED[module] - {module}
            assert not extra, f"{path.name} imports {extra}"


def test_kernels_import_numpy_and_numba_alone():
    for module in (
        "kernels",
        "answer_kernels",
        "string_kernels",
        "user_kernels",
        "clock_kernels",
        "gibbs",
        "columns",
        "gathering",
        "keys",
        "matrices",
    ):
        names = {name.split(".")[0] for name, _ in _imports(ROOT / f"{module}.py")}
        assert names <= OUTSIDE_OF_KERNELS


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


def test_files_stay_small():
    long = {
        path.name: n for path, _ in _modules() if (n := len(path.read_text().splitlines())) > 430
    }
    assert not long
