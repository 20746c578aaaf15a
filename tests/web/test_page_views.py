"""Users, items and the model on the page; and the page as a whole, at all widths."""

import re

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")
from bayesmf import BayesianMF, Gibbs, Synthetic
from bayesmf.web import create_app
from browsing import DASH, HOSTILE, LONG, NOT_LOOKED_AT, axe_source, chromium, numbers, served

pytestmark = pytest.mark.skipif(
    chromium() is None,
    reason=f"{NOT_LOOKED_AT}: the page, for there is no Chromium (set BAYESMF_CHROMIUM)",
)
VIEWS = ("#/try", "#/look", "#/user/17", "#/item/7", "#/model")


def test_an_item(visit, page_address, page_model):
    watched = visit()
    page = watched.open("#/item/9")
    page.get_by_role("heading", name="Film 9").wait_for()
    assert page.title() == f"Film 9 {DASH} bayesmf"
    chart = page.locator(".chart svg").first.get_attribute("aria-label")
    shares = [float(x) for x in re.findall(r": (\d+)%", chart)]
    expected = page_model.predict_proba(None, [9], ratings={})[0]
    assert np.allclose(shares, 100 * expected, atol=0.51)
    text = page.locator(".found").inner_text()
    assert "Uncertainty" in text and "Noise" in text and "1999" in text
    near = page.locator(".near li")
    neighbours = page_model.similar_items(9, 8)
    assert near.count() == 8
    assert near.locator(".n").first.inner_text().startswith(f"{neighbours.similarity[0]:.2f}")
    href = near.locator("a").first.get_attribute("href")
    assert href == f"#/item/{neighbours.ids[0]}"
    near.locator("a").first.click()
    page.locator(".found h2").wait_for()
    watched.settle()
    assert page.evaluate("location.hash") == href
    page.go_back()
    page.get_by_role("heading", name="Film 9").wait_for()


def test_a_user(visit, page_model):
    watched = visit()
    page = watched.open("#/look")
    assert "Choose a user or an item" in page.locator("main").inner_text()
    page.get_by_label("Find a user").fill("17")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("heading", name="User 17").wait_for()
    watched.settle()
    rated = numbers(page.locator(".rated .n").all_inner_texts())
    assert rated == sorted(rated, reverse=True) and len(rated) > 2
    assert "This person rates" in page.locator(".found").inner_text()
    row = page.locator(".rows li").first
    assert row.get_attribute("data-item") == str(page_model.recommend(17, n=1)[0].item)
    row.get_by_role("button", name="Why?").click()
    row.locator("table.sum").wait_for()
    parts = numbers(row.locator("tbody .number").all_inner_texts())
    assert sum(parts) == pytest.approx(numbers([row.locator("tfoot .number").inner_text()])[0])
    assert "other rating" in row.locator("tbody").inner_text()

    watched.allowed.append("404")  # which the browser tells the console
    page.get_by_label("Find a user").fill("no such")
    page.get_by_role("button", name="Show").click()
    example = page_model.user_ids_.ids[0]
    said = f"There is no user “no such” in this model. Ids look like {example}."
    page.get_by_role("alert").filter(has_text=said).wait_for()
    watched.settle()
    assert page.get_by_role("button", name="Try again").count() == 0
    assert page.title() == f"Not found {DASH} bayesmf"
    page.locator("#user-id[aria-invalid=true]:focus").wait_for()
    page.get_by_role("link", name=str(example), exact=True).click()
    page.locator(".found-title:focus", has_text=f"User {example}").wait_for()


