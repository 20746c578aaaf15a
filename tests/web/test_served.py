"""A newer model takes the place of the one before without a failure, and that one is freed."""

import gc
import logging
import os
import threading
import time
import weakref

import pytest

from small_service import small_model, write_items

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
def folder(models, tmp_path):
    models[0].save(tmp_path / "model")
    return tmp_path / "model"


def mapped(folder):
    """How many files of a model's folder this process has mapped, replaced ones too."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum(str(folder.parent) in line for line in maps)


def test_a_new_model_is_taken_up(models, folder):
    holder = ModelHolder(folder)
    before = holder.current
    assert not holder.changed() and not holder.refresh()
    models[1].save(folder)
    assert holder.changed() and holder.refresh()
    after = holder.current
    assert after.version != before.version
    assert after.model.recommend(3, 5) == models[1].recommend(3, 5)
    assert before.model.recommend(3, 5) == models[0].recommend(3, 5), "who has it may use it"
    assert not holder.refresh()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux")
def test_the_model_before_is_freed(models, folder):
    holder = ModelHolder(folder, mmap=True)
    holder.current.model.recommend(3, 5)
    for policy in ("mean", "ucb", "thompson"):
        holder.current.model.recommend(ratings={1: 5}, policy=policy)
    holder.current.model.explain(3, 4)
    gone, at_first = weakref.ref(holder.current.model.posterior_), mapped(folder)
    gc.collect()
    gc.disable()  # at once, not when the collector comes round
    try:
        for k in range(3):
            models[(k + 1) % 2].save(folder)
            assert holder.refresh()
    finally:
        gc.enable()
    assert gone() is None
    assert 0 < mapped(folder) <= at_first


@pytest.mark.parametrize("damage", ["flipped", "gone", "truncated"])
def test_a_model_that_cannot_be_used_changes_nothing(models, folder, damage, caplog):
    holder = ModelHolder(folder)
    version = holder.current.version
    spare = folder.parent / "spare"
    models[1].save(spare)
    raw = bytearray(spare.read_bytes())
    if damage == "flipped":
        raw[len(raw) // 2] ^= 1
        spare.write_bytes(raw)
    elif damage == "truncated":
        spare.write_bytes(raw[: len(raw) // 2])
    folder.unlink()
    if damage != "gone":
        spare.rename(folder)
    with caplog.at_level(logging.WARNING, "bayesmf.web"):
        assert not holder.refresh()
    assert holder.failures == 1 and "goes on answering" in caplog.text
    assert holder.current.version == version
    assert holder.current.model.recommend(3, 5) == models[0].recommend(3, 5)
    folder.unlink(missing_ok=True)
    models[1].save(folder)
    assert holder.refresh(), "and a good one is taken up later"


def test_who_writes_into_the_folder_changes_no_answer(models, folder):
    """Mapped files would: they end a process where they are cut, or give numbers of two models."""
    holder = ModelHolder(folder)
    before = models[0].recommend(3, 5)
    os.truncate(folder, 0)
    assert holder.current.model.recommend(3, 5) == before
    holder.current.model.explain(3, 4)


def test_a_copy_that_was_not_complete_is_looked_at_again(models, folder, monkeypatch):
    holder, clock = ModelHolder(folder), [1000.0]
    monkeypatch.setattr("bayesmf.web.served.time.monotonic", lambda: clock[0])
    models[1].save(folder.parent / "new")
    whole = (folder.parent / "new").read_bytes()
    folder.write_bytes(whole[: len(whole) // 2])
    assert holder.changed() and not holder.refresh() and holder.failures == 1
    assert not holder.changed(), "not at once: it may be damaged for good"
    clock[0] += 5
    assert holder.changed() and not holder.refresh() and holder.failures == 2
    folder.write_bytes(whole)
    assert holder.changed() and holder.refresh()
    clock[0] += 1000
    assert not holder.changed()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_pipes_in_place_of_files_do_not_make_it_wait(models, folder):
    holder = ModelHolder(folder)
    folder.unlink()
    os.mkfifo(folder)
    looking = threading.Thread(target=holder.refresh, daemon=True)
    looking.start()
    looking.join(30)
    assert not looking.is_alive() and holder.failures == 1
    folder.unlink()
    models[1].save(folder)
    assert holder.refresh()


def test_the_same_model_saved_again_is_the_same(models, folder):
    holder = ModelHolder(folder)
    version = holder.current.version
    models[0].save(folder)
    assert not holder.refresh() and holder.current.version == version
    assert holder.refresh(wanted=True), "but SIGHUP loads whatever is there"


def test_requests_while_models_change(models, folder):
    """Threads ask all the time: each answer is wholly that of one model or of the other."""
    expected = [[(one.item, one.mean) for one in model.recommend(3, 5)] for model in models]
    wrong, seen, stop = [], set(), threading.Event()
    app = create_app(folder)
    with TestClient(app) as client:

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
            models[(k + 1) % 2].save(folder)
            app.state.holder.refresh()  # or the service was quicker, which looks every second
            time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong and len(seen) == 2


def test_the_folder_is_watched(models, folder, monkeypatch):
    monkeypatch.setattr("bayesmf.web.app.LOOK_EVERY", 0.05)
    with TestClient(create_app(folder)) as client:
        before = client.get("/healthz").json()["model_version"]
        models[1].save(folder)
        until = time.monotonic() + 20
        while client.get("/healthz").json()["model_version"] == before:
            assert time.monotonic() < until
            time.sleep(0.05)
        text = client.get("/metrics").text
        assert 'bayesmf_model_loads_total{result="ok"}' in text


def test_a_model_in_memory_stays_as_it_is(models, tmp_path):
    table = write_items(tmp_path / "movies.csv", models[0])
    holder = ModelHolder(models[0], table)
    table.write_text(table.read_text().replace("comedy", "tragedy"))
    assert not holder.changed() and not holder.refresh()


def test_whatever_is_wrong_the_model_before_goes_on(models, folder, monkeypatch, caplog):
    holder = ModelHolder(folder)

    def fail(*args):
        raise ZeroDivisionError

    monkeypatch.setattr("bayesmf.web.served.load", fail)
    with caplog.at_level(logging.WARNING, "bayesmf.web"):
        assert not holder.refresh(wanted=True)
    assert holder.failures == 1 and "ZeroDivisionError" in caplog.text


def test_a_table_of_other_items_is_refused(models, tmp_path):
    table = tmp_path / "items.csv"
    table.write_text("item,title\nx1,A\nx2,B\n")
    with pytest.raises(InputError, match="none of the 2 ids"):
        create_app(models[0], item_info=table)


def test_items_without_a_title_are_told_of(models, tmp_path):
    app = create_app(models[0], item_info=write_items(tmp_path / "movies.csv", models[0]))
    with TestClient(app) as client:
        assert "1 of the model's 40 items" in client.get("/v1/model").json()["notes"][0]


def test_a_search_by_id_where_there_are_no_titles(models):
    ids = models[0].item_ids_
    table = ItemTable(ids, models[0].posterior_.ratings.item_counts())
    assert table.search("12", 3)[0] == ids.index(12)
    assert table.title(0) is None and table.info(0) == {}
