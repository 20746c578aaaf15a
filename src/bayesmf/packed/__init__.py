"""Ratings larger than memory: packed into a folder by an external sort, and read where it lies."""
