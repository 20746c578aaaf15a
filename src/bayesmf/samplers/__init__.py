"""The update rules, a file each: settings and defaults; one registry of their names."""
