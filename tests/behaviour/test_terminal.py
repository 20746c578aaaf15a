"""Every command in a real terminal of several widths: what is drawn is read from the screen.

What begins with an empty cache of compiled code is run by a program of its own; the rest is forked
from one that has imported everything, and finds its code compiled.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bayesmf import Synthetic
from terminal import Session, bayesmf, forked

WIDTHS = (60, 80)
BAR = r"\|[^|]*\|"
PASSES = rf"(burn-in|stage \d+|sampling|learning) {BAR} pass \d+ of (at most )?\d+"
FACTS = r"(, (train )?RMSE \d\.\d{4}(, \d\d:\d\d left)?(, \d+\.\dM ratings/s)?)?"
# A whole line of a bar, nothing of it cut off.
WHOLE = re.compile(rf"{PASSES}{FACTS}")
# Not over before somebody has looked at the screen and typed, however busy the machine is.
LONG = ("--sampler", "gibbs", "--epochs", "20000")
# Bars are shown at once: tests cannot wait two seconds each time.
AT_ONCE = {"BAYESMF_PROGRESS_AFTER": "0"}


def fit(out: str, *more: object) -> list[object]:
    return ["fit", "train.csv", "--out", out, "--test", "test.csv", "--factors", "3", *more]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    train, test = Synthetic(300, 200, 8000, random_state=1).ratings().split(0.1)
    train.write(folder / "train.csv")
    test.write(folder / "test.csv")
    Synthetic(3000, 2000, 200_000, random_state=2).ratings().write(folder / "many.csv")
    found = forked(*fit("model", "--validation", "test.csv"), columns=80, env={}, cwd=folder)
    assert found.status == 0, found.text
    return folder


def bars(found: Session) -> list[str]:
    return [line for line in found.lines if "|" in line and "pass " in line]


def test_the_first_fit_of_all(place: Path) -> None:
    """From an empty cache, with the line's own patience."""
    env = {"NUMBA_CACHE_DIR": str(place / "cache")}
    found = bayesmf(*fit("first", "--validation", "test.csv"), columns=80, env=env, cwd=place)
    assert found.status == 0 and (place / "first").is_file()
    assert "compiling ..." in found.lines
    assert re.search(r"^compiling +\d+ s; later runs take less$", found.text, re.M)
    assert re.search(r"^converged +(Converged|Not converged): ", found.text, re.M)
    # Nothing is left of what was drawn on the way.
    assert "compiling ..." not in found.text and "|" not in found.text


@pytest.mark.parametrize("columns", WIDTHS)
def test_fit(place: Path, columns: int) -> None:
    """Long enough to be looked at beyond its first stage: where the bar once ended the run."""
    args = fit(f"m{columns}", "--target", "accurate", "--max-seconds", "1.5")
    found = forked(*args, columns=columns, env=AT_ONCE, cwd=place)
    assert found.status == 0
    drawn = bars(found)
    assert drawn and all(WHOLE.fullmatch(line) for line in drawn), drawn
    stages = {int(m[1]) for line in drawn if (m := re.match(r"stage (\d+) ", line))}
    assert max(stages) > 1
    assert any("of at most 500" in line for line in drawn)
    assert not any("left" in line for line in drawn)  # of a growing run nobody knows it
    assert re.search(r"^saved ", found.text, re.M) and "|" not in found.text
    assert any(" RMSE " in line for line in drawn)
    if columns >= 80:
        assert any("M ratings/s" in line for line in drawn)


def test_a_run_of_known_length_tells_the_time_left(place: Path) -> None:
    args = fit("long", "--sampler", "gibbs", "--epochs", "4000", "--max-seconds", "2.5")
    found = forked(*args, columns=100, env=AT_ONCE, cwd=place)
    assert found.status == 0
    drawn = [line for line in bars(found) if "left" in line]
    assert drawn and all(WHOLE.fullmatch(line) for line in drawn), drawn
    # The clock ends it, long before 4,000 passes would: and that is what is left.
    assert all(line.split(" left")[0].endswith(("00:00", "00:01", "00:02")) for line in drawn)


