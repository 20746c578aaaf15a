"""The paper's experiments, as something anyone can run."""
