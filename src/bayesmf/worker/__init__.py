"""Tasks of workers (Algorithm 3): frozen data with a method `execute`."""
