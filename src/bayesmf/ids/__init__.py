"""External ids of users and items, and their row numbers."""
