"""What a worker does (Algorithm 3): tasks as data, and the pure functions that run them."""
