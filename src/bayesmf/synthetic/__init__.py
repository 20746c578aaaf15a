"""Ratings with a planted truth, of any size, and the lowest error anyone could reach on them."""
