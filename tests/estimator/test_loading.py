"""A loaded model answers once its bytes were verified."""

import copy
import gc
import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from bayesmf import SGLD, BayesianMF, Gibbs, InputError
from bayesmf.storage import verification as verifying
from bayesmf.storage.artefact import MODEL, read_file
from cli_tools import run
from forged import flip, place
from problems import planted

SHA256 = hashlib.sha256


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    data = planted(n_users=40, n_items=30, n_ratings=600)
    fitted = BayesianMF(3, sampler=Gibbs(epochs=12, burn_in=4), random_state=0).fit(data)
    folder = tmp_path_factory.mktemp("saved") / "model"
    fitted.save(folder)
    return folder


@pytest.fixture
def damaged(saved, tmp_path):
    """A bit of the last item's last conditional mean."""
    path = shutil.copy(saved, tmp_path / "model")
    flip(path, "item_means")
    return path


@pytest.fixture
def slow(monkeypatch):
    """Threads that verify wait for a word, which is given at the end at the latest."""
    go, real, here = threading.Event(), verifying._Shared.fault, threading.main_thread()

    def fault(shared, name):
        while threading.current_thread() is not here and not (shared.stopped or go.is_set()):
            time.sleep(0.001)
        return real(shared, name)

    monkeypatch.setattr(verifying._Shared, "fault", fault)
    monkeypatch.setattr(verifying, "_LARGE", 1)
    yield go
    go.set()


def verifiers():
    return [thread for thread in threading.enumerate() if thread.name == "bayesmf-verify"]


ANSWERS = {
    "predict": lambda m, _: m.predict(1, 1),
    "predict_interval": lambda m, _: m.predict_interval(1, 1),
    "recommend": lambda m, _: m.recommend(1001),
    "recommend_many": lambda m, _: m.recommend_many(n=2),
    "evaluate": lambda m, _: m.evaluate(([1001], [5], [3.0])),
    "calibration": lambda m, _: m.calibration(([1001], [5], [3.0])),
    "diagnose": lambda m, _: m.diagnose(),
    "posterior": lambda m, _: m.posterior_,
    "save": lambda m, folder: m.save(folder / "again"),
    "pickle": lambda m, _: pickle.dumps(m),
}


@pytest.mark.parametrize("answer", list(ANSWERS))
def test_no_answer_of_a_damaged_model(damaged, answer, tmp_path):
    with pytest.raises(InputError) as told:
        read_file(damaged, MODEL)
    loaded = BayesianMF.load(damaged)
    assert loaded.report_["factors"] == 3 and len(loaded.user_ids_) == 40
    for _ in range(2):  # and not the second time
        with pytest.raises(InputError) as found:
            ANSWERS[answer](loaded, tmp_path)
        assert str(found.value) == str(told.value)
    assert not (tmp_path / "again").exists()


def test_a_load_does_not_wait_and_an_answer_does(saved, slow):
    loaded = BayesianMF.load(saved)
    assert loaded.history_ and len(loaded.item_ids_) == 30
    assert verifiers()
    answered = []
    asking = threading.Thread(target=lambda: answered.append(loaded.predict(1001, 5)))
    asking.start()
    asking.join(0.2)
    assert not answered
    slow.set()
    asking.join(30)
    assert answered and not verifiers()


def test_what_a_load_itself_reads_is_verified_at_once(saved, tmp_path):
    for name in ("user_id_ids", "item_id_ids", "history", "tau", "user_mu"):
        path = shutil.copy(saved, tmp_path / name)
        flip(path, name)
        with pytest.raises(InputError, match=f"{name} does not have the digest"):
            BayesianMF.load(path)


def test_verify_may_be_left_out(saved, damaged, monkeypatch):
    taken = []
    monkeypatch.setattr(verifying.hashlib, "sha256", lambda *raw: taken.append(raw) or SHA256(*raw))
    expected = BayesianMF.load(saved, verify=False).predict(1001, 5)
    assert BayesianMF.load(damaged, verify=False).predict(1001, 5) == expected
    assert len(taken) == 2  # of headers
    os.truncate(damaged, damaged.stat().st_size - 1)
    with pytest.raises(InputError, match="shorter than its arrays"):
        BayesianMF.load(damaged, verify=False)
    for value in ("yes", 1, None):
        with pytest.raises(InputError, match="verify must be True or False"):
            BayesianMF.load(saved, verify=value)


