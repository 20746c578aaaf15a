"""Posterior propagation: exact where it can be, the same bits anywhere, honest about itself."""

import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest

from bayesmf import (
    BayesianMF,
    Checkpoint,
    Gibbs,
    InputError,
    Interrupted,
    Propagation,
    Ratings,
    pack,
)
from bayesmf.blocks.grid import Grid
from bayesmf.blocks.two_way import busy_first, cut_two_ways, make_two_way
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.chains.rounds.kinds import make_rounds
from bayesmf.chains.rounds.propagation import PropagationRounds
from bayesmf.cli import main
from bayesmf.kernels.gaussians import triangle
from bayesmf.kernels.keys import make_key
from bayesmf.model.params import RowPrior
from bayesmf.model.priors import WishartPrior
from bayesmf.server.prepare import prepare
from bayesmf.worker.block_chain import Above, BlockChain, BlockSettings, KnownRows
from contract import draws_digest
from problems import planted, random_data

NOISE = 0.5
SHORT = Propagation(grid=(2, 3), sweeps=4, warm_up=2, draws=3)
FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "ml-1m"


@pytest.fixture(scope="module")
def data():
    return Ratings(*planted(noise=NOISE)).split(0.15, random_state=1)


def fit(train, sampler=SHORT, n_factors=3, **more):
    return BayesianMF(n_factors, sampler=sampler, **{"random_state": 0, **more}).fit(train)


# -- blocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (5, 1)])
def test_blocks_hold_every_rating_once_both_ways(grid):
    data, grid = random_data(40, 30, 500), Grid(*grid)
    cut = cut_two_ways(data, grid, 0.4, 3)
    found = np.full((40, 30), np.nan, np.float32)
    for number in range(len(grid)):
        block = make_two_way(data, grid, cut, number)
        for side in range(2):
            stripe = block.side(side)
            own = np.repeat(stripe.rows, stripe.counts)
            other = block.side(1 - side).rows[stripe.other]
            at = (own, other) if side == 0 else (other, own)
            if side == 0:
                assert np.isnan(found[at]).all()
                found[at] = data.decode(stripe.value)
            else:
                np.testing.assert_array_equal(found[at], data.decode(stripe.value))
    assert np.isfinite(found).sum() == len(data)


def test_the_first_stripe_has_the_busiest_rows_and_no_stripe_is_empty():
    counts = np.array([1, 50, 3, 20, 2, 2, 2, 20])
    first, *rest = busy_first(counts, 3, 0.6, 0)
    assert first.tolist() == [1, 3]
    assert sorted(np.concatenate(rest).tolist()) == [0, 2, 4, 5, 6, 7]
    assert all(len(rows) == 1 for rows in busy_first(np.array([9, 1, 1]), 3, 0.9, 0))


# -- one block -----------------------------------------------------------------------------------


def test_what_a_block_leaves_is_the_posterior_where_that_is_known():
    """With items that are known for sure a user's posterior is Gaussian: one chain, then the next
    with what it left, is the posterior given the ratings of both."""
    data, D, tau = random_data(30, 24, 500), 2, 2.0
    rng, width = np.random.default_rng(0), 3
    V = rng.normal(size=(24, width)).astype(np.float32)
    sure = np.zeros((24, triangle(width)), np.float32)
    sure[:, [0, 2, 5]] = 1e10
    grid = Grid(1, 2)
    cut = cut_two_ways(data, grid, 0.5, 0)
    Lambda, mu = np.diag([1.0, 2.0, 3.0]), np.array([0.5, 0.0, -0.5])
    users = KnownRows(
        np.tile(mu, (30, 1)).astype(np.float32),
        np.tile(Lambda[np.tril_indices(width)], (30, 1)).astype(np.float32),
        np.zeros((0, 2), np.float32),
    )
    above = (Above(RowPrior(mu, Lambda), (1.0, 1.0)),) * 2
    settings = BlockSettings(D, WishartPrior(bias=True), tau, None, 2, 9, 0.0)
    for number in range(2):
        held = make_two_way(data, grid, cut, number)
        items = KnownRows(V[cut[1][number]], sure[cut[1][number]], users.noise)
        chain = BlockChain(held, settings, (users, items), above, tau, make_key(1))
        chain.run()
        users = chain.found(0)
    user, item, value = data.triples()
    for i in range(30):
        own = user == i
        x = np.concatenate([V[item[own], :D], np.ones((own.sum(), 1))], axis=1).astype(float)
        A = Lambda + tau * x.T @ x
        mean = np.linalg.solve(A, Lambda @ mu + tau * x.T @ (value[own] - V[item[own], D]))
        np.testing.assert_allclose(users.mean[i], mean, atol=2e-3)
        np.testing.assert_allclose(
            users.precision[i], A[np.tril_indices(width)], rtol=5e-3, atol=1e-2
        )


# -- a fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", ["1x1", "2x2", "3x4"])
def test_accuracy_and_coverage(data, grid):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of convergence in particular
        model = fit(data[0], Propagation(grid=grid))
    scores = model.evaluate(data[1])
    joint = fit(data[0], Gibbs(epochs=80)).evaluate(data[1])
    assert scores.rmse < joint.rmse * 1.05
    assert abs(scores.coverage["90"] - 0.9) < 0.06
    found = model.report_["convergence"]
    assert found["state"] == "approximate" and found["converged"] is None and not found["advice"]
    assert "approximate" in found["verdict"]
    assert model.report_["draws"] == 64


def test_same_bits_on_any_number_of_workers(data):
    reference = draws_digest(fit(data[0], engine="serial"))
    for n_workers in (1, 3):
        for engine in ("threads", "simulated"):
            assert draws_digest(fit(data[0], engine=engine, n_workers=n_workers)) == reference
    assert draws_digest(fit(data[0], random_state=1)) != reference


