"""The first view of the page, in a real browser: by mouse, and by keyboard alone."""

import json
import re

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

from browsing import NOT_LOOKED_AT, chromium, numbers

pytestmark = pytest.mark.skipif(
    chromium() is None,
    reason=f"{NOT_LOOKED_AT}: the page, for there is no Chromium (set BAYESMF_CHROMIUM)",
)


FOCUSED = "e => e === document.activeElement"


def shown_as(mean):
    """An expected rating as the page writes it, on a scale from 1 to 5."""
    return "over 4.9" if mean > 5 else "below 1.1" if mean < 1 else f"{mean:.2f}"


def test_before_any_rating(visit, page_model):
    watched = visit()
    page = watched.open()
    assert "people in general" in page.locator(".list-card .say").inner_text()
    shown = page.locator(".rows .title").all_inner_texts()
    expected = page_model.recommend(ratings={}, n=10)
    assert watched.items() == [str(one.item) for one in expected]
    means = page.locator(".rows .value").all_inner_texts()
    assert means == [shown_as(one.mean) for one in expected]
    assert len(shown) == 10
    assert "memory" in page.locator(".try").inner_text()


def test_ratings_change_the_list_and_its_uncertainty(visit, page_model):
    watched = visit()
    page = watched.open()
    watched.rate("Film 9", 5)
    watched.rate("Film 8", 1)
    items = page.locator(".mine li").evaluate_all("all => all.map(li => li.dataset.item)")
    sent = dict(zip(map(int, items), (1.0, 5.0), strict=True))
    expected = page_model.recommend(ratings=sent, n=10)
    row = page.locator(".rows li")
    assert watched.items() == [str(one.item) for one in expected]
    first = expected[0]
    words = row.first.get_by_role("img").get_attribute("aria-label")
    low, high, held = page_model.predict_levels(None, [first.item], ratings=sent)
    assert f"Expected {shown_as(first.mean)}" in words
    stars = f"{low[0]:g} to {high[0]:g}" if low[0] < high[0] else f"{low[0]:g}"
    assert f"Your rating would be {stars} with a probability of {held[0]:.0%}" in words
    assert row.first.locator(".range").inner_text() == f"{stars} ({held[0]:.0%})"
    assert "your 2 ratings" in page.locator(".list-card .say").inner_text()

    said = page.locator(".sure .say").inner_text()
    assert "With 2 ratings the uncertainty has" in said
    page.locator(".sure summary").click()
    curve = numbers(page.locator(".sure td").all_inner_texts())
    assert len(curve) == 3 == page.locator(".sure circle").count()
    change = round(abs(100 * (1 - curve[-1] / curve[0])))
    assert re.search(rf"by ({change - 1}|{change}|{change + 1})%", said)


def test_shares_add_up_as_shown(visit):
    watched = visit()
    page = watched.open()
    page.get_by_role("button", name="Rate some for me").click()
    page.locator(".sure circle").nth(5).wait_for()
    watched.settle()
    for k in range(4):
        row = page.locator(".rows li").nth(k)
        row.get_by_role("button", name="Why?").click()
        row.locator("table.sum").wait_for()
        parts = numbers(row.locator("tbody .number").all_inner_texts())
        (total,) = numbers(row.locator("tfoot .number").all_inner_texts())
        assert len(parts) == 6
        assert sum(parts) == pytest.approx(total, abs=1e-9)
        shown = row.locator(".value").inner_text()
        if 1 <= total <= 5:
            assert float(shown) == pytest.approx(total, abs=0.0101)
        else:
            assert shown == shown_as(total)
    button = page.get_by_role("button", name="Why?").first
    assert button.get_attribute("aria-expanded") == "true"
    button.click()
    assert button.get_attribute("aria-expanded") == "false"
    assert page.locator("table.sum").first.is_hidden()


