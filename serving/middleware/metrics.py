"""Prometheus metrics at TensorFlow Serving's path: its metrics by their names, and some of this server's own.

TensorFlow Serving's (labels in braces; times in microseconds; servables/tensorflow/util.cc if no file is given):

    :tensorflow:serving:request_count{model_name, status}              counter; status is OK, INVALID_ARGUMENT, ...
    :tensorflow:serving:request_latency{model_name, API, entrypoint}   histogram, of answers that are OK
    :tensorflow:serving:request_example_counts{model}                  histogram, of calls on tf.Examples
    :tensorflow:serving:request_example_count_total{model}             counter, likewise
    :tensorflow:serving:model_warmup_latency{model_path, status}       histogram (saved_model_warmup_util.cc)
    :tensorflow:cc:saved_model:load_attempt_count{model_path, status}  counter; success or fail (TensorFlow,
    :tensorflow:cc:saved_model:load_latency{model_path}                counter      cc/saved_model/loader.cc)

A request is counted under the model that it names, refused or not; under no name if that is not served: otherwise every
name that a client makes up would be a new time series. As in util/prometheus_exporter.cc, counters have no suffix
`_total`, and no `_created` series.
"""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from serving.errors import from_exception
from serving.middleware.request_log import RequestRecord

PATH = "/monitoring/prometheus/metrics"
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ON_EXAMPLES = ("Classify", "Regress")
_COUNTED = ("Predict", "Embeddings", "Rerank", *_ON_EXAMPLES)
# monitoring::Buckets::Exponential(10, 1.8, 33): up to 20 minutes. And (1, 2, 15).
_MICROSECONDS = [10 * 1.8**power for power in range(32)]
_ROWS = [2.0**power for power in range(15)]
_WITHOUT_TOTAL = (
    ":tensorflow:serving:request_count",
    ":tensorflow:cc:saved_model:load_attempt_count",
    ":tensorflow:cc:saved_model:load_latency",
)


class Metrics:
    """Metrics of one server; an observer of `serving.middleware.request_log`.

    This server's own are `bert_tfx_request_rows{model_name}`, a histogram; `bert_tfx_model_version{model_name}`, the
    version that answered last; `bert_tfx_process_resident_bytes`; and the gauges added by `watch`.
    """

    def __init__(self) -> None:
        disable_created_metrics()
        registry = self._registry = CollectorRegistry()

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(name, what, labels, registry=registry)

        def histogram(name: str, what: str, buckets: list[float], *labels: str) -> Histogram:
            return Histogram(name, what, labels, buckets=buckets, registry=registry)

        serving, loading, wall = ":tensorflow:serving:", ":tensorflow:cc:saved_model:", "Wall time (in microseconds)"
        self._requests = counter(f"{serving}request_count", "Requests.", "model_name", "status")
        self._latency = histogram(
            f"{serving}request_latency", f"{wall} of requests.", _MICROSECONDS, "model_name", "API", "entrypoint"
        )
        self._examples = histogram(f"{serving}request_example_counts", "tf.Examples per request.", _ROWS, "model")
        self._examples_total = counter(f"{serving}request_example_count_total", "tf.Examples.", "model")
        self._warmups = histogram(
            f"{serving}model_warmup_latency", f"{wall} of warm-ups.", _MICROSECONDS, "model_path", "status"
        )
        self._loads = counter(f"{loading}load_attempt_count", "Attempts to load.", "model_path", "status")
        self._load_latency = counter(f"{loading}load_latency", f"{wall} of loading.", "model_path")
        self._rows = histogram("bert_tfx_request_rows", "Rows of a request.", _ROWS, "model_name")
        self._version = Gauge(
            "bert_tfx_model_version", "The version that answered last.", ["model_name"], registry=registry
        )
        # A look-up takes a tenth of the time of `labels`.
        self._of = functools.lru_cache(4096)(lambda metric, *labels: metric.labels(*labels))
        self.watch("process_resident_bytes", "Resident memory of the process.", resident_bytes)

    def watch(self, name: str, what: str, read: Callable[[], float]) -> None:
        """Add the gauge `bert_tfx_<name>`, read whenever the page is."""
        Gauge(f"bert_tfx_{name}", what, registry=self._registry).set_function(read)

    def __call__(self, record: RequestRecord) -> None:
        """Count a request, if TensorFlow Serving counts its method or it is an Embeddings or Rerank."""
        if record.method not in _COUNTED:
            return
        self._of(self._requests, record.model, record.code.name).inc()
        if record.rows is None:
            return
        self._of(self._rows, record.model).observe(record.rows)
        if record.method in _ON_EXAMPLES:
            self._examples.labels(record.model).observe(record.rows)
            self._examples_total.labels(record.model).inc(record.rows)
        if record.code is grpc.StatusCode.OK:
            self._of(self._latency, record.model, record.method, record.entrypoint).observe(1e6 * record.seconds)
            self._of(self._version, record.model).set(record.version or 0)

    @contextlib.contextmanager
    def measured(self, what: str, path: Path) -> Iterator[None]:
        """Measure the "loading" or the "warm-up" of a version: its time, and whether it succeeds."""
        began, code = time.perf_counter(), grpc.StatusCode.OK
        try:
            yield
        except Exception as error:
            code = from_exception(error).code
            raise
        finally:
            microseconds = 1e6 * (time.perf_counter() - began)
            if what == "warm-up":
                self._warmups.labels(str(path), code.name).observe(microseconds)
            else:
                loaded = code is grpc.StatusCode.OK
                self._loads.labels(str(path), "success" if loaded else "fail").inc()
                if loaded:
                    self._load_latency.labels(str(path)).inc(microseconds)

    def page(self) -> bytes:
        """All metrics in Prometheus' text format."""
        text = generate_latest(self._registry).decode()
        for name in _WITHOUT_TOTAL:
            text = text.replace(f"{name}_total", name)
        return text.encode()

    def route(self) -> Route:
        """Route of the page, for the REST application."""

        async def answer(request: Request) -> Response:
            return Response(self.page(), headers={"Content-Type": _CONTENT_TYPE})

        return Route(PATH, answer, methods=["GET"])


def resident_bytes() -> int:
    """Resident memory of this process; 0 if /proc is not available."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
