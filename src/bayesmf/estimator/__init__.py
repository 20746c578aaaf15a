"""BayesianMF: what users call, how it is fitted, and all that it answers.

bayesian_mf  the class: settings, fit, save, load
fit          what `fit` does, step by step
fitted       the result of a fit, which all answers share
predict      predict, predict_interval, predict_table
recommend    recommend, recommend_many
evaluate     evaluate, calibration, score, diagnose, to_arviz
plot         plot_convergence, plot_calibration, plot_uncertainty
questions    pairs and held-out ratings by row number; warnings of unknown ids
results      what predict_table, recommend and recommend_many return
facts        how a model was fitted, in words
folder       a model in a folder
sklearn      what scikit-learn's tools call
"""
