"""Answers over HTTP are those of the library, bit for bit, and each fits its description."""

import json

import jsonschema
import numpy as np
import pytest

from small_service import TITLES, small_model, small_ratings, write_items
from waiting import until

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from bayesmf import BayesianMF, DataWarning
from bayesmf.storage.artefact import MODEL, peek
from bayesmf.web import create_app

NUMBERS = ("mean", "std", "low", "high")


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model"
    model.save(path)
    return path


@pytest.fixture(scope="module")
def client(folder, model):
    items = write_items(folder.parent / "movies.csv", model)
    app = create_app(folder, item_info=items, test=small_ratings()[1])
    with TestClient(app) as made:
        until(lambda: made.get("/v1/model").json()["calibration"] is not None)
        yield made


def checked(client, answer, path, method="post"):
    """The body, once it is as /openapi.json says."""
    assert answer.status_code == 200, answer.text
    description = client.get("/openapi.json").json()
    found = description["paths"][path][method]["responses"]["200"]["content"]["application/json"]
    jsonschema.validate(answer.json(), {**description, **found["schema"]})
    return answer.json()


def ask(client, question, **body):
    return checked(client, client.post(f"/v1/{question}", json=body), f"/v1/{question}")


def numbers(rows):
    return [tuple(row[name] for name in NUMBERS) for row in rows]


@pytest.mark.parametrize("policy", ["mean", "ucb", "lcb", "thompson"])
def test_recommend_a_known_user(client, model, policy):
    found = ask(client, "recommend", user=3, n=5, policy=policy, level=0.8, seed=7)
    own = model.recommend(3, 5, policy=policy, level=0.8, random_state=7)
    assert [row["item"] for row in found["items"]] == [one.item for one in own]
    assert numbers(found["items"]) == [one[1:] for one in own]
    assert found["known"] is True and found["user"] == 3
    some = {"items": [1, 2, 3, 4], "exclude": [2], "exclude_seen": False}
    chosen = ask(client, "recommend", user=3, **some)["items"]
    assert [row["item"] for row in chosen] == [one.item for one in model.recommend(3, **some)]
    by_query = client.get("/v1/recommend", params={"user": 3, "n": 5, "level": 0.8})
    if policy == "mean":
        assert by_query.json() == found


@pytest.mark.parametrize("policy", ["mean", "thompson"])
def test_recommend_by_ratings_that_are_sent(client, model, policy):
    sent = [{"item": 1, "rating": 5}, {"item": 2, "rating": 1}, {"item": 3, "rating": 4.5}]
    found = ask(client, "recommend", ratings=sent, n=40, policy=policy, seed=1)
    ratings = {one["item"]: one["rating"] for one in sent}
    own = model.recommend(ratings=ratings, n=40, policy=policy, random_state=1)
    assert [
        (r["item"], *n) for r, n in zip(found["items"], numbers(found["items"]), strict=True)
    ] == own
    assert not {1, 2, 3} & {row["item"] for row in found["items"]}
    assert found["user"] is None and found["known"] is True
    known = ask(client, "recommend", ratings=sent, user=3, n=2)
    assert known["items"][0]["mean"] == model.recommend(3, 1, ratings=ratings)[0].mean


def test_an_unknown_person_gets_popular_items(client, model):
    found = ask(client, "recommend", ratings=[], n=3)
    assert found["known"] is False
    assert "in general" in found["notes"][0]
    with pytest.warns(DataWarning):
        own = model.recommend(ratings={}, n=3)
    assert [row["item"] for row in found["items"]] == [one.item for one in own]


def test_likely_stars(client, model):
    sent = [{"item": 1, "rating": 5}, {"item": 2, "rating": 1}]
    found = ask(client, "recommend", ratings=sent, n=9, likely=True, level=0.8)
    ids = [row["item"] for row in found["items"]]
    own = model.predict_levels(None, ids, 0.8, ratings={1: 5, 2: 1})
    likely = [tuple(row["likely"].values()) for row in found["items"]]
    assert likely == list(zip(*(column.tolist() for column in own), strict=True))
    answer = ask(client, "predict", items=ids, ratings=sent, level=0.8)
    for row in answer["predictions"]:
        run = row["likely"]
        proba = zip(answer["levels"], row["probabilities"], strict=True)
        inside = [p for star, p in proba if run["low"] <= star <= run["high"]]
        assert sum(inside) == pytest.approx(run["probability"]) and run["probability"] >= 0.8
    assert "likely" not in ask(client, "recommend", ratings=sent, n=1)["items"][0]


