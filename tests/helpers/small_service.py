"""A small model with films that have titles, served: what tests of the web share."""

from __future__ import annotations

from bayesmf import BayesianMF, Gibbs, Synthetic

TITLES = ["The Long Harbour", "Café Noir", "Night Train to Oslo", "The Harbour", "Oslo, 31 May"]


def small_ratings():
    """Ratings of 40 items by 60 users, in stars."""
    return Synthetic(60, 40, 1200, stars=True, random_state=1).ratings().split(0.2, random_state=0)


def small_model(seed=0):
    """A model of them, fitted in a moment."""
    train, _ = small_ratings()
    return BayesianMF(4, sampler=Gibbs(epochs=20, n_chains=2), random_state=seed).fit(train)


def write_items(path, model):
    """A table of all items but the last, with titles and a genre."""
    lines = ["movieId,title,genre"]
    for k, item in enumerate(model.item_ids_.ids[:-1].tolist()):
        title = TITLES[k] if k < len(TITLES) else f"Film {item}"
        lines.append(f'{item},"{title}",{"drama" if k % 2 else "comedy"}')
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
