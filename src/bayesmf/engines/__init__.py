"""Where tasks are executed: this process, its threads, or a Ray cluster."""
