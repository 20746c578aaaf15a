"""Invented titles are all different, stay the same, and are asked for in whole numbers."""

import pytest

from bayesmf import InputError
from bayesmf.synthetic.titles import film_titles


def test_all_differ_and_stay_the_same():
    many = film_titles(20_000)
    assert len(set(many)) == len(many) == 20_000
    assert film_titles(30) == many[:30]
    assert film_titles(30, seed=1) != many[:30]
    assert film_titles(0) == []


def test_they_read_as_titles():
    for title in film_titles(1000):
        assert title == title.strip() and 5 < len(title) < 60
        assert "_" not in title and "A O" not in title and "An B" not in title
        assert title[0].isupper()


def test_a_number_that_is_none():
    with pytest.raises(InputError, match="n must be a whole number"):
        film_titles(-1)
