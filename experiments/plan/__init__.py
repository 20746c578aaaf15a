"""Plans: estimated time, bytes and memory of a fit on a cluster."""
