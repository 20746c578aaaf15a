"""A new model replaces the served one without a failed request, and the previous one is freed."""

import gc
import logging
import os
import threading
import time
import weakref

import pytest

from small_service import small_model, write_items
from waiting import until

pytest.importorskip("fastapi")
from starlette.testclient import TestClient

from bayesmf import InputError
from bayesmf.web import create_app
from bayesmf.web.items import ItemTable
from bayesmf.web.served import ModelHolder


@pytest.fixture(scope="module")
def models():
    return small_model(0), small_model(1)


@pytest.fixture
def path(models, tmp_path):
    models[0].save(tmp_path / "model")
    return tmp_path / "model"


def mapped(path):
    """Number of maps of the model's file in this process, replaced files included."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum(str(path.parent) in line for line in maps)


def test_a_new_model_is_taken_up(models, path):
    holder = ModelHolder(path)
    before = holder.current
    assert not holder.changed() and not holder.refresh()
    models[0].save(path)
    assert holder.changed() and not holder.refresh(), "the same model, saved again"
    models[1].save(path)
    assert holder.changed() and holder.refresh()
    after = holder.current
    assert after.version != before.version
    assert after.model.recommend(3, 5) == models[1].recommend(3, 5)
    assert before.model.recommend(3, 5) == models[0].recommend(3, 5), "requests under way keep it"
    assert not holder.refresh()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux")
def test_the_previous_model_is_freed(models, path):
    holder = ModelHolder(path, mmap=True)
    holder.current.model.recommend(3, 5)
    holder.current.model.recommend(ratings={1: 5}, policy="thompson")
    holder.current.model.explain(3, 4)
    gone, at_first = weakref.ref(holder.current.model.posterior_), mapped(path)
    gc.collect()
    gc.disable()  # freed at once, not by the collector
    try:
        for k in range(3):
            models[(k + 1) % 2].save(path)
            assert holder.refresh()
    finally:
        gc.enable()
    assert gone() is None
    assert 0 < mapped(path) <= at_first


@pytest.mark.parametrize("damage", ["flipped", "missing", "truncated", "another error"])
def test_a_model_that_cannot_be_used_changes_nothing(models, path, damage, caplog, monkeypatch):
    holder, clock = ModelHolder(path), [1000.0]
    monkeypatch.setattr("bayesmf.web.served.time.monotonic", lambda: clock[0])
    version = holder.current.version
    path.unlink()
    models[1].save(path)
    raw = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "flipped":
        path.write_bytes(raw[:-100] + bytes([raw[-100] ^ 1]) + raw[-99:])
    elif damage == "truncated":
        path.write_bytes(raw[: len(raw) // 2])
    with caplog.at_level(logging.WARNING, "bayesmf.web"), monkeypatch.context() as patched:
        if damage == "another error":
            patched.setattr("bayesmf.web.served.try_out", lambda served: 1 / 0)
        assert not holder.refresh()
    assert holder.failures == 1 and "the previous one is kept" in caplog.text
    assert holder.current.version == version and not holder.changed(), "not at once again"
    assert holder.current.model.recommend(3, 5) == models[0].recommend(3, 5)
    clock[0] += 5
    assert holder.changed(), "it is tried again"
    path.write_bytes(raw)
    assert holder.refresh() and not holder.changed()


def test_writing_into_the_file_changes_no_answer(models, path):
    holder = ModelHolder(path)
    before = models[0].recommend(3, 5)
    os.truncate(path, 0)
    assert holder.current.model.recommend(3, 5) == before
    holder.current.model.explain(3, 4)


def test_no_request_is_lost_while_models_change(models, path, monkeypatch):
    """Each answer is wholly that of one model or of the other; the service finds new ones."""
    monkeypatch.setattr("bayesmf.web.app.LOOK_EVERY", 0.05)
    expected = [[(one.item, one.mean) for one in model.recommend(3, 5)] for model in models]
    wrong, seen, stop = [], set(), threading.Event()
    app = create_app(path)
    with TestClient(app) as client:

        def version():
            return client.get("/healthz").json()["model_version"]

        def ask():
            while not stop.is_set():
                answer = client.post("/v1/recommend", json={"user": 3, "n": 5})
                body = answer.json()
                found = [(row["item"], row["mean"]) for row in body.get("items", [])]
                seen.add(body.get("model_version"))
                if answer.status_code != 200 or found not in expected:
                    wrong.append(body)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for k in range(4):
            before = version()
            models[(k + 1) % 2].save(path)
            until(lambda before=before: version() != before)
            time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join()
        until(lambda: 'bayesmf_model_loads_total{result="ok"} 5' in client.get("/metrics").text)
    assert not wrong and len(seen) == 2


def test_a_model_in_memory_does_not_change(models, tmp_path):
    table = write_items(tmp_path / "movies.csv", models[0])
    holder = ModelHolder(models[0], table)
    table.write_text(table.read_text().replace("comedy", "tragedy"))
    assert not holder.changed() and not holder.refresh()


def test_tables_of_items(models, tmp_path):
    app = create_app(models[0], item_info=write_items(tmp_path / "movies.csv", models[0]))
    with TestClient(app) as client:
        assert "1 of the model's 40 items" in client.get("/v1/model").json()["notes"][0]
    other = tmp_path / "items.csv"
    other.write_text("item,title\nx1,A\nx2,B\n")
    with pytest.raises(InputError, match="none of the 2 ids"):
        create_app(models[0], item_info=other)
    ids = models[0].item_ids_
    table = ItemTable(ids, models[0].posterior_.ratings.item_counts())
    assert table.search("12", 3)[0] == ids.index(12)
    assert table.title(0) is None and table.info(0) == {}
