"""Training ratings: storage, splits, export."""
