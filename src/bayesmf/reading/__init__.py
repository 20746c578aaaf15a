"""Conversion of rating tables, in files and in memory, to checked columns."""
