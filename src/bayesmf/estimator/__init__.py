"""BayesianMF: what users hold in hand, how it is fitted, and all that it answers."""
