"""OpenTelemetry spans around the verbs where the API is installed, and nothing where it is not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def traced(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb within a span `engrain.VERB`. No text, no id and no scope is put into the span."""
    name = f"engrain.{verb.__name__}"

    @functools.wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        tracer = _tracer()
        if tracer is None:
            return verb(*args, **kwargs)
        with tracer.start_as_current_span(name):
            return verb(*args, **kwargs)

    return call


@functools.cache
def _tracer() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("engrain")
