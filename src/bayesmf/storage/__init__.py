"""Files of arrays: written atomically, verified, and mapped."""
