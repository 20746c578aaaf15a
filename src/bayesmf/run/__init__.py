"""The parameter server (Algorithm 2): settings of a run, its chains, when to stop."""
