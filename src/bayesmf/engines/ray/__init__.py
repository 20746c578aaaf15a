"""Workers on a Ray cluster. This room alone imports Ray."""
