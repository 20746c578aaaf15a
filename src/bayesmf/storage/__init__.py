"""Bytes on disk: files and folders that appear at once, locks, checksums, what they may hold."""
