"""What a round is, a file for each kind of update rule: the tasks it sends, how results return."""
