"""The users' own ids, integers or strings, and the row numbers that stand for them."""
