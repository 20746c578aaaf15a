"""A fit of packed ratings is the fit of the same ratings in memory, bit for bit."""

import json

import numpy as np
import pytest

from bayesmf import SGHMC, SGLD, BayesianMF, Gibbs, InputError, PackedRatings, Ratings, pack
from bayesmf.cli import main
from forged import flip
from problems import planted


@pytest.fixture(params=["stars", "numbers"])
def ratings(request, tmp_path):
    user, item, value = planted(60, 40, 900)
    if request.param == "stars":
        value = np.clip(np.round(value), 1, 5)
    lines = [f"{u},{i},{float(np.float32(r))!r}" for u, i, r in zip(user, item, value, strict=True)]
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    "sampler",
    [
        Gibbs(epochs=4),
        Gibbs(epochs=4, joint=4),
        SGLD(epochs=4, burn_in=2),
        SGHMC(epochs=4, burn_in=2),
    ],
    ids=["whole rows", "columns", "sgld", "sghmc"],
)
def test_same_bits_from_disk(ratings, sampler, tmp_path):
    packed = pack(ratings, tmp_path / "packed")
    one = BayesianMF(5, sampler=sampler, random_state=1).fit(Ratings.read(ratings))
    two = BayesianMF(5, sampler=sampler, random_state=1).fit(packed)
    three = BayesianMF(5, sampler=sampler, random_state=1).fit(tmp_path / "packed")
    assert one.user_ids_ == two.user_ids_
    users, items = list(one.user_ids_.ids), list(one.item_ids_.ids)
    expected = one.predict(users[:40], items[:40])
    # The mean is found in another order, so units may differ in their last digit.
    assert np.allclose(two.predict(users[:40], items[:40]), expected, atol=1e-4)
    assert np.array_equal(two.posterior_.draws.users, three.posterior_.draws.users)


def test_from_the_command_line(ratings, tmp_path, capsys):
    assert main(["pack", str(ratings), "--out", str(tmp_path / "packed")]) == 0
    model = tmp_path / "model"
    capsys.readouterr()
    arguments = ["fit", str(tmp_path / "packed"), "--factors", "3", "--epochs", "4", "--json"]
    assert main([*arguments, "--out", str(model), "--test", str(ratings)]) == 0
    assert json.loads(capsys.readouterr().out)["ratings"] == 900
    assert main([*arguments, "--out", str(model), "--holdout", "0.1"]) == 2
    assert "before bayesmf pack" in capsys.readouterr().err


def test_a_folder_is_not_packed_ratings(tmp_path):
    (tmp_path / "packed").mkdir()
    assert not PackedRatings.is_packed(tmp_path / "packed")
    with pytest.raises(InputError):
        BayesianMF(2).fit(tmp_path / "packed")


@pytest.mark.parametrize("name", ["by_item_other", "by_user_value", "item_id_ids"])
def test_a_damaged_byte_is_refused_before_the_fit(ratings, name, tmp_path, capsys):
    pack(ratings, tmp_path / "packed")
    flip(tmp_path / "packed", name)
    arguments = ["fit", str(tmp_path / "packed"), "--out", str(tmp_path / "model")]
    assert main(arguments) == 2
    assert "damaged" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_options_for_files_are_refused(ratings, tmp_path, capsys):
    pack(ratings, tmp_path / "packed")
    arguments = ["fit", str(tmp_path / "packed"), "--out", str(tmp_path / "model")]
    assert main([*arguments, "--duplicates", "mean"]) == 2
    assert "give them to bayesmf pack" in capsys.readouterr().err
