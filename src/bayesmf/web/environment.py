"""What processes of the service have in common: names of variables and of threads."""

from __future__ import annotations

import os

# How names of threads begin that compute answers.
ANSWERING = "bayesmf-answer"
# Where processes of one service put their counts together; prometheus_client looks there too.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# Keep BLAS on the thread that calls it: the service has threads of its own.
ONE_BLAS_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")


def one_blas_thread() -> None:
    """Set the variables of `ONE_BLAS_THREAD`: heeded where NumPy has not been imported yet."""
    for name, value in ONE_BLAS_THREAD.items():
        os.environ.setdefault(name, value)
