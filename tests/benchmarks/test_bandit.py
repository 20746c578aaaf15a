"""The benchmark of Thompson sampling in a shop, with few people and few items."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def worlds(monkeypatch):
    """Small worlds in place of those of the study."""
    from benchmarks.ranking import bandit, bandit_report
    from benchmarks.ranking.bandit_shop import ShopWorld

    small = {
        "goods": ShopWorld("goods that come and go", known=100, answers=10, on_sale=50, arrivals=4),
        "people": ShopWorld("new people", known=100, answers=10, on_sale=50, stays=2),
        "cold": ShopWorld("", known=90, answers=1, on_sale=40, stays=1, visits=1, opening=True),
    }
    for module in (bandit, bandit_report):
        monkeypatch.setattr(module, "WORLDS", small)
    monkeypatch.setattr(bandit, "DRAWS", 8)
    return small


def test_worlds_match_their_titles(worlds):
    from benchmarks.ranking.bandit_shop import ROUND, Shop, ShopWorld

    goods, people, cold = (Shop(world, 4, 0) for world in worlds.values())
    again = Shop(worlds["goods"], 4, 0)
    assert np.array_equal(goods.buys, again.buys)
    assert not np.array_equal(goods.buys, Shop(worlds["goods"], 4, 1).buys)
    for shop in (goods, people):
        assert all(len(np.unique(who)) == shop.people for who in shop.visitors)
        assert abs(shop.buys.mean() - shop.chance.mean()) < 0.02
    assert [len(goods.on_sale(r)[1]) for r in range(4)] == [0, 4, 4, 4]
    assert all(sum(map(len, goods.on_sale(r))) == 50 for r in range(4))
    once = Shop(ShopWorld("", 100, 10, 50, stays=1, visits=1), 3, 0)
    assert len(np.unique(once.visitors)) == 3 * once.people == 3 * ROUND
    times = np.bincount(np.concatenate(people.visitors))
    assert times[:100].sum() == 0 and times[100:].max() == 2  # nobody of the past, nobody thrice
    met, unmet = cold.on_sale(0)
    assert set(met) == set(cold.past[1]) and 0 < len(unmet) == len(cold.debuts[0])
    assert len(cold.on_sale(1)[0]) == 40 and len(cold.on_sale(1)[1]) == 0


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("world", ["goods", "people", "cold"])
def test_every_policy_shows_what_may_be_shown(worlds, world):
    from benchmarks.ranking.bandit import POLICIES, first_model, run
    from benchmarks.ranking.bandit_shop import Shop

    shop = Shop(worlds[world], 2, 0)
    names = [name for name in POLICIES if name != "best item" or world == "cold"]
    model, known = first_model(shop, 0), {}
    for name in names:
        known[name] = run(shop, name, model, 0)
        assert known[name].shape == (2, shop.world.visits, shop.people)
    before = model.report_["ratings"]
    assert before == len(shop.past[0]), "a run has taught the model of the next one"
    totals = {name: found.sum() for name, found in known.items()}
    ranked = sorted(totals, key=totals.get)
    assert ranked[-1] == "oracle"
    if world == "cold":  # too little is known of who learns; of who knows, this is
        assert ranked[-2] == "best item" and len(np.unique(known["best item"])) > 100
    else:
        assert ranked[0] == "random"
        assert len({round(total, 6) for total in totals.values()}) == len(names)


def drawn_for_one(model, person):
    """Catalogue, person's rows, what Thompson sampling draws, scores by a policy and a pick."""
    from bayesmf.posterior.ranking import Catalogue, UserScores, own_rows, thompson_pick
    from bayesmf.process import Pool

    catalogue = Catalogue.of(model.posterior_)
    own = own_rows(catalogue.users(np.arange(3)), person)
    pick = thompson_pick(5, person, len(model.posterior_.draws), own.means.shape[1])

    def scores(policy, pick=pick):
        return UserScores(catalogue, policy, True, Pool(1)).for_user(
            person, own, pick, np.arange(50)
        )

    return catalogue, own, pick, scores


def test_two_parts_make_up_thompson_sampling(worlds):
    from benchmarks.ranking.bandit import first_model
    from benchmarks.ranking.bandit_shop import Shop, beside_guess

    model = first_model(Shop(worlds["goods"], 1, 0), 0)
    catalogue, own, pick, scores = drawn_for_one(model, 1)
    person = beside_guess(catalogue, 1, own, pick, None)
    items = scores("thompson-items", pick._replace(noise=np.zeros_like(pick.noise)))
    np.testing.assert_allclose(items + person, scores("thompson"), atol=1e-5)


