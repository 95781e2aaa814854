"""Counters of requests in the text format of Prometheus, labelled by route template and never by content."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters of one server. Used by one event loop, without locks."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests[method, route, status] += 1
        counts = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        counts[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def render(self, gauges: Mapping[str, float]) -> str:
        return "\n".join((*self._render_requests(), *self._render_durations(), *_render_gauges(gauges))) + "\n"

    def _render_requests(self) -> Iterator[str]:
        yield "# HELP engrain_http_requests_total Answered requests."
        yield "# TYPE engrain_http_requests_total counter"
        for (method, route, status), count in sorted(self._requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"engrain_http_requests_total{{{labels}}} {count}"

    def _render_durations(self) -> Iterator[str]:
        name = "engrain_http_request_duration_seconds"
        yield f"# HELP {name} Time from the request's head to the end of its answer."
        yield f"# TYPE {name} histogram"
        for route, counts in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                yield f'{name}_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'{name}_count{{route="{route}"}} {total}'


def _render_gauges(gauges: Mapping[str, float]) -> Iterator[str]:
    for name, value in gauges.items():
        yield f"# TYPE engrain_http_{name} gauge"
        yield f"engrain_http_{name} {value:g}"
