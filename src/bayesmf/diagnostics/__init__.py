"""How good a fit is: scores on held-out ratings, convergence of chains, calibration."""
