"""Counts and times of a server, in the format of Prometheus."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from fpstore.service.log import REQUESTS
from fpstore.service.served import Served

SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)


class Timed:
    """A request under way; ``count`` is of requests that are one batch."""

    status: int | str = 200
    count = 1


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, stores: Mapping[str, Served]) -> None:
        self._stores = stores
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "fpstore_request_seconds",
            "Time of requests",
            ["operation"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._requests = Counter(
            "fpstore_requests",
            "Requests by operation and status",
            ["operation", "status"],
            registry=self._registry,
        )
        self._registry.register(self)

    @contextmanager
    def request(self, operation: str, interface: str, client: object) -> Iterator[Timed]:
        """Count a request, time it, and log it."""
        timed, began = Timed(), time.perf_counter()
        try:
            yield timed
        finally:
            seconds = time.perf_counter() - began
            self._seconds.labels(operation).observe(seconds)
            self._requests.labels(operation, str(timed.status)).inc(timed.count)
            if REQUESTS.isEnabledFor(logging.INFO):
                facts = {
                    "interface": interface,
                    "client": client,
                    "operation": operation,
                    "status": timed.status,
                    "requests": timed.count,
                    "seconds": round(seconds, 6),
                }
                REQUESTS.info("request", extra={"facts": facts})

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Yield the sizes of the stores, as prometheus_client asks for them."""
        fingerprints = GaugeMetricFamily(
            "fpstore_fingerprints", "Stored fingerprints", labels=["store"]
        )
        ids = GaugeMetricFamily("fpstore_ids", "Stored ids", labels=["store"])
        for name, served in self._stores.items():
            sizes = served.sizes()
            fingerprints.add_metric([name], sizes["fingerprints"])
            ids.add_metric([name], sizes["ids"])
        return [fingerprints, ids]
