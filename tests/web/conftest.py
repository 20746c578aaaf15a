"""What tests of the page share: one small service and one browser for each file."""

import pytest

from browsing import HOSTILE, LONG, Watched, browser, served
from small_service import small_model, small_ratings


@pytest.fixture(scope="module")
def page_model():
    return small_model()


@pytest.fixture(scope="module")
def page_address(page_model, tmp_path_factory):
    """Address of a service whose table has hostile and long titles, and lacks the last item."""
    from bayesmf.web import create_app

    ids = page_model.item_ids_.ids.tolist()[:-1]
    titles = [HOSTILE, LONG, "'; DROP TABLE films; --", *(f"Film {item}" for item in ids[3:])]
    quoted = [title.replace('"', '""') for title in titles]
    rows = [f'{item},"{title}",1999' for item, title in zip(ids, quoted, strict=True)]
    path = tmp_path_factory.mktemp("page") / "items.csv"
    path.write_text("\n".join(["item,title,year", *rows]) + "\n", "utf-8")
    with served(create_app(page_model, item_info=path, test=small_ratings()[1])) as at:
        yield at


@pytest.fixture(scope="module")
def chrome():
    with browser() as opened:
        yield opened


@pytest.fixture
def visit(chrome, page_address):
    """Open the page in a fresh context; whatever it does wrong fails the test."""
    opened = []

    def look(at=page_address, **options):
        options.setdefault("viewport", {"width": 1440, "height": 900})
        context = chrome.new_context(**options)
        context.set_default_timeout(8000)
        watched = Watched(context, at)
        opened.append((context, watched))
        return watched

    yield look
    for context, watched in opened:
        context.close()
        watched.check()
