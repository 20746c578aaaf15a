"""What a worker does (Algorithm 3): tasks, frozen data that know how to be done."""
