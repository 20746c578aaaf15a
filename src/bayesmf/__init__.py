"""Bayesian matrix factorization that is as fast as SGD and says how sure it is."""

__version__ = "0.1.0"
