"""The figures of `diagnose --plots`: their data, and that text and legends fit."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from bayesmf.diagnostics.calibration import Calibrator
from bayesmf.errors import InputError
from bayesmf.plots import panels as plots
from bayesmf.plots import style as canvas
from looks import check_legends, check_text, lines


@pytest.fixture(scope="module")
def calibration():
    rng = np.random.default_rng(0)
    y, mu, var = rng.normal(size=900), np.zeros((2, 900)), np.full((2, 900), 0.4)
    counts = rng.integers(0, 2000, 900), rng.integers(1000, 90_000, 900)
    calibrator = Calibrator(*counts, rng.gamma(4.0, 0.2, 900))
    calibrator.add(y, mu[0], mu, var)
    return calibrator.result()


def quantities(chains, draws, factors=3):
    rng = np.random.default_rng(0)
    out = {"tau": rng.gamma(9.0, 0.2, (chains, draws))}
    out |= {
        name: rng.gamma(9.0, 0.2, (chains, draws, factors)) for name in ("lambda_U", "lambda_V")
    }
    return out | {"prediction": rng.normal(3.5, 0.5, (chains, draws, 20))}


def history(chains, epochs, followed=True, draws=True):
    """Events of chains that begin to keep draws half way."""
    return [
        {
            "chain": chain,
            "epoch": epoch,
            "seconds": 0.1 * epoch + 0.01 * chain,
            "train_rmse": 0.7 + 1 / epoch + chain / 100,
            "rmse": 0.9 + 1 / epoch if followed else None,
            "rmse_all_chains": 0.8 + 1 / epoch if followed else None,
            "draws": max(0, epoch - epochs // 2) if draws else 0,
        }
        for epoch in range(1, epochs + 1)
        for chain in range(chains)
    ]


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Lays a picture out, without its file, and gives the figure, once its text stays inside."""
    figures = []

    def lay_out(figure, path):
        figure.draw_without_rendering()
        figures.append(figure)
        return path

    monkeypatch.setattr(canvas, "save", lay_out)

    def draw(picture, *args, **more):
        assert picture(*args, tmp_path / "picture.png", **more) == tmp_path / "picture.png"
        figure = figures.pop()
        check_text(figure)
        check_legends(figure)
        return figure

    return draw


def test_reliability(drawn, calibration):
    figure = drawn(plots.reliability, calibration)
    shown = lines(figure.axes[0])["900 test ratings"]
    np.testing.assert_allclose(shown[:, 0], calibration.levels)
    np.testing.assert_allclose(shown[:, 1], 100 * np.array(calibration.observed))
    for group in calibration.groups:
        column = 1 + ["user", "item", "error", "std"].index(group.side)
        shown = lines(figure.axes[column])[group.span][:, 1]
        np.testing.assert_allclose(shown, 100 * np.array(group.observed))
        gaps = [line.get_ydata() for line in figure.axes[5 + column].get_lines()[1:]]
        want = 100 * np.array(group.observed) - np.array(calibration.levels)
        assert any(np.allclose(gap, want) for gap in gaps)
    assert (shown[0], shown[-1]) == (100 * group.observed[0], 100 * group.observed[-1])
    # One number: that of the verdict, ringed, in the title above all panels and in no other.
    worst = calibration.worst
    assert calibration.headline in figure.get_suptitle()
    assert f"{worst.points:+.1f} points" in figure.get_suptitle()
    rings = [lines(ax)["worst gap"] for ax in figure.axes if "worst gap" in lines(ax)]
    np.testing.assert_allclose(rings, [[[worst.level, worst.points]]])
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles[:3] == ["All ratings", "By users", "By items"]
    assert titles[3:5] == ["By users' training error", "By predicted std"]
    assert all(title.startswith("grey: ") for title in titles[5:])


@pytest.mark.parametrize("off", [-0.45, 0.04])
def test_legends_leave_room_for_curves(drawn, calibration, off):
    def moved(observed):
        return tuple(level / 100 + off for level in calibration.levels)

    groups = tuple(replace(g, observed=moved(g.observed)) for g in calibration.groups)
    drawn(plots.reliability, replace(calibration, observed=moved(()), groups=groups))


def test_pit_judges_nothing(drawn, calibration):
    figure = drawn(plots.pit, calibration)
    (ax,) = figure.axes
    assert [bar.get_height() for bar in ax.patches] == list(calibration.pit)
    levels = sorted(line.get_ydata()[0] for line in ax.get_lines())
    error = np.sqrt(900 / 20 * 19 / 20)
    np.testing.assert_allclose(levels, [45 - 4 * error, 45, 45 + 4 * error])
    assert ax.get_title(loc="left") == "PIT histogram"
    assert figure.get_supxlabel() == ""
    stars = drawn(plots.pit, replace(calibration, few_values=True))
    assert [line.get_ydata()[0] for line in stars.axes[0].get_lines()] == [45]
    assert "whole stars make bars uneven" in stars.get_supxlabel()


@pytest.mark.parametrize(("chains", "draws", "factors"), [(1, 2, 1), (9, 300, 40)])
def test_traces(drawn, chains, draws, factors):
    values = quantities(chains, draws, factors)
    values["prediction"][-1, :, 7] += 5.0  # the worst of them
    figure = drawn(plots.traces, values)
    assert len(figure.axes) == 6
    for ax in figure.axes:
        assert len(ax.get_lines()) == chains
    for chain, line in enumerate(figure.axes[0].get_lines()):
        np.testing.assert_array_equal(line.get_ydata(), values["tau"][chain])
    styles = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()}
    assert len(styles) == chains
    worst = figure.axes[3]
    assert worst.get_title(loc="left").startswith("Worst of 20 predictions")
    if chains > 1:
        last = values["prediction"][-1, :, 7]
        np.testing.assert_array_equal(worst.get_lines()[-1].get_ydata(), last)


@pytest.mark.parametrize("chains", [2, 9])
def test_rmse(drawn, chains):
    events = history(chains, 20)
    (ax,) = drawn(plots.rmse, events, validation=0.8512).axes
    shown = lines(ax)
    names = ["training, chain 1", "training, chain 2"] if chains == 2 else ["training, 9 chains"]
    assert set(names) <= set(shown)
    drawn_lines = [line.get_xydata() for line in ax.get_lines()]
    for chain in range(chains):
        want = [(e["seconds"], e["train_rmse"]) for e in events if e["chain"] == chain]
        np.testing.assert_array_equal(drawn_lines[chain], want)
    kept = [(e["seconds"], e["rmse_all_chains"]) for e in events if e["draws"]]
    np.testing.assert_array_equal(shown["validation, average of draws"], sorted(kept))
    assert "validation at 0.8512" in ax.get_title(loc="left")


def test_draw_returns_files_and_what_is_missing(tmp_path, calibration):
    paths, missing = plots.draw(tmp_path, quantities(2, 9), history(2, 9), calibration)
    assert [path.name for path in paths] == list(plots.NAMES)
    assert {path.name for path in tmp_path.iterdir()} == set(plots.NAMES)  # no leftovers
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for path in paths)
    assert missing == []
    paths, missing = plots.draw(tmp_path, quantities(1, 1), [])
    assert paths == []
    assert [sentence.split()[0] for sentence in missing] == ["traces.png", "rmse.png"]


def test_the_settings_of_matplotlib_do_not_change(tmp_path, calibration):
    import matplotlib

    before = dict(matplotlib.rcParams)
    plots.pit(calibration, tmp_path / "p.png")
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib(monkeypatch):
    plots.check_matplotlib()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install matplotlib"):
        plots.check_matplotlib()
