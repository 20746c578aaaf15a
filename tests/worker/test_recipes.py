"""What workers find in a packed folder is what the driver holds, to the bit."""

from dataclasses import fields

import numpy as np
import pytest

from bayesmf import SGHMC, SGLD, Gibbs, InputError, Ratings, pack
from bayesmf.blocks.blocks import make_block, make_blocks
from bayesmf.blocks.grid import Grid
from bayesmf.chains.rounds.blocks import data_shape
from bayesmf.run.driver import make_rounds
from bayesmf.run.prepare import as_packed, prepare
from problems import random_data


def _same(one, other):
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, tuple):
        for mine, theirs in zip(one, other, strict=True):
            _same(mine, theirs)
    elif hasattr(one, "__dataclass_fields__"):
        for field in fields(one):
            _same(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    rng = np.random.default_rng(0)
    file = folder / "ratings.csv"
    pairs = rng.permutation(60 * 40)[:900]
    lines = [f"{p // 40},{p % 40},{r}" for p, r in zip(pairs, rng.integers(1, 6, 900), strict=True)]
    file.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    pack(file, folder / "packed")
    return folder / "packed", Ratings.read(file)


@pytest.mark.parametrize("grid", [(1, 1), (3, 3), (4, 1), (2, 3)])
@pytest.mark.parametrize("batches", [1, 7])
def test_a_block_made_alone_is_the_block_made_with_all(grid, batches):
    data = random_data(40, 30, 500)
    for number, block in enumerate(make_blocks(data, Grid(*grid), batches, 5)):
        _same(make_block(data, Grid(*grid), batches, 5, number), block)


@pytest.mark.parametrize(
    "rule",
    [Gibbs(), SGLD(grid=(3, 3), n_chains=3), SGLD(grid=(4, 1), minibatch="replacement"),
     SGHMC(grid=(2, 2), exact_below=12)],
)  # fmt: skip
def test_recipes_give_what_is_held(packed, rule):
    data = prepare(as_packed(packed[0]), standardize=True).data
    rule = rule.choose(data_shape(data), 4, 1)
    rounds = make_rounds(data, rule.resolve(data_shape(data)), 3)
    assert len(rounds.recipes) == len(rounds.held)
    blocks = len(getattr(rounds, "blocks", ())) or len(rounds.held)
    for recipe, held in zip(rounds.recipes[:blocks], rounds.held, strict=False):
        _same(recipe.load(), held)
    assert all(recipe is None for recipe in rounds.recipes[blocks:])
    assert (len(rounds.held) > blocks) == isinstance(rule, SGHMC)


def test_ratings_in_memory_have_no_recipes(packed):
    data = prepare(packed[1], standardize=True).data
    assert set(make_rounds(data, Gibbs().resolve(data_shape(data)), 0).recipes) == {None}


def test_another_folder_is_noticed(packed):
    data = prepare(as_packed(packed[0]), standardize=True).data
    rounds = make_rounds(data, Gibbs().resolve(data_shape(data)), 0)
    recipe = rounds.recipes[0]
    changed = type(recipe)(
        recipe.origin._replace(digest="0" * 64), True, recipe.first, recipe.end, recipe.levels
    )
    with pytest.raises(InputError, match="other ratings"):
        changed.load()
