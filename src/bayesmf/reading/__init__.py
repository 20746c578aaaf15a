"""Rating tables as users have them, in files and in memory, turned into checked columns."""