COMMANDS = {
    "evaluate": "evaluate model test.csv",
    "predict": "predict model test.csv --out p.csv",
    "recommend": "recommend model 1 2 nobody -n 3",
    "recommend all": "recommend model --all --out r.csv",
    "diagnose": "diagnose model --test test.csv",
    "pack": "pack train.csv --out packed --overwrite",
    "synth": "synth --shape ml-100k --scale 0.1 --out s.csv",
    "demo": "demo --out demo",
    "help": "-h",
    "help of fit": "fit -h",
    "an error": "fit no-such-file-of-ratings.csv --out none",
}


def small_demo() -> None:
    from bayesmf import demo

    sizes = demo.DemoSizes(120, 90, 3000, 20, 20, 12)
    demo.DemoSizes = lambda: sizes  # type: ignore[assignment,misc]


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_fits_the_screen(place: Path, name: str, columns: int) -> None:
    found = forked(
        *COMMANDS[name].split(), columns=columns, env=AT_ONCE, cwd=place,
        prepare=small_demo if name == "demo" else None,
    )  # fmt: skip
    assert found.status == (2 if name == "an error" else 0), found.text
    text = " ".join(found.text.split())
    if name == "an error":  # one sentence, whole at every width
        assert text.startswith("bayesmf: error: There is no file or folder no-such-file")
    if name == "demo":
        assert "4. Ten films for" in text and " in all" in text


# -- Ctrl-C ---------------------------------------------------------------------------------------


def press(when: str) -> tuple[dict[str, int], object]:
    """Types Ctrl-C once, when a text is on the screen."""
    pressed = {"times": 0}

    def on_screen(text: str) -> bytes | None:
        if pressed["times"] == 0 and when in text:
            pressed["times"] = 1
            return b"\x03"
        return None

    return pressed, on_screen


@pytest.mark.parametrize(
    ("when", "more"),
    [
        ("compiling ...", ("--sampler", "sgd")),
        ("reading", LONG),
        ("| pass", LONG),
        ("scoring |", ("--test", "many.csv")),
    ],
)
def test_ctrl_c(place: Path, when: str, more: tuple[str, ...]) -> None:
    pressed, on_screen = press(when)
    out = f"interrupted-{when.split()[0]}"
    options = {"cwd": place, "on_screen": on_screen}
    if when == "compiling ...":
        env = {**AT_ONCE, "NUMBA_CACHE_DIR": str(place / "empty")}
        found = bayesmf(*fit(out, *more), env=env, **options)
    else:
        found = forked(*fit(out, *more), env=AT_ONCE, **options)
    assert pressed["times"] == 1
    assert found.status == 130, found.text
    # The terminal itself shows ^C where the cursor was.
    assert found.text.replace("^C", "").strip() == "bayesmf: interrupted"
    # It is saved before it is scored.
    assert (place / out).exists() == (when == "scoring |")


def test_ctrl_c_with_a_checkpoint_shows_the_command_that_resumes(place: Path) -> None:
    _, on_screen = press("| pass")
    args = fit("resumed", "--checkpoint", "run", *LONG)
    found = forked(*args, columns=60, env=AT_ONCE, on_screen=on_screen, cwd=place)
    assert found.status == 130, found.text
    told = found.text.replace("^C", "")
    assert re.search(r"resume\s+with:", told) and " \\\n      " in told
    # As the shell would take it, broken lines and all.
    command = re.split(r"resume\s+with:", told)[1] + " --max-seconds 0.5"
    again = subprocess.run(
        command.replace("bayesmf fit", f"{sys.executable} -m bayesmf fit"), shell=True, text=True,
        capture_output=True, timeout=120, cwd=place,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert (place / "resumed").is_file()


def test_more_factors_than_memory_is_a_sentence(place: Path) -> None:
    found = forked(*fit("huge"), "--factors", "100000", cwd=place)
    assert found.status == 2
    assert re.search(r"n_factors \(--factors\) of 100000 needs about [\d,]+\s+GB", found.text)
