"""Plans: what a fit would take on a cluster, without the fit."""
