"""Invented film titles, for the demo and the screenshots."""

from __future__ import annotations

import random

from bayesmf.checks import whole

WORDS = {
    "adjective": """
        Paper Crooked Quiet Borrowed Copper Winter Hollow Amber Distant Patient Velvet Wandering
        Forgotten Seventh Painted Silver Clumsy Midnight Ordinary Northern Restless Gentle Salted
        Clockwork Stubborn Tangled Moonlit Unfinished Second Sleepless Polite Barefoot
    """,
    "noun": """
        Lighthouse Orchard Umbrella Cartographer Harbour Violin Staircase Beekeeper Almanac Kite
        Telescope Teapot Glacier Postman Sparrow Carousel Lantern Ferry Parade Compass Gardener
        Snowfield Accordion Suitcase Observatory Baker Meadow Tailor Weathervane Bicycle Archive
        Pianist
    """,
    "place": """
        Ostermere Calderwick Lindholm Marrow_Bay Tessaly Brindle_Hill Varn Pellworth Sandmark
        Oriveda Quillon Fennmoor Halvard_Street Norrby Castelmar Thistledown
    """,
    "name": """
        Agnes Bartholomew Celestine Dorothea Emeric Fenwick Greta Hyacinth Ivo Josefa Kasimir Leonie
        Mirabel Nestor Odile Percival Quintus Rosalba Sunniva Thaddeus Ulrika Valentina Winifred
        Yorick
    """,
    "doing": """
        Counting Painting Borrowing Mending Following Answering Weighing Waiting_for Listening_to
        Drawing Misplacing Remembering
    """,
    "number": "Three Four Five Six Nine Eleven Forty Ninety",
}
LISTS = {kind: text.split() for kind, text in WORDS.items()}


def _title(draw: random.Random) -> str:
    """A random title."""

    def word(kind: str) -> str:
        words = LISTS[kind]
        return words[int(draw.random() * len(words))].replace("_", " ")

    patterns = (
        lambda: f"The {word('adjective')} {word('noun')}",
        lambda: f"The {word('noun')} of {word('place')}",
        lambda: f"{word('name')} and the {word('adjective')} {word('noun')}",
        lambda: f"{word('doing')} the {word('noun')}",
        lambda: f"{word('number')} Days in {word('place')}",
        lambda: f"{_with_article(word('noun'))} for {word('name')}",
        lambda: f"{word('name')} Goes to {word('place')}",
        lambda: f"{word('doing')} {word('name')}",
    )
    return patterns[int(draw.random() * len(patterns))]()


def _with_article(noun: str) -> str:
    return f"{'An' if noun[0] in 'AEIOU' else 'A'} {noun}"


def film_titles(n: int, seed: int = 0) -> list[str]:
    """Make titles of films that do not exist.

    Parameters
    ----------
    n : int
        How many.
    seed : int, default 0
        Seed of the titles.

    Returns
    -------
    list of str
        Different titles; the first ones are the same for any `n`.

    Examples
    --------
    >>> from bayesmf.synthetic.titles import film_titles
    >>> film_titles(2)
    ['Sunniva Goes to Varn', 'Mirabel and the Forgotten Baker']
    """
    n = whole("n", n, 0)
    draw = random.Random(seed)
    parts: dict[str, int] = {}
    found: list[str] = []
    while len(found) < n:
        title = _title(draw)
        # A repeated title becomes a sequel, now and then.
        if title not in parts or draw.random() < 0.1:
            parts[title] = part = parts.get(title, 0) + 1
            found.append(title if part == 1 else f"{title} {part}")
    return found
