"""One chain of the parameter server: rounds, retention of draws, validation, callbacks."""