def test_half_of_the_way_is_half_as_wide(worlds):
    from benchmarks.ranking.bandit import first_model
    from benchmarks.ranking.bandit_shop import Shop, part_of_the_way

    model = first_model(Shop(worlds["goods"], 1, 0), 0)
    catalogue, own, pick, scores = drawn_for_one(model, 1)
    mean, whole = scores("mean", None), scores("thompson")
    for share, wanted in ((0.0, mean), (0.5, (mean + whole) / 2), (1.0, whole)):
        found = mean + part_of_the_way(share)(catalogue, 1, own, pick, mean)
        np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_command_prints_a_table_and_writes(worlds, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    from benchmarks.ranking.bandit import main

    asked = ["--visits", "800", "--seeds", "2", "--worlds", "goods", "--policies", "mean,thompson"]
    stored = str(tmp_path / "a.csv")
    assert main([*asked, "--csv", stored, "--figure", str(tmp_path / "a.png")]) == 0
    told = capsys.readouterr().out
    assert told.count("| goods |") == 2 and "at least 10% more on" in told
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 2 * 2 and lines[-1].startswith("goods,1,thompson,800,")
    assert main(["--from", stored, "--figure", str(tmp_path / "b.png")]) == 0
    assert capsys.readouterr().out == told
    drawn = [(tmp_path / name).read_bytes() for name in ("a.png", "b.png")]
    assert min(map(len, drawn)) > 10_000


def test_the_control_learns():
    from benchmarks.ranking.bandit_shop import Shop, ShopWorld, control, fitted

    rng = np.random.default_rng(0)
    a, b = fitted(rng.binomial(200, rng.beta(3, 20, size=2000)), np.full(2000, 200.0))
    assert (a, b) == pytest.approx((3, 20), rel=0.1)
    shop = Shop(ShopWorld("", 400, 10, 20, stays=1, visits=1), 40, 0)
    best = shop.chance.mean(0).max()
    found = control(shop, "fitted thompson", 0).mean((1, 2))
    assert abs(found[-10:].mean() / best - 1) < 0.1 < 1 - found[0] / best


def test_gains_of_nothing_are_nothing(worlds):
    from benchmarks.ranking.bandit import gains, run
    from benchmarks.ranking.bandit_shop import Shop

    shop = Shop(worlds["goods"], 2, 0)
    one, best = (run(shop, name, None, 0) for name in ("random", "oracle"))
    assert gains(one, one, shop) == (0.0, 0.0)
    more, half = gains(best, one, shop)
    assert 0 < half < more
    assert more == pytest.approx(100 * (best.sum() / one.sum() - 1))


FIGURES = ROOT / "docs" / "figures"


@pytest.fixture
def stored():
    """Rows of the first three seeds and further rows, as they are stored."""
    from benchmarks.ranking.bandit_report import read

    first = read(FIGURES / "bandit.csv")
    more = read(FIGURES / "bandit_more.csv")
    return first, more


def test_what_is_stored_is_what_the_commands_run(stored):
    from benchmarks.ranking.bandit import LATE, MORE, POLICIES, WORLDS

    first, more = stored
    everything = first + more
    kept = [world for world in WORLDS if world not in LATE]
    runs = [(world, range(3), list(POLICIES)) for world in kept] + MORE
    wanted = {(w, seed, name) for w, seeds, names in runs for seed in seeds for name in names}
    wanted -= {(w, seed, "best item") for w, seed, _ in wanted if not WORLDS[w].strangers}
    assert len(everything) == len(wanted) and len(first) == 3 * sum(
        len(POLICIES) - (not WORLDS[world].strangers) for world in kept
    )
    assert {(row["world"], row["seed"], row["policy"]) for row in everything} == wanted
    assert {row["visits"] for row in everything} == {20_000}


def test_every_table_of_the_page_is_stored(stored):
    from benchmarks.ranking.bandit_report import over_seeds, short_table, table

    first, more = stored
    page = (ROOT / "docs" / "bandits.md").read_text()
    blocks = re.findall(r"(?:^\|.*\n)+", page, re.M)
    wanted = [short_table(first), table(first)]
    for world in ("short lives", "few goods", "front page", "cold start"):
        wanted.append(over_seeds(more, world))
    wanted += [over_seeds(more, world, True) for world in ("front page", "cold start")]
    found = {tuple(block.splitlines()) for block in blocks}
    assert len(found) == len(wanted) + 1, "one more, of what shops are like"
    for lines in wanted:
        assert tuple(lines) in found, "\n".join(lines)