@pytest.mark.parametrize(
    "more",
    [
        {"noise_by": None},
        {"noise_by": "user", "keep": "users"},
        {"noise_by": "item", "prior": "gamma"},
        {"tau": 4.0, "prior": "wishart"},
        {"keep": "both", "max_draws": 2},
    ],
)
def test_every_model_and_kept_side(data, more):
    model = fit(data[0], Propagation(grid=(2, 2), sweeps=8, draws=8), n_factors=5, **more)
    assert model.evaluate(data[1]).rmse < NOISE * 1.4
    assert model.report_["draws"] == more.get("max_draws", 8)
    mean, std = model.predict(data[1].users[:5], data[1].items[:5], return_std=True)
    assert np.isfinite(mean).all() and (std > 0).all()


def test_stages_are_told(data):
    model = BayesianMF(3, sampler=SHORT, random_state=0).fit(data[0], validation=data[1])
    assert [event["epoch"] for event in model.history_] == [1, 2, 3]
    assert model.history_[2]["rmse"] < model.history_[0]["rmse"]


def test_a_resumed_chain_does_its_stages_again(data, monkeypatch):
    reference = draws_digest(fit(data[0]))
    plain = PropagationRounds.round

    def forgetful(self, state, t):
        if t in (2, 4):
            state.propagated = None
        yield from plain(self, state, t)

    monkeypatch.setattr(PropagationRounds, "round", forgetful)
    assert draws_digest(fit(data[0])) == reference


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_run_goes_on_from_its_checkpoint(data, tmp_path, epoch):
    reference = draws_digest(fit(data[0]))

    def end(event):
        if event.epoch == epoch and not (tmp_path / "ended").exists():
            (tmp_path / "ended").touch()
            os.kill(os.getpid(), signal.SIGTERM)

    checkpoint = Checkpoint(tmp_path / "run", every=0.001)
    model = BayesianMF(3, sampler=SHORT, random_state=0, callbacks=[end])
    with pytest.raises(Interrupted):
        model.fit(data[0], checkpoint=checkpoint)
    again = Checkpoint(tmp_path / "run", every=0.001, resume=True)
    assert draws_digest(model.fit(data[0], checkpoint=again)) == reference


def test_a_model_can_be_saved_and_updated(data, tmp_path):
    model = fit(data[0])
    model.save(tmp_path / "model")
    again = BayesianMF.load(tmp_path / "model")
    pairs = data[1].users[:9], data[1].items[:9]
    np.testing.assert_array_equal(again.predict(*pairs), model.predict(*pairs))
    assert isinstance(again.sampler, Propagation) and str(again.sampler.grid) == "2x3"
    more = again.partial_fit(data[1])
    assert more.report_["updates"] == 1


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Propagation(grid=(999, 1)), "larger than the matrix"),
        (Propagation(grid=(40, 40)), "1,600 blocks for "),
        (Propagation(first=0.0), "first"),
        (Propagation(first=1.0), "first"),
        (Propagation(sweeps=1), "sweeps"),
        (Propagation(grid="2y2"), "grid"),
    ],
)
def test_refusals(data, rule, said):
    with pytest.raises(InputError, match=said):
        fit(data[0], rule)


@pytest.mark.data
@pytest.mark.skipif(not FOLDER.exists(), reason="MovieLens 1M is not here")
def test_movielens_1m():
    """The figures of docs/propagation.md, as a floor."""
    train, test = Ratings.read(FOLDER / "ratings.dat").split(0.1, random_state=0)
    joint = BayesianMF(30, sampler=Gibbs(epochs=40, joint=4), random_state=0).fit(train)
    found = BayesianMF(30, sampler=Propagation(grid=(4, 4)), random_state=0).fit(train)
    joint, found = joint.evaluate(test), found.evaluate(test)
    assert found.rmse < 1.006 * joint.rmse
    assert abs(found.coverage["90"] - joint.coverage["90"]) < 0.02


def test_command_line(tmp_path, capsys):
    user, item, rating = planted()
    lines = [f"{u},{i},{r:.3f}" for u, i, r in zip(user, item, rating, strict=True)]
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    fit = [
        "fit",
        tmp_path / "ratings.csv",
        "--out",
        tmp_path / "model",
        "--factors",
        2,
        "--seed",
        0,
    ]
    how = ["--sampler", "propagation", "--grid", "2x2", "--sweeps", 4, "--warm-up", 2, "--draws", 5]
    assert main([str(word) for word in fit + how]) == 0
    assert "approximate" in capsys.readouterr().out
    assert main(["diagnose", str(tmp_path / "model")]) == 0
    assert "nothing to say of chains" in capsys.readouterr().out


@pytest.mark.parametrize("grid", [(1, 1), (2, 3)])
def test_workers_cut_the_same_blocks_from_packed_ratings(tmp_path, grid):
    user, item, rating = planted()
    rows = zip(user, item, np.rint(rating), strict=True)
    lines = "".join(f"{u},{i},{r:g}\n" for u, i, r in rows)
    (tmp_path / "r.csv").write_text("user,item,rating\n" + lines)
    pack(tmp_path / "r.csv", tmp_path / "packed")
    data = prepare(tmp_path / "packed", standardize=True).data
    rounds = make_rounds(data, Propagation(grid=grid).resolve(data_shape(data)), 3)
    for recipe, held in zip(rounds.recipes, rounds.held, strict=True):
        made = recipe.load()
        for side in range(2):
            for mine, theirs in zip(
                vars(made.side(side)).values(), vars(held.side(side)).values(), strict=True
            ):
                np.testing.assert_array_equal(mine, theirs)
