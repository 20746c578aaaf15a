"""Long measurements: commands, not tests."""
