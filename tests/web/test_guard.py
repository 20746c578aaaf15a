"""Statuses and sentences of refusals; the log has nothing about people."""

import json
import logging
import time

import pytest

from small_service import small_model
from waiting import until

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from bayesmf import InputError
from bayesmf.web import Limits, create_app
from bayesmf.web import app as app_module

JSON = {"content-type": "application/json"}
SECRET = "correct-horse-battery"


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def client(model):
    with TestClient(create_app(model), raise_server_exceptions=False) as made:
        wait_until_ready(made)
        yield made


def wait_until_ready(client):
    until(lambda: client.get("/readyz").status_code == 200)


def refused(answer, status, *words):
    """The sentence, once the answer is a problem of that status and has the words in it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert set(body) <= {"type", "title", "status", "detail", "field"}
    assert body["status"] == status
    for word in words:
        assert word in body["detail"]
    assert len(body["detail"]) < 700 and "Traceback" not in body["detail"]
    return body


BAD = {
    "no JSON": ('{"user": 3', 400, "not valid JSON"),
    "NaN": ('{"ratings": [{"item": 1, "rating": NaN}]}', 400, "not valid JSON"),
    "deep": ("[" * 100_000, 400, "not valid JSON"),
    "not UTF-8": (b'{"user": "\xff\xfe"}', 400, "not valid JSON"),
    "a list": ("[]", 422, 'the body must be an object such as {"user": 17}'),
    "ratings as pairs": ('{"ratings": [[50, 5]]}', 422, 'ratings.0 must be an object such as {"it'),
    "nothing": ("", 422, "the body"),
    "nobody": ("{}", 422, "say for whom"),
    "another name": ('{"usr": 3}', 422, "usr"),
    "a boolean id": ('{"user": true}', 422, "user"),
    "a large id": ('{"user": 99999999999999999999999}', 422, "user"),
    "an unknown user": ('{"user": 99999}', 404, "with `ratings`"),
    "too many": ('{"user": 3, "n": 1001}', 422, "n:"),
    "no policy": ('{"user": 3, "policy": "best"}', 422, "policy"),
    "another scale": ('{"ratings": [{"item": 1, "rating": 500}]}', 422, "another scale"),
    "unknown items": ('{"ratings": [{"item": 777, "rating": 5}]}', 422, "none of the rated items"),
    "unknown candidates": ('{"user": 3, "items": [777, 778]}', 422, "none of `items`"),
    "many ratings": (
        json.dumps({"ratings": [{"item": k, "rating": 5} for k in range(2_001)]}), 422, "2000"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_body_is_one_sentence(client, name):
    body, status, word = BAD[name]
    began = time.perf_counter()
    refused(client.post("/v1/recommend", content=body, headers=JSON), status, word)
    # A tenth of a second is promised; the machine of a test may be busy.
    assert time.perf_counter() - began < 1.0


MANY = {
    "a long name of a rating": ({"ratings": [{"\n" * 400_000: 1}]}, "names that are in no request"),
    "more candidates": ({"user": 3, "items": [[]] * 300_000}, "more than 10,000 entries"),
    "names of a rating": ({"ratings": [{f"k{k}": 1 for k in range(70_000)}]}, "names that are"),
    "ratings": ({"ratings": [{f"k{k}": 1 for k in range(40)}] * 2_000}, "ratings.0.item is miss"),
}


@pytest.mark.parametrize("name", MANY)
def test_many_errors_cost_no_more_than_one(client, monkeypatch, name):
    """pydantic would make an error of each, and block the event loop."""
    body, said = MANY[name]
    counted = []
    original = app_module.of_validation
    monkeypatch.setattr(
        app_module, "of_validation", lambda errors: counted.append(len(errors)) or original(errors)
    )
    refused(client.post("/v1/recommend", json=body), 422, said)
    assert sum(counted) < 100


@pytest.mark.parametrize(
    ("question", "body", "status"),
    [
        ("predict", {"pairs": [{"user": 3, "item": 4}], "items": [4]}, 422),
        ("predict", {"pairs": [{"user": 3, "item": 4}], "ratings": []}, 422),
        ("predict", {"items": [4]}, 422),
        ("predict", {"items": [4], "user": 99_999}, 404),
        ("predict", {"pairs": [{"user": 99_999, "item": 4}]}, 404),
        ("predict", {"pairs": [{"user": 3, "item": 4}] * 1_001}, 422),
        ("explain", {"user": 3, "item": 777}, 404),
        ("explain", {"user": 99_999, "item": 4}, 404),
    ],
)
def test_other_questions_refuse_too(client, question, body, status):
    refused(client.post(f"/v1/{question}", json=body), status)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/similar?item=777", 404),
        ("/v1/similar?item=3&m=5", 422),
        ("/v1/recommend?user=3&polcy=ucb", 422),
        ("/v1/item?item=3&level=2", 422),
        ("/v1/user?user=nobody", 404),
        ("/v1/items?q=" + 300 * "a", 422),
        ("/v1/nothing", 404),
        ("/static/../app.py", 404),
        ("/static/%2e%2e/app.py", 404),
    ],
)
def test_bad_addresses(client, path, status):
    refused(client.get(path), status)


def test_other_methods_and_kinds_of_bodies(client):
    refused(client.put("/v1/recommend"), 405, "accepts ")
    refused(client.get("/v1/predict"), 405, "accepts POST")
    form = client.post("/v1/recommend", data={"user": "3"})
    refused(form, 415, "Content-Type: application/json")
    refused(client.post("/v1/recommend", content='{"user": 3}'), 415)
    plain = client.post(
        "/v1/recommend", content='{"user": 3}', headers={"content-type": "text/plain"}
    )
    refused(plain, 415)
    right = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/recommend", content='{"user": 3}', headers=right).status_code == 200


def test_large_bodies_are_refused_before_they_are_read(model):
    with TestClient(create_app(model, limits=Limits(body=1_000))) as client:
        refused(client.post("/v1/recommend", content=b" " * 1_001, headers=JSON), 413, "1,000")

        def pieces():
            for _ in range(20):
                yield b" " * 100

        refused(client.post("/v1/recommend", content=pieces(), headers=JSON), 413)
        small = client.post("/v1/recommend", content=b'{"user": 3}' + b" " * 900, headers=JSON)
        assert small.status_code == 200


def test_a_token(model):
    app = create_app(model, token=SECRET, origins=["https://shop.example"])
    with TestClient(app) as client:
        for given in ({}, {"authorization": "Bearer wrong-token"}, {"authorization": SECRET}):
            refused(client.get("/v1/model", headers=given), 401, "token")
        refused(client.get("/metrics"), 401)
        right = {"authorization": f"bearer {SECRET}"}
        assert client.get("/v1/model", headers=right).status_code == 200
        assert client.get("/healthz").status_code == 200
        assert client.get("/").status_code == 200
        site = {"origin": "https://shop.example"}
        preflight = {**site, "access-control-request-method": "POST",
                     "access-control-request-headers": "authorization"}  # fmt: skip
        assert client.options("/v1/recommend", headers=preflight).status_code == 200, "no token yet"
        answer = client.get("/v1/items", headers=site)
        refused(answer, 401)
        assert answer.headers["access-control-allow-origin"] == site["origin"]
        described = client.get("/openapi.json").json()
        assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for bad in ("short", "with space here", "smörgåsbord-token", ""):
        with pytest.raises(InputError):
            create_app(model, token=bad)


def test_only_names_that_are_allowed(model):
    app = create_app(model, hosts=["127.0.0.1", "[::1]"])
    with TestClient(app) as client:
        for name in ("127.0.0.1", "127.0.0.1:8000", "[::1]:80", "[::1]"):
            assert client.get("/healthz", headers={"host": name}).status_code == 200
        for name in ("evil.example", "127.0.0.1.evil.example", "evil.example:8000", ""):
            refused(client.get("/healthz", headers={"host": name}), 421)


def test_other_sites_are_not_allowed_by_default(model, client):
    ask = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    answer = client.options("/v1/recommend", headers=ask)
    assert "access-control-allow-origin" not in answer.headers
    with TestClient(create_app(model, origins=["https://shop.example"])) as open_one:
        answer = open_one.options("/v1/recommend", headers=ask)
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        other = open_one.options("/v1/recommend", headers=ask | {"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


def test_inside_another_application(model):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inner = create_app(model, token=SECRET)
    outer = Starlette(routes=[Mount("/films", inner)], lifespan=inner.router.lifespan_context)
    with TestClient(outer) as client:
        for path in ("/", "/static/main.js", "/healthz"):
            assert client.get("/films" + path).status_code == 200
        until(lambda: client.get("/films/readyz").status_code == 200)
        refused(client.get("/films/v1/items"), 401)


def test_headers_of_every_answer(client):
    for path in ("/", "/healthz", "/v1/nothing", "/v1/model", "/openapi.json"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    for path in ("/healthz", "/readyz", "/"):
        answer = client.head(path)
        assert answer.status_code == 200 and not answer.content


def test_no_answer_in_time(model, monkeypatch):
    app = create_app(model, limits=Limits(seconds=0.2))
    with TestClient(app) as client:
        slow = app.state.holder.current.model
        monkeypatch.setattr(slow, "recommend", lambda *args, **more: time.sleep(1.0))
        refused(client.post("/v1/recommend", json={"user": 3}), 503, "within 0.2 seconds")


def test_too_many_at_once(model):
    app = create_app(model, limits=Limits(waiting=1))
    with TestClient(app) as client:
        guard = app.middleware_stack
        while type(guard).__name__ != "Guard":
            guard = guard.app
        guard.waiting = 1
        answer = client.get("/v1/items")
        refused(answer, 503, "try again")
        assert answer.headers["retry-after"] == "1"
        for path in ("/healthz", "/"):  # a busy process is alive
            assert client.get(path).status_code == 200
        guard.waiting = 0
        assert client.get("/v1/items").status_code == 200


def test_an_unexpected_error_is_a_problem_too(model, monkeypatch, caplog):
    app = create_app(model)
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_until_ready(client)

        def fail(*args, **more):
            raise RuntimeError(f"quotes the request: {args} {more}")

        monkeypatch.setattr(app.state.holder.current.model, "recommend", fail)
        with caplog.at_level(logging.INFO, "bayesmf.web"):
            refused(client.post("/v1/recommend", json={"user": 3}), 500)
        assert "quotes" not in caplog.text and "RuntimeError" in caplog.text


def test_the_log_has_no_ratings_or_users(client, caplog):
    with caplog.at_level(logging.DEBUG):
        client.post("/v1/recommend", json={"ratings": [{"item": 23, "rating": 4.25}], "n": 3})
        client.get("/v1/recommend", params={"user": "41"})
        client.get("/v1/user", params={"user": "nobody-knows-me"})
    ours = [record for record in caplog.records if record.name.startswith("bayesmf")]
    assert len(ours) == 3
    text = " ".join(record.getMessage() for record in ours)
    assert "POST /v1/recommend 200" in text
    assert not {"4.25", "41", "23", "nobody-knows-me"} & set(text.replace("=", " ").split())


def test_metrics_count_by_route(client):
    client.get("/v1/recommend", params={"user": 3})
    client.get("/invented/by/somebody")
    text = client.get("/metrics").text
    assert 'bayesmf_requests_total{method="GET",route="/v1/recommend",status="200"}' in text
    assert 'route="other"' in text and "invented" not in text
    assert "bayesmf_request_seconds_bucket" in text and "bayesmf_model_loaded" in text


@pytest.mark.parametrize("bad", [{"body": 0}, {"seconds": -1}, {"waiting": 0}, {"body": "1"}])
def test_limits_must_make_sense(bad):
    with pytest.raises(InputError):
        Limits(**bad)
    with pytest.raises(InputError):
        create_app(17)
