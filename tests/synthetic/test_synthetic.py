"""Synthetic ratings: exact counts, the planted truth, the tails, and bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

import bayesmf.synthetic.synthetic
from bayesmf.errors import InputError
from bayesmf.kernels.keys import make_key
from bayesmf.kernels.plant import _draw_heavy, _draw_light, alias_table
from bayesmf.synthetic.synthetic import SHAPES, Synthetic

PLAN = Synthetic(n_users=2000, n_items=1500, n_ratings=150_000, random_state=5)


def everything(plan, max_ratings=1_000_000):
    return tuple(np.concatenate(x) for x in zip(*plan.chunks(max_ratings), strict=True))


def planted(plan, user, item):
    U, V, a, b = plan.truth()[:4]
    return plan.mean + a[user] + b[item] + np.einsum("nd,nd->n", U[user], V[item])


@pytest.fixture(scope="module")
def made():
    return everything(PLAN)


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        Synthetic(1, 1, 1),
        Synthetic(7, 3, 7),
        Synthetic(5, 10, 30),  # as full as can be: 6 of 10 items each
        Synthetic(40, 2, 40, n_factors=3),
        Synthetic(300, 500, 60_000),  # dense: the tail is cut at 60% of the items
        Synthetic(1000, 20_000, 1003),  # one rating or two each
    ],
)
def test_counts_are_exact_and_no_pair_occurs_twice(plan):
    user, item, rating = everything(plan)
    assert (user.dtype, item.dtype, rating.dtype) == (np.int32, np.int32, np.float32)
    assert len(user) == len(item) == len(rating) == plan.n_ratings
    assert user.min() == 0
    assert user.max() == plan.n_users - 1
    assert item.min() >= 0
    assert item.max() < plan.n_items
    pairs = user.astype(np.int64) * plan.n_items + item
    assert len(np.unique(pairs)) == len(pairs)
    assert np.all(np.diff(user) >= 0)  # whole users, in order
    counts = np.bincount(user)
    np.testing.assert_array_equal(counts, plan.activity())
    assert counts.min() >= 1
    assert counts.max() <= max(1, 0.6 * plan.n_items + 1)
    assert np.all(np.isfinite(rating))


@pytest.mark.parametrize("max_ratings", [1, 997, 60_000])
def test_the_chunk_size_changes_nothing(made, max_ratings):
    sizes = [len(user) for user, _, _ in PLAN.chunks(max_ratings)]
    assert max(sizes) <= max(max_ratings, PLAN.activity().max())
    for whole, cut in zip(made, everything(PLAN, max_ratings), strict=True):
        np.testing.assert_array_equal(whole, cut)


def test_same_seed_same_bits_other_seed_other_ratings(made):
    same = Synthetic(n_users=2000, n_items=1500, n_ratings=150_000, random_state=5)
    for x, y in zip(made, everything(same), strict=True):
        assert x.tobytes() == y.tobytes()
    other = Synthetic(n_users=2000, n_items=1500, n_ratings=150_000, random_state=6)
    assert not np.array_equal(PLAN.activity(), other.activity())
    assert not np.array_equal(PLAN.popularity(), other.popularity())
    assert not np.array_equal(PLAN.truth().U, other.truth().U)
    assert not np.array_equal(made[2], everything(other)[2])


def test_rows_of_the_truth_are_made_alone():
    truth = PLAN.truth()
    assert all(x.dtype == np.float32 for x in truth[:4])
    assert truth.U.shape == (2000, 8)
    assert truth.V.shape == (1500, 8)
    U, a = PLAN.user_factors(700, 731)
    V, b = PLAN.item_factors(12, 13)
    np.testing.assert_array_equal(U, truth.U[700:731])
    np.testing.assert_array_equal(a, truth.a[700:731])
    np.testing.assert_array_equal(V, truth.V[12:13])
    np.testing.assert_array_equal(b, truth.b[12:13])


def test_what_the_truth_leaves_over_is_the_noise(made):
    user, item, rating = made
    rest = (rating - planted(PLAN, user, item)).astype(np.float64)
    n = len(rest)
    # Four standard errors: of a standard deviation noise / sqrt(2 n), of a mean noise / sqrt(n).
    assert abs(rest.std() - PLAN.noise) < 4 * PLAN.noise / np.sqrt(2 * n)
    assert abs(rest.mean()) < 4 * PLAN.noise / np.sqrt(n)
    # Noise is new for every rating: the next one says nothing about it.
    assert abs(np.corrcoef(rest[:-1], rest[1:])[0, 1]) < 4 / np.sqrt(n)
    # By columns of four, the unit that one random counter gives.
    assert abs(np.corrcoef(rest[:-4], rest[4:])[0, 1]) < 4 / np.sqrt(n)
    assert PLAN.truth().noise_floor == PLAN.noise_floor == PLAN.noise


def test_planted_strengths():
    plan = Synthetic(
        20_000, 20_000, 20_000, n_factors=5, factor_strength=0.7, bias_user=0.3, bias_item=0.2
    )
    U, V, a, b = plan.truth()[:4]
    # 20 000 disjoint pairs; kurtosis of a sum of 5 products is 3 + 6/5, so the relative
    # standard error of the deviation is sqrt((4.2 - 1) / 4 / 20000) = 0.6%: five of them.
    assert np.einsum("nd,nd->n", U, V).std() == pytest.approx(0.7, rel=0.032)
    # Normals: 1 / sqrt(2 n) = 0.5%, five of them.
    assert a.std() == pytest.approx(0.3, rel=0.025)
    assert b.std() == pytest.approx(0.2, rel=0.025)
    assert np.abs(np.corrcoef(np.column_stack([U, a]).T) - np.eye(6)).max() < 5 / np.sqrt(20_000)
    assert abs(np.corrcoef(U[:, 0], V[:, 0])[0, 1]) < 5 / np.sqrt(20_000)


def test_tails_are_heavy():
    plan = Synthetic.like("ml-100k")
    user, item, _ = everything(plan)
    items = np.sort(np.bincount(item, minlength=plan.n_items))[::-1]
    assert items[: plan.n_items // 10].sum() > 0.4 * plan.n_ratings
    users = np.sort(np.bincount(user))[::-1]
    assert users[: plan.n_users // 10].sum() > 0.3 * plan.n_ratings
    assert users.mean() > 1.5 * np.median(users)
    assert users.min() >= 20


@pytest.mark.parametrize("n_items", [15, 400])  # all items keyed, and drawn again on repeats
def test_draws_follow_the_chances(n_items):
    # One rating each, so that draws are independent: chi-square of n_items - 1 degrees, whose
    # deviation is sqrt(2 (n_items - 1)).
    plan = Synthetic(200_000, n_items, 200_000)
    counts = np.bincount(everything(plan)[1], minlength=n_items)
    expected = plan.n_ratings * plan.popularity()
    excess = ((counts - expected) ** 2 / expected).sum() - (n_items - 1)
    assert abs(excess) < 4 * np.sqrt(2 * (n_items - 1))


def test_both_ways_to_draw_have_one_distribution():
    m, wanted, users = 400, 40, 10_000
    chance = Synthetic(1, m, 1).popularity()
    keep, other = alias_table(chance)
    inverse = (1 / chance).astype(np.float32)
    seen, keys = np.full(m, -1, np.int32), np.empty(m, np.float32)
    counts, out = np.zeros((2, m)), np.empty(wanted, np.int32)
    for user in range(users):
        _draw_light(out, user, seen, keep, other, *make_key(1))
        counts[0, out] += 1
        _draw_heavy(out, user, keys, inverse, *make_key(2))
        counts[1, out] += 1
    share = counts.mean(axis=0) / users
    z = (counts[0] - counts[1]) / np.sqrt(2 * users * share * (1 - share))
    # A mean of 400 squares of normals: 1 with deviation sqrt(2 / 400). Single ones below 4.5.
    assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / m)
    assert np.abs(z).max() < 4.5
    # And not proportional to the chances: without replacement, the popular ones saturate.
    assert share.max() < 0.9 * wanted * chance.max()


def test_stars():
    plan = Synthetic(500, 400, 20_000, stars=True)
    user, item, rating = everything(plan)
    assert set(np.unique(rating)) == {1.0, 2.0, 3.0, 4.0, 5.0}
    plain = everything(Synthetic(500, 400, 20_000))
    np.testing.assert_array_equal(item, plain[1])
    np.testing.assert_array_equal(rating, np.clip(np.floor(plain[2] + np.float32(0.5)), 1, 5))
    assert plan.noise_floor is None
    assert abs((rating - planted(plan, user, item)).mean()) < 0.1


def test_ratings_in_memory(made):
    ratings = PLAN.ratings()
    assert (len(ratings), ratings.n_users, ratings.n_items) == (150_000, 2000, 1500)
    np.testing.assert_array_equal(ratings.users, made[0] + 1)
    np.testing.assert_array_equal(ratings.items, made[1] + 1)
    np.testing.assert_array_equal(ratings.rating, made[2])
    for half, part in zip(PLAN.split(0.1), zip(*PLAN.parts(0.1), strict=True), strict=True):
        columns = [np.concatenate(column) for column in zip(*part, strict=True)]
        for x, y in zip((half.user_rows, half.item_rows, half.rating), columns, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, suffix, made, monkeypatch):
    path = tmp_path / f"ratings.{suffix}"
    path.write_text("before")

    def broken(plan, *_):
        yield made, tuple(x[:5] for x in made)
        raise RuntimeError("power cut")

    monkeypatch.setattr(bayesmf.synthetic.synthetic, "make_parts", broken)
    for test in (None, tmp_path / "test.csv"):
        with pytest.raises(RuntimeError, match="power cut"):
            PLAN.write(path, test=test)
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("shape", SHAPES)
def test_known_shapes(shape):
    plan = Synthetic.like(shape, n_factors=3, random_state=9)
    assert (plan.n_users, plan.n_items, plan.n_ratings) == SHAPES[shape]
    assert (plan.n_factors, plan.random_state) == (3, 9)
    for scale in (0.5, 0.1, 0.01, 1e-4, 1e-6, 1e-9):
        part = Synthetic.like(shape, scale)
        want = SHAPES[shape][2] * scale
        assert part.n_ratings == max(round(want), part.n_users)
        assert part.n_ratings <= max(1, 0.2 * part.n_users * part.n_items)
    part = Synthetic.like(shape, 0.5)
    mean_per_user = SHAPES[shape][2] / SHAPES[shape][0]
    assert part.n_ratings / part.n_users == pytest.approx(mean_per_user, rel=0.01)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Synthetic(0, 5, 5), "n_users"),
        (lambda: Synthetic(5, -1, 5), "n_items"),
        (lambda: Synthetic(5, 5, 5.0), "n_ratings"),
        (lambda: Synthetic(5, 5, 5, n_factors=0), "n_factors"),
        (lambda: Synthetic(5, 5, 5, random_state=-1), "random_state"),
        (lambda: Synthetic(5, 5, 5, noise=-0.1), "noise"),
        (lambda: Synthetic(5, 5, 5, factor_strength=float("nan")), "factor_strength"),
        (lambda: Synthetic(5, 5, 5, mean=float("inf")), "mean"),
        (lambda: Synthetic(2**31, 5, 2**31), "below"),
        (lambda: Synthetic(10, 5, 9), "too few"),
        (lambda: Synthetic(10, 10, 61), "at most 60"),
        (lambda: Synthetic.like("movielens"), "ml-100k, ml-1m, ml-10m, netflix, yahoo"),
        (lambda: Synthetic.like("ml-1m", 0), "scale"),
        (lambda: Synthetic.like("ml-1m", 1.5), "scale"),
        (lambda: PLAN.chunks(0), "max_ratings"),
        (lambda: PLAN.write("ratings.xlsx"), r"\.csv, \.tsv or \.parquet"),
        (lambda: PLAN.write("no/such/directory/r.csv"), "No such file"),
        (lambda: PLAN.write("no/such/directory/r.parquet"), "No such file"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(InputError, match=message):
        make()
