"""Ratings to pack."""

import numpy as np
import polars as pl

# Sizes at which a thousand ratings are several chunks and stretches.
SMALL = {"chunk": 150, "stretch": 170}


def frame(n=1000, *, users=40, items=30, seed=0, repeats=False, times=False, strings=False):
    """Ratings in a random order, ids with gaps, ratings from a few levels."""
    rng = np.random.default_rng(seed)
    pair = rng.choice(users * items, n, replace=repeats)
    user, item = pair // items * 7 - 20, pair % items * 3 + 5
    found = {
        "user": [f"u{k}" for k in user] if strings else user,
        "item": [f"{k}" for k in item] if strings else item,
        "rating": rng.integers(1, 11, n) / 2,
    }
    if times:
        found["timestamp"] = rng.integers(0, 5, n)
    return pl.DataFrame(found)


def write_parts(folder, data, rows=300):
    """Write several files, one of them without a row."""
    folder.mkdir()
    for k, part in enumerate(data.iter_slices(rows)):
        part.write_parquet(folder / f"part-{k:02}.parquet", row_group_size=70)
    data.head(0).write_parquet(folder / "part-01-empty.parquet")
    (folder / "_SUCCESS").touch()
    return folder