def test_parts_add_up_and_shrink(client, model):
    known = ask(client, "predict", user=3, items=[7], parts=True)["predictions"][0]
    rows = np.array([model.user_ids_.index(3)]), np.array([model.item_ids_.index(7)])
    assert known["noise"] == model.posterior_.noise_of(*rows)[0] ** 0.5
    unknown = []
    for n in (0, 2, 8, 20):
        sent = [{"item": item, "rating": 1 + item % 5} for item in range(1, n + 1)]
        found = ask(client, "recommend", ratings=sent, n=40, parts=True, items=list(range(21, 41)))
        for row in found["items"]:
            assert row["unknown"] ** 2 + row["noise"] ** 2 == pytest.approx(row["std"] ** 2)
        unknown.append(np.mean([row["unknown"] for row in found["items"]]))
    assert unknown == sorted(unknown, reverse=True)


def test_predict_pairs(client, model):
    pairs = [(1, 2), (3, 4), (5, 6)]
    found = ask(client, "predict", pairs=[{"user": u, "item": i} for u, i in pairs], level=0.5)
    own = model.predict_table(pairs, level=0.5)
    proba = model.predict_proba(pairs)
    assert found["levels"] == model.rating_levels_.tolist()
    for k, row in enumerate(found["predictions"]):
        assert numbers([row])[0] == tuple(getattr(own, name)[k] for name in NUMBERS)
        assert row["probabilities"] == proba[k].tolist()
        assert (row["user"], row["item"], row["known"]) == (*pairs[k], True)


def test_predict_items_for_one_person(client, model):
    sent = {1: 5.0, 2: 1.0}
    body = [{"item": item, "rating": rating} for item, rating in sent.items()]
    found = ask(client, "predict", items=[7, 8], ratings=body, probabilities=False)
    own = model.predict_table(None, [7, 8], ratings=sent)
    assert numbers(found["predictions"]) == list(
        zip(own.mean, own.std, own.low, own.high, strict=True)
    )
    assert found["levels"] is None and found["predictions"][0]["probabilities"] is None
    known = ask(client, "predict", items=[7], user=3)["predictions"][0]
    assert known["mean"] == model.predict(3, 7)


def test_an_unknown_id_among_known_ones_is_marked(client):
    found = ask(client, "predict", pairs=[{"user": 3, "item": 4}, {"user": 99_999, "item": 4}])
    assert [row["known"] for row in found["predictions"]] == [True, False]
    assert "1 of 2 predictions has an unknown id" in found["notes"][0]


@pytest.mark.parametrize("body", [{"user": 3}, {"ratings": [{"item": 1, "rating": 5}]}])
def test_explanations_add_up(client, model, body):
    found = ask(client, "explain", item=9, n=4, **body)
    shares = sum(row["share"] for row in found["shares"])
    assert found["rest"] + shares + found["others"] == pytest.approx(found["prediction"], abs=1e-9)
    if "user" in body:
        own = model.explain(3, 9)
        assert found["prediction"] == own.prediction
        assert [row["share"] for row in found["shares"]] == own.shares[:4].tolist()
        assert found["n_ratings"] == len(own)


def test_similar_items(client, model):
    answer = client.get("/v1/similar", params={"item": 3, "n": 4})
    found, own = checked(client, answer, "/v1/similar", "get"), model.similar_items(3, 4)
    assert [row["item"] for row in found["items"]] == own.ids.tolist()
    assert [row["similarity"] for row in found["items"]] == own.similarity.tolist()
    assert found["item"] == 3


def test_titles_and_other_columns_go_along(client):
    found = ask(client, "recommend", user=3, n=40, exclude_seen=False, info=True)
    by_item = {row["item"]: row for row in found["items"]}
    assert by_item[1]["title"] == TITLES[0] and by_item[1]["info"] == {"genre": "comedy"}
    assert by_item[40]["title"] is None and by_item[40]["info"] == {}


def test_search(client, model):
    for query, expected in {
        "harbour": [1, 4], "the harbour": [4, 1], "CAFE": [2], "oslo 31": [5],
        "train  night": [3], "nothing like it": [],
    }.items():  # fmt: skip
        answer = client.get("/v1/items", params={"q": query, "n": 5})
        found = [row["item"] for row in checked(client, answer, "/v1/items", "get")["items"]]
        assert found == expected or (query == "harbour" and sorted(found) == expected)
    found = client.get("/v1/items", params={"n": 3}).json()["items"]
    counts = model.posterior_.ratings.item_counts()
    assert [row["n_ratings"] for row in found] == sorted(counts.tolist(), reverse=True)[:3]
    by_id = client.get("/v1/items", params={"q": "40"}).json()["items"]
    assert by_id[0]["item"] == 40


