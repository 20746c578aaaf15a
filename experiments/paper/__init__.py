"""The paper's experiments, as a command."""
