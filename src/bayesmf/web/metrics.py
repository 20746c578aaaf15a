"""What the service counts, in the format of Prometheus."""

from __future__ import annotations

import os

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

from bayesmf.web.environment import METRICS_FOLDER

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE")


class Metrics:
    """Requests by route and status, how long they took, and what became of models.

    Examples
    --------
    >>> from bayesmf.web.metrics import Metrics
    >>> metrics = Metrics()
    >>> metrics.count("GET", "/healthz", 200, 0.001)
    >>> b'bayesmf_requests_total{method="GET",route="/healthz",status="200"} 1.0' in metrics.text()
    True
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "bayesmf_requests",
            "Requests by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "bayesmf_request_seconds",
            "Seconds from the first byte of a request to the last of its answer.",
            ("route",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._loads = Counter(
            "bayesmf_model_loads",
            "Models that were taken up, and that could not be.",
            ("result",),
            registry=self.registry,
        )
        self._loaded = Gauge(
            "bayesmf_model_loaded_timestamp_seconds",
            "When the model was loaded.",
            registry=self.registry,
            multiprocess_mode="max",
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request; unknown methods count as `other`."""
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def loaded(self) -> None:
        """Note that a model was taken up."""
        self._loads.labels("ok").inc()
        self._loaded.set_to_current_time()

    def failed(self) -> None:
        """Note that a model could not be taken up."""
        self._loads.labels("failed").inc()

    def text(self) -> bytes:
        """All of it, of all processes of the service."""
        registry = self.registry
        if folder := os.environ.get(METRICS_FOLDER):
            os.makedirs(folder, exist_ok=True)
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
