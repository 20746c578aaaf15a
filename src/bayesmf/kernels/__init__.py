"""All compiled code: loops over ratings, rows and draws. Imports NumPy, numba and itself alone."""
