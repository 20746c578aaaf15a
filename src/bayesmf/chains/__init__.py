"""One chain of the parameter server: its rounds, what it keeps, what is followed meanwhile."""