def test_a_fit_takes_the_place_of_what_was_loaded(damaged):
    loaded = BayesianMF.load(damaged)
    loaded.fit(planted(n_users=40, n_items=30, n_ratings=600))
    assert np.isfinite(loaded.predict(1001, 5))


def test_copies_are_of_a_verified_model(saved):
    loaded = BayesianMF.load(saved)
    for other in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(BayesianMF.load(saved)))):
        assert other.predict(1001, 5) == loaded.predict(1001, 5)


def test_a_model_saved_in_its_place_meanwhile_is_another(saved, slow, tmp_path):
    """The old one's bytes are still there for whoever has opened them."""
    shutil.copy(saved, tmp_path / "model")
    loaded = BayesianMF.load(tmp_path / "model")
    other = BayesianMF(3, sampler=SGLD(epochs=4), random_state=1)
    other.fit(planted(n_users=40, n_items=30, n_ratings=600)).save(tmp_path / "model")
    slow.set()
    assert loaded.predict(1001, 5) == BayesianMF.load(saved).predict(1001, 5)


def test_a_file_cut_short_meanwhile_is_refused(saved, slow, tmp_path):
    shutil.copy(saved, tmp_path / "model")
    loaded = BayesianMF.load(tmp_path / "model")
    os.truncate(tmp_path / "model", place(saved, "items")[0])
    slow.set()
    with pytest.raises(InputError, match="it has become shorter"):
        loaded.predict(1001, 5)


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_forked_process_verifies_by_itself(saved, damaged, slow, good):
    """Its parent's threads are under way, and are not there."""
    loaded = BayesianMF.load(saved if good else damaged)
    assert verifiers()
    child = os.fork()
    if child == 0:
        status = 9
        try:
            loaded._fitted()
            status = 0
        except InputError as error:
            status = 2 if "item_means does not have the digest" in str(error) else 8
        finally:
            os._exit(status)
    for _ in range(3000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == (0 if good else 2)


def test_a_forgotten_model_is_not_read_on(saved, slow):
    loaded = BayesianMF.load(saved)
    assert verifiers()
    del loaded
    gc.collect()
    assert not verifiers()


def test_without_threads_the_first_answer_verifies(saved, damaged, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        good, bad = BayesianMF.load(saved), BayesianMF.load(damaged)
    assert np.isfinite(good.predict(1001, 5))
    with pytest.raises(InputError, match="item_means"):
        bad.predict(1001, 5)


@pytest.mark.parametrize("last", ["", "del model"])
def test_a_process_may_end_at_once(saved, last):
    """Threads that read files without an end neither keep it nor crash it."""
    code = (
        "import sys, time; from bayesmf import BayesianMF\n"
        "from bayesmf.storage import verification as verifying\n"
        "def endless(shared, claim):\n"
        "    while True: time.sleep(0.01); yield b'x' * 8\n"
        "before = BayesianMF.load(sys.argv[1], verify=False)._found\n"
        "verifying._LARGE, verifying._Shared.pieces = 1, endless\n"
        "model = before.verification; model.begin()\n"
        f"time.sleep(0.05)\n{last}"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, saved], capture_output=True, text=True, timeout=100
    )
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("command", ["recommend", "predict", "evaluate", "diagnose"])
def test_the_command_line_says_what_is_damaged(damaged, tmp_path, command):
    (tmp_path / "pairs.csv").write_text("user,item,rating\n1001,5,3\n")
    rest = {"recommend": ["1001"], "diagnose": []}.get(command, [tmp_path / "pairs.csv"])
    found = run(command, damaged, *rest)
    assert found.status == 2
    assert "the array item_means does not have the digest noted" in found.sentence
