"""Pictures of the page are taken by one command."""

import struct
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")
from bayesmf.demo import DemoSizes
from benchmarks.serving import screenshots
from browsing import NOT_LOOKED_AT, chromium

DRAWN = Path(__file__).resolve().parents[2] / "docs" / "figures"


@pytest.mark.skipif(chromium() is None, reason=f"{NOT_LOOKED_AT}: screenshots, without a Chromium")
def test_pictures_are_taken(tmp_path, capsys):
    screenshots.main(["--out", str(tmp_path / "new")], DemoSizes(users=60, items=60, ratings=1500))
    taken = sorted((tmp_path / "new").iterdir())
    names = [path.name for path in taken]
    assert {path.name for path in DRAWN.glob("page-*.png")} <= set(names)
    told = capsys.readouterr().out
    for path in taken:
        assert path.name in told
        start = path.read_bytes()[:24]
        assert start[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">2I", start[16:24])[0] in (1440, 780)


def test_pictures_in_the_documentation_are_small():
    sizes = {path.name: path.stat().st_size for path in DRAWN.glob("page-*.png")}
    assert len(sizes) >= 2
    assert max(sizes.values()) < 300_000


def test_without_a_browser(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(screenshots, "chromium", lambda: None)
    assert screenshots.main(["--out", str(tmp_path)]) == 2
    assert "there is no Chromium" in capsys.readouterr().err
