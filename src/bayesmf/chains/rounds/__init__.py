"""Rounds of update rules: the tasks that they send, and how results return to the state."""
