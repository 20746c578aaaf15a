"""Where tasks run: this process, its threads, a Ray cluster, or workers that are imagined."""
