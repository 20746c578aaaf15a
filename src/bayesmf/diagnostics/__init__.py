"""How good a fit is: scores on held-out ratings, convergence of chains, calibration.

scores       RMSE, MAE, NLL, CRPS, coverage
calibration  coverage overall and by training ratings, PIT, the verdict
coverage     gaps between promised and observed coverage, and which of them count
mixing       split R-hat, effective sample size, ArviZ
convergence  whether chains have converged, in words, and what to do
"""
