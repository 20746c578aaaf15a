"""All rows of the side that is not kept, under every draw: as large as if they had been kept.

They are needed where users are the kept side: items are ranked by all of their means, and a new
user's row follows from draws of items.
"""

from __future__ import annotations

import numpy as np

from bayesmf.kernels.keys import STREAM_FOLD, generator, make_key
from bayesmf.kernels.pairs import draw_from_factors
from bayesmf.kernels.types import Rows
from bayesmf.model.mapped import allocate
from bayesmf.posterior.rows import ExactRows, rows_at_once
from bayesmf.process import Pool, parts


def all_rows(source: ExactRows, draw: bool = False) -> tuple[Rows, Rows]:
    """Means of all rows and, if asked for, a draw of each; (draws, rows, width), mapped if large.

    Given a draw of the kept side, rows are independent: one draw of each of them makes a draw of
    both sides.
    """
    n_draws, _, width = source.other.shape
    n_rows, key = len(source.lists.starts) - 1, make_key(0)
    means, drawn = (allocate(n, (n_rows, width)) for n in (n_draws, n_draws if draw else 0))
    source.given()  # once, before there are threads

    def run(part: slice) -> None:
        solved = source.solve(np.arange(part.start, part.stop), factors=draw)
        found = solved.means[solved.place]
        means[:, part] = found.transpose(1, 0, 2)
        if draw:
            z = generator(key, part.start, STREAM_FOLD).standard_normal(found.shape)
            out = np.empty_like(found)
            draw_from_factors(found, solved.factors[solved.place], z, out)
            drawn[:, part] = out.transpose(1, 0, 2)

    with Pool() as pool:
        pool.each(run, parts(n_rows, rows_at_once(n_draws)))
    return means, drawn
