"""Adapters to other tools, one module each."""
