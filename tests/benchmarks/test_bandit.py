"""The benchmark of Thompson sampling in a shop, with few people and few items."""

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


@pytest.fixture
def worlds(monkeypatch):
    """Two small worlds in place of those of the study."""
    from benchmarks import bandit, bandit_report
    from benchmarks.bandit_worlds import World

    small = {
        "goods": World("goods that come and go", known=100, answers=10, on_sale=50, arrivals=4),
        "people": World("new people", known=100, answers=10, on_sale=50, stays=2),
    }
    for module in (bandit, bandit_report):
        monkeypatch.setattr(module, "WORLDS", small)
    monkeypatch.setattr(bandit, "DRAWS", 8)
    return small


def test_worlds_are_as_they_are_told(worlds):
    from benchmarks.bandit_worlds import ROUND, Shop, World

    goods, people = (Shop(world, 4, 0) for world in worlds.values())
    again = Shop(worlds["goods"], 4, 0)
    assert np.array_equal(goods.buys, again.buys)
    assert not np.array_equal(goods.buys, Shop(worlds["goods"], 4, 1).buys)
    for shop in (goods, people):
        assert all(len(np.unique(who)) == shop.people for who in shop.visitors)
        assert abs(shop.buys.mean() - shop.chance.mean()) < 0.02
    assert [len(goods.on_sale(r)[1]) for r in range(4)] == [0, 4, 4, 4]
    assert all(sum(map(len, goods.on_sale(r))) == 50 for r in range(4))
    once = Shop(World("", 100, 10, 50, stays=1, visits=1), 3, 0)
    assert len(np.unique(once.visitors)) == 3 * once.people == 3 * ROUND
    times = np.bincount(np.concatenate(people.visitors))
    assert times[:100].sum() == 0 and times[100:].max() == 2  # nobody of the past, nobody thrice


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("world", ["goods", "people"])
def test_every_policy_shows_what_may_be_shown(worlds, world):
    from benchmarks.bandit import POLICIES, first_model, run
    from benchmarks.bandit_worlds import Shop

    shop = Shop(worlds[world], 2, 0)
    model, known = first_model(shop, 0), {}
    for name in POLICIES:
        known[name] = run(shop, name, model, 0)
        assert known[name].shape == (2, shop.world.visits, shop.people)
    before = model.report_["ratings"]
    assert before == 1000, "a run has taught the model of the next one"
    totals = {name: found.sum() for name, found in known.items()}
    assert max(totals, key=totals.get) == "oracle"
    assert min(totals, key=totals.get) == "random"
    assert len({round(total, 6) for total in totals.values()}) == len(POLICIES)


def test_two_parts_make_up_thompson_sampling(worlds):
    from benchmarks.bandit import beside_guess, first_model
    from benchmarks.bandit_worlds import Shop

    from bayesmf.posterior.catalogue import Catalogue, own_rows
    from bayesmf.posterior.one_user import UserScores, thompson_pick
    from bayesmf.system.threads import Pool

    posterior = first_model(Shop(worlds["goods"], 1, 0), 0).posterior_
    catalogue = Catalogue.of(posterior)
    own = own_rows(catalogue.users(np.arange(3)), 1)
    pick = thompson_pick(5, 1, len(posterior.draws), own.means.shape[1])
    person = beside_guess(own, pick, catalogue.rows[pick.draw], posterior.n_factors)
    drawn = pick, pick._replace(noise=np.zeros_like(pick.noise))
    whole, items = (
        UserScores(catalogue, policy, True, Pool(1)).for_user(1, own, one, np.arange(50))
        for policy, one in zip(("thompson", "thompson-items"), drawn, strict=True)
    )
    np.testing.assert_allclose(items + person, whole, atol=1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_command_prints_a_table_and_writes(worlds, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    from benchmarks.bandit import main

    asked = ["--visits", "800", "--seeds", "2", "--worlds", "goods", "--policies", "mean,thompson"]
    files = ["--csv", str(tmp_path / "a.csv"), "--figure", str(tmp_path / "a.png")]
    assert main([*asked, *files]) == 0
    told = capsys.readouterr().out
    assert told.count("| goods |") == 2 and "at least 10% more on" in told
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 2 * 2 and lines[-1].startswith("goods,1,thompson,800,")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_spread_is_stated_and_true(worlds, capsys):
    from benchmarks.bandit import main

    assert main(["--spread", "--seeds", "1", "--worlds", "goods"]) == 0
    lines = [line.split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(lines) == 3 and all(line[1].strip() == "goods" for line in lines)
    assert all(0.02 < float(number) < 0.5 for line in lines for number in line[3:5])


def test_gains_of_nothing_are_nothing(worlds):
    from benchmarks.bandit import gains, run
    from benchmarks.bandit_worlds import Shop

    shop = Shop(worlds["goods"], 2, 0)
    one, best = (run(shop, name, None, 0) for name in ("random", "oracle"))
    assert gains(one, one, shop) == (0.0, 0.0, 0.0)
    more, low, high = gains(best, one, shop)
    assert 0 < low < more < high
    assert more == pytest.approx(100 * (best.sum() / one.sum() - 1))


def test_verdicts_say_who_earns_more(worlds):
    from benchmarks.bandit_report import verdicts

    gains = {"random": (), "mean": (0, 0), "thompson": (12, 8), "ucb": (12, 11), "oracle": (90, 90)}
    rows = [
        {"world": "goods", "policy": name, "seed": seed, "gain": (gain, gain - 1, gain + 1)}
        for name, found in gains.items()
        for seed, gain in enumerate(found)
    ] + [{"world": "goods", "policy": "random", "seed": 0}]
    assert verdicts(rows) == [
        "goods (goods that come and go): thompson earns 10.0% more than mean, at least 10% more on "
        "1 of 2 seeds; on every seed so much more: ucb"
    ]
    rows = [row for row in rows if row["policy"] != "ucb"]
    assert verdicts(rows)[0].endswith("nobody")


def test_what_is_not_there_is_said(capsys):
    from benchmarks.bandit import main

    for asked, told in (
        (["--worlds", "Mars"], "there is no world 'Mars'"),
        (["--policies", "mean,best"], "there is no policy 'best'"),
        (["--visits", "10"], "--visits is at least 400"),
    ):
        with pytest.raises(SystemExit):
            main(asked)
        assert told in capsys.readouterr().err
