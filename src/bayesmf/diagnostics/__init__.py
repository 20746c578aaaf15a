"""How good a fit is: scores on held-out ratings, convergence of chains, calibration.

metrics      RMSE, MAE, NLL, CRPS, coverage
ranking      scores of ranked lists
calibration  coverage overall and by training ratings, PIT, the verdict
mixing       split R-hat, effective sample size, ArviZ
convergence  whether chains have converged, in words, and what to do
"""