def test_the_model(visit, page_address):
    watched = visit()
    page = watched.open("#/model")
    page.get_by_role("heading", name="Nominal and observed coverage").wait_for(timeout=15000)
    card = page.request.get(f"{page_address}/v1/model").json()
    verdicts = page.locator(".verdicts").inner_text()
    assert card["convergence"]["verdict"] in verdicts
    assert card["calibration"]["verdict"] in verdicts
    pictures = page.locator(".chart > svg")
    assert pictures.count() == 4
    for k in range(4):
        assert len(pictures.nth(k).get_attribute("aria-label")) > 40
        assert pictures.nth(k).get_attribute("role") == "img"
    table = page.get_by_role("region", name="Share of held-out ratings inside intervals")
    page.locator(".numbers", has_text="How many").locator("summary").click()
    first = table.locator("tbody tr").first.locator("td").all_inner_texts()
    curve = card["calibration"]["curves"][0]
    assert first[0] == f"{curve['n']:,}"
    ninety = curve["observed"][card["calibration"]["levels"].index(90)]
    assert first[3] == f"{100 * ninety:.1f}%"
    assert table.locator("tbody tr").count() == len(card["calibration"]["curves"])
    select = page.get_by_label("Highlight a group")
    select.select_option(index=2)
    page.locator("path.chosen").first.wait_for(state="attached")
    assert page.locator(".facts dt").count() >= 5
    convergence = card["convergence"]
    deciding = page.locator(".card", has_text="These two decide").inner_text()
    for decides in (convergence["rhat"], convergence["rhat_noise"]):
        assert f"R-hat {decides:.3f}" in deciding
    singles = page.locator("table.plain tbody th")
    assert [one["name"] for one in convergence["diagnostics"]] == singles.all_text_contents()
    assert not singles.first.is_visible()


def test_the_page_says_no_more_than_the_verdict(visit):
    """Of one chain not that chains agree; of training ratings not that they were never seen."""
    watched = visit()
    page = watched.page

    def other(route):
        answer = route.fetch()
        card = answer.json()
        card["convergence"]["chains"] = card["convergence"]["chains"][:1]
        card["convergence"]["converged"] = True
        if card["calibration"]:
            card["calibration"]["calibrated"] = None
        route.fulfill(response=answer, json=card)

    page.route("**/v1/model", other)
    watched.open("#/model")
    page.get_by_role("heading", name="Nominal and observed coverage").wait_for(timeout=15000)
    said = page.locator(".verdicts").inner_text()
    assert "one chain" in said and "started apart" not in said and "never seen" not in said


def test_hostile_titles_are_text(visit, page_model):
    watched = visit()
    page = watched.open(f"#/item/{page_model.item_ids_.ids[0]}")
    assert page.locator(".found h2").inner_text() == HOSTILE
    page.get_by_role("link", name="Try it").click()
    watched.settle()
    for text in (HOSTILE, LONG[:60]):
        watched.rate(text, 4)
    assert page.locator(".mine .title").nth(1).inner_text() == HOSTILE
    page.get_by_role("button", name="Why?").first.click()
    page.locator("table.sum").wait_for()
    assert HOSTILE in page.locator("table.sum").inner_text()
    assert page.locator("main img, main b").count() == 0


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (768, "light"), (1440, "dark")])
def test_no_view_scrolls_sideways(visit, page_model, width, scheme):
    watched = visit(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = watched.open()
    watched.rate(LONG[:60], 5)
    page.get_by_role("button", name="Why?").first.click()
    page.locator("table.sum").wait_for()
    assert not watched.scrolls_sideways
    for view in (*VIEWS[1:], f"#/item/{page_model.item_ids_.ids[1]}"):
        watched.open(view)
        assert not watched.scrolls_sideways, view
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = np.mean([float(x) for x in re.findall(r"\d+", ground)]) > 128
    assert light == (scheme == "light")


def test_errors_are_shown_and_tried_again(visit):
    watched = visit()
    watched.allowed.append("503")
    page = watched.page
    busy = {"type": "about:blank", "title": "", "status": 503, "detail": "too many requests"}
    page.route("**/v1/model", lambda route: route.fulfill(json=busy, status=503))
    page.goto(watched.address)
    page.get_by_role("alert").filter(has_text="too many requests").wait_for()
    page.unroute("**/v1/model")
    page.get_by_role("button", name="Try again").click()
    watched.settle()

    page.route("**/v1/recommend", lambda route: route.fulfill(body="<html>no", status=503))
    page.get_by_role("radio", name="Curious").check()
    page.get_by_role("alert").filter(has_text="The service answered 503").wait_for()
    assert page.locator(".list-card .say").inner_text() == ""
    page.unroute("**/v1/recommend")
    page.get_by_role("button", name="Try again").click()
    page.locator("#list-title:focus").wait_for()
    page.locator(".rows li").first.wait_for()
    watched.settle()
    watched.allowed.append("ERR_FAILED")
    page.route("**/v1/items*", lambda route: route.abort())
    page.get_by_role("combobox").fill("x")
    page.get_by_text("The service cannot be reached").first.wait_for()


def test_a_new_model_is_taken_up(visit):
    watched = visit()
    page = watched.open()
    watched.rate("Film 9", 5)

    def newer(route):
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "model_version": "newer"})

    page.route("**/v1/**", newer)
    page.get_by_role("radio", name="Curious").check()
    page.locator("footer", has_text="version newer").wait_for()
    watched.settle()
    assert page.locator(".mine li").count() == 1
    page.unroute("**/v1/**")  # a worker that still has the model from before
    asked = len([one for one in watched.requests if one.url.endswith("/v1/model")])
    page.get_by_role("radio", name="Careful").check()
    watched.settle()
    assert asked == len([one for one in watched.requests if one.url.endswith("/v1/model")])


