"""Synthetic ratings of any size with a planted truth."""