def test_sample_ratings_and_undo(visit):
    watched = visit()
    page = watched.open()
    undo, again = (page.get_by_role("button", name=name) for name in ("Undo", "Start over"))
    assert undo.is_hidden() and again.is_hidden()
    some = page.get_by_role("button", name="Rate some for me")
    some.click()
    mine = page.locator(".mine li")
    mine.nth(4).wait_for()
    watched.settle()
    assert page.locator(".mine input:checked").count() == 5
    assert some.evaluate(FOCUSED)
    page.locator(".sure svg circle").nth(5).wait_for()

    title = mine.first.locator(".title").inner_text()
    page.get_by_role("button", name=f"Remove {title}").click()
    assert mine.count() == 4
    undo.click()
    assert mine.count() == 5 and mine.first.locator(".title").inner_text() == title
    again.click()
    assert mine.count() == 0
    page.get_by_text("Nothing rated yet").wait_for()
    undo.click()
    assert mine.count() == 5
    page.reload()
    watched.settle()
    assert mine.count() == 0  # nothing is stored
    assert page.evaluate("sessionStorage.length + localStorage.length") == 0


def test_each_policy_changes_the_list(visit, page_model):
    watched = visit()
    page = watched.open()
    watched.rate("Film 9", 5)
    item = int(page.locator(".mine li").first.get_attribute("data-item"))
    said = set()
    for name, policy in (("Curious", "ucb"), ("Careful", "lcb"), ("Best guess", "mean")):
        page.get_by_role("radio", name=name).check()
        watched.settle()
        expected = page_model.recommend(ratings={item: 5.0}, n=10, policy=policy)
        shown = watched.items()
        assert shown == [str(one.item) for one in expected]
        said.add(page.locator(".policies .hint").inner_text())
    assert len(said) == 3
    assert page.locator(".draws").is_hidden()


def test_draws_are_counted(visit):
    watched = visit()
    page = watched.open()
    page.get_by_role("radio", name="Explore", exact=True).check()
    watched.settle()
    assert page.locator(".tally").inner_text() == ""  # one draw tells nothing
    orders = set()
    for k in range(2, 6):
        page.get_by_role("button", name="Draw again").click()
        page.get_by_text(f"Who came first in {k} draws").wait_for()
        watched.settle()
        orders.add(tuple(watched.items()))
    assert len(orders) > 1
    badges = page.locator(".change").all_inner_texts()
    assert all(re.fullmatch(r"(new|up \d+|down \d+)", badge) for badge in badges)
    assert badges or page.get_by_text(re.compile("All ten are new|same as before")).count() == 1
    many = page.get_by_role("button", name="Draw 20 times")
    many.click()
    page.get_by_text("Who came first in 20 draws").wait_for()
    watched.settle()
    assert sum(numbers(page.locator(".tally .n").all_inner_texts())) == 20
    assert page.locator(".change").count() == 0
    assert many.evaluate(FOCUSED)
    page.get_by_role("radio", name="Explore items").check()
    watched.settle()
    assert json.loads(watched.requests[-1].post_data)["policy"] == "thompson-items"
    assert page.get_by_role("button", name="Draw again").is_visible()


def test_by_keyboard_alone(visit):
    watched = visit()
    page = watched.open()
    press = page.keyboard.press
    press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    press("Tab")
    field = page.get_by_role("combobox")
    assert field.evaluate(FOCUSED)
    page.locator("[role=option]").first.wait_for()  # the most rated, before anything is typed
    press("Enter")
    assert page.locator(".mine li").count() == 0
    page.keyboard.type("Film 1")
    page.locator("[role=option]").filter(has_text="Film 1").first.wait_for()
    page.locator("#said", has_text="found").wait_for(state="attached")
    assert field.get_attribute("aria-expanded") == "true"
    press("ArrowDown")
    press("ArrowDown")
    active = field.get_attribute("aria-activedescendant")
    option = page.locator(f"#{active}")
    assert option.get_attribute("aria-selected") == "true"
    title = option.locator("span").first.inner_text()
    press("Escape")
    assert field.get_attribute("aria-expanded") == "false"
    press("ArrowDown")  # opens it again
    page.locator("[role=option]").first.wait_for()
    press("ArrowDown")
    press("ArrowDown")
    press("Enter")
    assert page.locator(".mine .title").all_inner_texts() == [title]
    assert page.evaluate("document.activeElement.type") == "radio"
    press("Space")
    press("ArrowRight")
    press("ArrowRight")
    assert page.evaluate("document.activeElement.value") == "3"
    page.wait_for_timeout(250)
    watched.settle()
    assert "your 1 rating" in page.locator(".list-card .say").inner_text()
    for _ in range(20):
        press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Why?":
            break
    width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert float(width.removesuffix("px")) >= 2  # the focus can be seen
    press("Enter")
    page.locator("table.sum").wait_for()
