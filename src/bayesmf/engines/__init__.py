"""Where tasks are executed: this process, its threads, a Ray cluster, or simulated workers."""
