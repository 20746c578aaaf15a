"""Sound files and folders, from which attacks make damaged ones, and the answers they give."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path
from typing import Any

import numpy as np

FIT: dict[str, Any] = {"n_factors": 3, "random_state": 5, "engine": "serial", "progress": False}
EPOCHS = 8
N_USERS, N_ITEMS, N = 40, 25, 500


class Material:
    """A folder with all of it; made by `make`, opened by workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers = dict(np.load(folder / "answers.npz"))

    def bytes(self, name: str) -> bytes:
        """The bytes of a file."""
        return (self.folder / name).read_bytes()


def estimator(**more: Any) -> Any:
    """What all models are fitted by: short, and the same bits each time."""
    from bayesmf import BayesianMF, Gibbs

    return BayesianMF(sampler=Gibbs(epochs=EPOCHS, burn_in=2, n_chains=2), **FIT, **more)


def all_pairs(model: Any) -> tuple[list[Any], list[Any]]:
    """Some known pairs, and some with unknown ids."""
    # A model may have been saved without users: then no user is known.
    users, items = list(model.user_ids_)[:12] or [*range(1, 13)], list(model.item_ids_)[:12]
    unseen = "nobody" if isinstance(users[0], str) else 999_999
    return [*users, unseen, users[0]], [*items, items[0], unseen]


def answers(model: Any) -> np.ndarray:
    """All kinds of answers of a model in one array, to be compared bit by bit."""
    users, items = all_pairs(model)
    mean, std, _ = model.predict(users, items, return_std=True, return_known=True)
    table = model.predict_table(users, items, 0.8)
    best = [model.recommend(user, n=4) for user in users[:2]]
    numbers = [np.array([float(r.mean) for r in of]) for of in best]
    return np.concatenate([mean, std, table.low, table.high, *numbers])


def draws_of(model: Any) -> np.ndarray:
    """The draws of a model as one array."""
    found = model.posterior_.draws.arrays()
    return np.concatenate([np.ravel(found[name]).astype(np.float64) for name in sorted(found)])


def make(folder: Path) -> Material:
    """Make all of it; the same bits each time."""
    from bayesmf import Ratings, Synthetic, pack

    folder.mkdir(parents=True, exist_ok=True)
    synthetic = Synthetic(N_USERS, N_ITEMS, N, stars=True, random_state=3)
    made = synthetic.ratings()
    rng = np.random.default_rng(4)
    times = rng.integers(900_000_000, 1_000_000_000, len(made))
    rows = list(zip(made.users.tolist(), made.items.tolist(), made.rating.tolist(), times.tolist(),
                    strict=True))  # fmt: skip
    _texts(folder, rows)
    _tables(folder, rows)
    timed = Ratings.read(folder / "ratings.csv")
    found: dict[str, np.ndarray] = {}
    for name, source in (("model", "ratings.csv"), ("model_str", "names.csv")):
        model = estimator().fit(Ratings.read(folder / source))
        model.save(folder / name)
        found[name] = answers(model)
        found[f"{name}_draws"] = draws_of(model)
    found |= _other_models(folder)
    pack(folder / "ratings.csv", folder / "packed", chunk=120, stretch=150)
    pack(folder / "names.csv", folder / "packed_str")
    fitted = estimator().fit(folder / "packed")
    found["packed"], found["packed_draws"] = answers(fitted), draws_of(fitted)
    _checkpoint(folder, timed)
    _truth(folder)
    np.savez(folder / "answers.npz", **found)
    return Material(folder)


def _other_models(folder: Path) -> dict[str, np.ndarray]:
    """Models without users, and with users' rows in the place of items'; and their answers."""
    from bayesmf import BayesianMF, Ratings

    BayesianMF.load(folder / "model").save(folder / "model_items", users=False, max_draws=4)
    fitted = estimator(keep="users").fit(Ratings.read(folder / "ratings.csv"))
    fitted.save(folder / "model_users")
    return {
        name: answers(BayesianMF.load(folder / name)) for name in ("model_items", "model_users")
    }


def _texts(folder: Path, rows: list[Any]) -> None:
    def lines(form: str, head: str = "") -> str:
        return head + "".join(form.format(u=u, i=i, r=r, t=t) + "\n" for u, i, r, t in rows)

    csv = lines("{u},{i},{r:g},{t}", "userId,movieId,rating,timestamp\n")
    (folder / "ratings.csv").write_text(csv)
    (folder / "plain.csv").write_text(lines("{u},{i},{r:g}"))
    (folder / "ratings.tsv").write_text(lines("{u}\t{i}\t{r:g}\t{t}"))
    (folder / "ratings.dat").write_text(lines("{u}::{i}::{r:g}::{t}"))
    (folder / "names.csv").write_text(lines("u{u}x,the {i},{r:g}", "user,item,rating\n"))
    (folder / "quoted.csv").write_text(lines('"u{u}","a, {i}",{r:g}', "user,item,rating\n"))
    (folder / "ratings.csv.gz").write_bytes(gzip.compress(csv.encode(), mtime=0))
    by_item: dict[Any, list[Any]] = {}
    for row in rows:
        by_item.setdefault(row[1], []).append(row)
    netflix = [
        line for item, of in by_item.items()
        for line in (f"{item}:", *(f"{u},{r:g},2005-09-{t % 28 + 1:02}" for u, _, r, t in of))
    ]  # fmt: skip
    (folder / "netflix.txt").write_text("\n".join(netflix) + "\n")
    (folder / "pairs.csv").write_text("user,item\n" + lines("{u},{i}"))


def _tables(folder: Path, rows: list[Any]) -> None:
    import polars as pl

    table = pl.DataFrame(rows, schema=["user", "item", "rating", "timestamp"], orient="row")
    table.write_parquet(folder / "ratings.parquet")
    table.write_ipc(folder / "ratings.arrow")
    table.write_ipc(folder / "ratings.feather", compression="zstd")
    named = table.with_columns(pl.col("user").cast(pl.String) + "x")
    named.write_parquet(folder / "names.parquet")
    named.write_ipc(folder / "names.arrow")
    try:
        import zstandard
    except ImportError:
        return
    packed = zstandard.compress((folder / "ratings.csv").read_bytes())
    (folder / "ratings.csv.zst").write_bytes(packed)


def _checkpoint(folder: Path, ratings: Any) -> None:
    """The checkpoint of a run that was stopped after some epochs."""
    from bayesmf import Checkpoint

    events = []

    def stop(event: Any) -> None:
        events.append(event)
        if len(events) == 9:
            raise KeyboardInterrupt

    model = estimator()
    model.callbacks = [stop]
    with contextlib.suppress(KeyboardInterrupt):
        model.fit(ratings, checkpoint=Checkpoint(folder / "checkpoint", every=0, keep=2))


def _truth(folder: Path) -> None:
    from bayesmf.cli import main

    made = folder / "synth"
    made.mkdir()
    size = ["--users", "30", "--items", "20", "--ratings", "300"]
    files = [
        "--out",
        str(made / "ratings.csv"),
        "--truth",
        str(folder / "truth.safetensors"),
        "--json",
    ]
    assert main(["synth", *size, *files]) == 0