def test_a_token_is_asked_for(visit, page_model):
    with served(create_app(page_model, token="open-sesame-please")) as at:
        watched = visit(at)
        watched.allowed.append("401")
        page = watched.page
        page.goto(at)
        field = page.get_by_role("textbox", name="Token")
        field.fill("wrong")
        page.get_by_role("button", name="Go on").click()
        page.get_by_text("was not accepted").wait_for()
        field.fill("open-sesame-please")
        page.keyboard.press("Enter")
        page.locator(".rows li").first.wait_for()
        watched.settle()
        assert page.evaluate("[localStorage.length, document.cookie, location.search]") == [
            0, "", "",
        ]  # fmt: skip
        page.reload()
        page.locator(".rows li").first.wait_for()  # the tab keeps it
        watched.settle()
        page.close()


def test_no_users_no_titles_no_levels_no_test(visit, tmp_path):
    ratings = Synthetic(40, 30, 500, random_state=1).ratings()
    fitted = BayesianMF(2, sampler=Gibbs(epochs=12), random_state=0).fit(ratings)
    fitted.save(tmp_path / "model", users=False)
    with served(create_app(BayesianMF.load(tmp_path / "model"))) as at:
        watched = visit(at)
        page = watched.open()
        page.get_by_role("combobox").click()
        page.get_by_role("option").first.click()
        assert page.locator(".mine .title").inner_text().startswith("Item ")
        field = page.get_by_role("spinbutton")
        field.fill("99")
        field.press("Tab")
        page.get_by_role("alert").filter(has_text="a number from").wait_for()
        field.fill("4.25")
        field.press("Tab")
        page.get_by_text("your 1 rating").wait_for()
        page.get_by_role("button", name="Rate some for me").click()
        page.locator(".mine li").nth(5).wait_for()
        watched.settle()
        watched.open("#/look")
        assert "saved without its users" in page.locator("main").inner_text()
        watched.open("#/item/9")
        assert page.locator(".chart").count() == 0  # no stars, no probabilities of them
        watched.open("#/model")
        assert "bayesmf serve MODEL --test held-out.csv" in page.locator(".verdicts").inner_text()
        page.close()  # before the service is gone


@pytest.mark.skipif(
    axe_source() is None,
    reason=f"{NOT_LOOKED_AT}: accessibility, for there is no axe-core (set BAYESMF_AXE)",
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(visit, scheme):
    watched = visit(color_scheme=scheme)
    page = watched.open()
    page.get_by_role("button", name="Rate some for me").click()
    page.locator(".mine li").nth(4).wait_for()
    watched.settle()
    page.get_by_role("radio", name="Explore", exact=True).check()
    watched.settle()
    page.get_by_role("button", name="Draw again").click()
    watched.settle()
    page.get_by_role("button", name="Why?").first.click()
    page.locator("table.sum").wait_for()
    found = {"try": _axe(page)}
    page.get_by_role("combobox").fill("Film")
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("ArrowDown")
    found["search"] = _axe(page)
    for view in VIEWS[1:]:
        watched.open(view)
        for closed in page.locator("details").all():
            closed.locator("summary").click()
        found[view] = _axe(page)
    assert {view: said for view, said in found.items() if said} == {}


def _axe(page):
    """What axe-core has against the page as it is now."""
    page.evaluate(axe_source())
    answer = page.evaluate("axe.run(document)")
    return [
        (one["impact"], one["id"], one["nodes"][0]["target"], one["nodes"][0]["failureSummary"])
        for one in answer["violations"]
    ]
