"""The ratings that a model learns from: held, split, freed of duplicates, told as tables."""
