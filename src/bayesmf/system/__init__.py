"""The process we run in: threads and cores, forks, signals, other libraries' errors, progress."""
