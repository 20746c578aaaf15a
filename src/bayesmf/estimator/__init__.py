"""BayesianMF: what users call, how it is fitted, and all that it answers.

bayesian_mf   the class: settings, fit, save, load
fit           from ratings to a posterior
update        partial_fit
fitted        the result of a fit; scikit-learn's methods
predicting    predict, predict_interval, predict_table, predict_proba, predict_levels
recommending  recommend, recommend_many, explain, similar_items, similar_users, rows
evaluating    evaluate, evaluate_ranking, calibration, score, diagnose, to_arviz, plots
questions     pairs, sent and held-out ratings by row number; warnings of unknown ids
results       tables and lists that answers are
saving        a model written to a file, and loaded
"""
