"""OpenTelemetry spans around the verbs, if its API is installed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def traced(verb: Callable[P, R]) -> Callable[P, R]:
    """Run the verb in a span `engrain.VERB`, which has no text, no id and no scope."""
    name = f"engrain.{verb.__name__}"

    @functools.wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        tracer = _get_tracer()
        if tracer is None:
            return verb(*args, **kwargs)
        with tracer.start_as_current_span(name):
            return verb(*args, **kwargs)

    return call


@functools.cache
def _get_tracer() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("engrain")
