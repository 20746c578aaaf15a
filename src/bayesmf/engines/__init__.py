"""Execution of tasks: this process, its threads, or a Ray cluster."""
