"""Ratings larger than memory: an external sort into one file, which is mapped."""
