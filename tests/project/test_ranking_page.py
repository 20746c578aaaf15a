"""docs/ranking.md: its code runs and prints what it says."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ranking.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)


def run(block):
    """What a block prints, and the names it leaves."""
    names = {"__name__": "__main__"}
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(block, PAGE.name, "exec"), names)
    return printed.getvalue(), names


def test_the_blocks_run_and_say_what_they_should():
    scoring, blending = BLOCKS
    printed, names = run(scoring)
    found = names["found"]
    assert f"{found.model.ndcg} {found.popularity.ndcg}\n{found.who}\n" in printed
    printed, names = run(blending)
    best = [one.item for one in names["blended"](1)]
    assert printed == f"{best}\n" and len(best) == 10
    # No weight is the model's own order; all weight is popularity.
    own = [one.item for one in names["model"].recommend(1)]
    assert [one.item for one in names["blended"](1, weight=0.0)] == own != best
    counts = [names["counts"][one.item] for one in names["blended"](1, weight=1e6)]
    assert counts == sorted(counts, reverse=True)
