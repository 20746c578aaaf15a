"""A run on disk: snapshots of chains, whose they are, when they are written."""
