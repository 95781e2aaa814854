"""OpenTelemetry spans around the verbs, if its API is installed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def traced(verb: Callable[P, R]) -> Callable[P, R]:
    """Run the verb in a span `engrain.VERB`, which has no text, no id and no scope."""
    return span(f"engrain.{verb.__name__}")(verb)


@contextmanager
def span(name: str) -> Iterator[None]:
    tracer = _get_tracer()
    if tracer is None or not _is_recording():
        yield
    else:
        # An error's message may hold text, ids and names: only its class is recorded.
        with tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as current:
            try:
                yield
            except BaseException as exc:
                from opentelemetry.trace import Status, StatusCode

                current.set_status(Status(StatusCode.ERROR, type(exc).__name__))
                raise


def _is_recording() -> bool:
    """Tell if the program has set up OpenTelemetry. Without that a span is made, passed on and dropped."""
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

    return not isinstance(get_tracer_provider(), ProxyTracerProvider)


@functools.cache
def _get_tracer() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("engrain")
