"""The pictures of `diagnose --plots`: what is drawn, what is left out, that nothing runs off."""

import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from bayesmf import canvas, plots
from bayesmf.calibration import Calibrator
from bayesmf.errors import InputError


@pytest.fixture(scope="module")
def calibration():
    rng = np.random.default_rng(0)
    y, mu, var = rng.normal(size=900), np.zeros((2, 900)), np.full((2, 900), 0.4)
    calibrator = Calibrator(rng.integers(0, 2000, 900), rng.integers(1000, 90_000, 900))
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
    """Draws a picture and gives the figure, once its file is a PNG and its text stays inside."""
    figures = []

    def save(figure, path):
        figures.append(figure)
        return written(figure, path)

    written = canvas.save
    monkeypatch.setattr(canvas, "save", save)

    def draw(picture, *args):
        path = picture(*args, tmp_path / "picture.png")
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        assert [p.name for p in tmp_path.iterdir()] == ["picture.png"]  # no leftovers
        figure = figures.pop()
        check_text(figure)
        return figure

    return draw


def check_text(figure):
    """Titles and labels stay in the figure, titles do not touch, every axis is labelled."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    whole = figure.bbox
    for ax in figure.axes:
        box = ax.get_tightbbox(renderer)
        assert box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1, ax.get_title(loc="left")
        assert box.y0 >= whole.y0 - 1 and box.y1 <= whole.y1 + 1, ax.get_title(loc="left")
    for legend in figure.legends:
        box = legend.get_window_extent(renderer)
        assert box.x0 >= whole.x0 and box.x1 <= whole.x1
    titles = [ax._left_title.get_window_extent(renderer) for ax in figure.axes]
    for k, one in enumerate(titles):
        assert not any(one.overlaps(other) for other in titles[k + 1 :])
    assert all(ax.get_title(loc="left") for ax in figure.axes)
    rows = {ax.get_subplotspec().rowspan.start for ax in figure.axes}
    for ax in figure.axes:
        place = ax.get_subplotspec()
        assert ax.get_xlabel() or place.rowspan.start < max(rows)
        assert ax.get_ylabel() or place.colspan.start > 0


def lines(ax):
    return {line.get_label(): np.column_stack(line.get_data()) for line in ax.get_lines()}


def test_reliability(drawn, calibration):
    figure = drawn(plots.reliability, calibration)
    shown = lines(figure.axes[0])["900 test ratings"]
    np.testing.assert_allclose(shown[:, 0], calibration.levels)
    np.testing.assert_allclose(shown[:, 1], 100 * np.array(calibration.observed))
    for group in calibration.groups:
        column = 1 if group.side == "user" else 2
        shown = lines(figure.axes[column])[group.span][:, 1]
        np.testing.assert_allclose(shown, 100 * np.array(group.observed))
        gaps = [line.get_ydata() for line in figure.axes[3 + column].get_lines()[1:]]
        want = 100 * np.array(group.observed) - np.array(calibration.levels)
        assert any(np.allclose(gap, want) for gap in gaps)
    worst = max((g for g in calibration.gaps() if not g.group), key=lambda g: abs(g.points))
    assert f"{worst.points:+.1f} points" in figure.axes[0].get_title(loc="left")


def test_pit(drawn, calibration):
    (ax,) = drawn(plots.pit, calibration).axes
    assert [bar.get_height() for bar in ax.patches] == list(calibration.pit)
    levels = sorted(line.get_ydata()[0] for line in ax.get_lines())
    error = np.sqrt(900 / 20 * 19 / 20)
    np.testing.assert_allclose(levels, [45 - 3 * error, 45, 45 + 3 * error])
    outside = np.sum(np.abs(np.array(calibration.pit) - 45) > 3 * error)
    assert outside > 0
    assert f"{outside} of 20 bins" in ax.get_title(loc="left")


@pytest.mark.parametrize(("chains", "draws", "factors"), [(1, 2, 1), (9, 300, 40)])
def test_traces(drawn, chains, draws, factors):
    told = quantities(chains, draws, factors)
    figure = drawn(plots.traces, told)
    assert len(figure.axes) == 6
    for ax in figure.axes:
        assert len(ax.get_lines()) == chains
    for chain, line in enumerate(figure.axes[0].get_lines()):
        np.testing.assert_array_equal(line.get_ydata(), told["tau"][chain])
    styles = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()}
    assert len(styles) == chains


def test_the_worst_prediction_is_shown(drawn):
    told = quantities(2, 50)
    told["prediction"][1, :, 7] += 5.0
    figure = drawn(plots.traces, told)
    worst = figure.axes[3]
    assert worst.get_title(loc="left").startswith("Worst of 20 predictions\nR-hat ")
    np.testing.assert_array_equal(worst.get_lines()[1].get_ydata(), told["prediction"][1, :, 7])


@pytest.mark.parametrize("chains", [1, 2, 9])
def test_rmse(drawn, chains):
    events = history(chains, 20)
    (ax,) = drawn(plots.rmse, events).axes
    shown = lines(ax)
    for chain in range(chains):
        mine = [e for e in events if e["chain"] == chain]
        label = f"training, chain {chain + 1}" if chains > 1 else "training"
        want = [(e["seconds"], e["train_rmse"]) for e in mine]
        np.testing.assert_array_equal(shown[label], want)
    kept = [(e["seconds"], e["rmse_all_chains"]) for e in events if e["draws"]]
    np.testing.assert_array_equal(shown["validation, average of draws"], sorted(kept))
    assert "validation at 0.8500" in ax.get_title(loc="left")


def test_rmse_of_one_state_and_of_training_alone(drawn):
    """SGD averages nothing, and says so; without a validation set there is nothing to follow."""
    shown = lines(drawn(plots.rmse, history(1, 20, draws=False)).axes[0])
    assert set(shown) == {"training", "validation, current state"}
    (ax,) = drawn(plots.rmse, history(1, 1, followed=False)).axes
    assert set(lines(ax)) == {"training"}


def test_draw_says_what_is_missing(tmp_path, calibration):
    paths, missing = plots.draw(tmp_path, quantities(2, 9), history(2, 9), calibration)
    assert [path.name for path in paths] == list(plots.NAMES)
    assert {path.name for path in tmp_path.iterdir()} == set(plots.NAMES)
    assert missing == []
    paths, missing = plots.draw(tmp_path, quantities(1, 1), [])
    assert paths == []
    assert [sentence.split()[0] for sentence in missing] == ["traces.png", "rmse.png"]


def test_the_users_settings_are_left_alone(tmp_path, calibration):
    import matplotlib

    before = dict(matplotlib.rcParams)
    plots.pit(calibration, tmp_path / "p.png")
    assert dict(matplotlib.rcParams) == before


def test_a_picture_that_cannot_be_written(tmp_path, calibration):
    with pytest.raises(InputError, match=r"none/p\.png cannot be written"):
        plots.pit(calibration, tmp_path / "none" / "p.png")


def test_without_matplotlib(monkeypatch):
    plots.check_matplotlib()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r'pip install "bayesmf\[plots\]"'):
        plots.check_matplotlib()