def test_facts_of_an_item(client, model):
    answer = client.get("/v1/item", params={"item": 7, "level": 0.5})
    found = checked(client, answer, "/v1/item", "get")
    own = model.predict_table(None, [7], 0.5, ratings={})
    assert numbers([found])[0] == tuple(getattr(own, name)[0] for name in NUMBERS)
    assert found["probabilities"] == model.predict_proba(None, [7], ratings={})[0].tolist()
    assert found["n_ratings"] == model.posterior_.ratings.item_counts()[6]


def test_facts_of_a_user(client):
    train, _ = small_ratings()
    answer = client.get("/v1/user", params={"user": "3", "n": 1000})
    found = checked(client, answer, "/v1/user", "get")
    own = train.users == 3
    given = dict(zip(train.items[own].tolist(), train.rating[own].tolist(), strict=True))
    assert {row["item"]: row["rating"] for row in found["ratings"]} == given
    assert found["n_ratings"] == len(given) and found["user"] == 3
    assert found["mean_rating"] == pytest.approx(np.mean(list(given.values())))


def test_the_card_has_the_numbers_of_diagnose(client, model, folder):
    found = checked(client, client.get("/v1/model"), "/v1/model", "get")
    _, test = small_ratings()
    calibration = model.calibration(test)
    assert found["convergence"]["verdict"] == model.report_["convergence"]["verdict"]
    assert found["calibration"]["verdict"] == calibration.verdict
    assert found["calibration"]["curves"][0]["observed"] == list(calibration.observed)
    assert found["calibration"]["pit"] == list(calibration.pit)
    chains = found["convergence"]["chains"]
    assert [chain["chain"] for chain in chains] == [0, 1]
    kept = model.report_["draws"] / 2
    assert all(abs(chain["burn_in"].count(False) - kept) <= 1 for chain in chains)
    worst = model.diagnose(200)["tau"]["rhat"]
    worst_of = found["convergence"]["diagnostics"]
    assert [q["rhat"] for q in worst_of if "noise" in q["name"]] == [worst]
    digest = peek(folder, MODEL)
    assert digest.startswith(found["model_version"]) and len(found["model_version"]) == 12


def test_string_ids_and_a_model_without_levels():
    cups = [("ann", "tea", 5.25), ("ann", "milk", 2.1), ("bob", "tea", 4.2), ("eve", "tea", 3.3)]
    more = [(f"u{k}", f"i{k % 7}", 1 + k * 0.013) for k in range(300)]
    model = BayesianMF(2, random_state=0, max_seconds=1).fit([*cups, *more])
    with TestClient(create_app(model)) as client:
        found = ask(client, "recommend", user="bob", n=2)
        assert found["model_version"] == "unsaved" and found["user"] == "bob"
        assert found["items"][0]["item"] == model.recommend("bob", 1)[0].item
        predicted = ask(client, "predict", pairs=[{"user": "bob", "item": "milk"}])
        assert predicted["levels"] is None
        assert client.post("/v1/recommend", json={"user": 17}).status_code == 404


def test_a_model_saved_without_users_answers_by_ratings(tmp_path, model):
    model.save(tmp_path / "items", users=False)
    with TestClient(create_app(tmp_path / "items")) as client:
        sent = [{"item": 1, "rating": 5}]
        found = ask(client, "recommend", ratings=sent, n=3)
        own = model.recommend(ratings={1: 5}, n=3)
        assert [row["item"] for row in found["items"]] == [one.item for one in own]
        refused = client.post("/v1/recommend", json={"user": 3})
        assert refused.status_code == 404
        assert "saved without its users" in refused.json()["detail"]
        assert client.get("/v1/model").json()["data"]["holds_users"] is False
        assert client.get("/v1/user", params={"user": "3"}).status_code == 404


def test_examples_of_the_description_work(client):
    description = client.get("/openapi.json").json()
    tried = 0
    for path, operations in description["paths"].items():
        if "post" not in operations:
            continue
        name = operations["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        for example in description["components"]["schemas"][name.split("/")[-1]]["examples"]:
            text = json.dumps(example).replace("181", "31").replace("50", "30")  # ids of this model
            answer = client.post(path, content=text, headers={"content-type": "application/json"})
            assert answer.status_code == 200, (path, text, answer.text)
            tried += 1
    assert tried >= 6
