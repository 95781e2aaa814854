"""Spans where OpenTelemetry is installed, and nothing where it is not."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engrain import Memory, telemetry
from engrain.core.errors import NotFound


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    telemetry._get_tracer.cache_clear()
    yield
    telemetry._get_tracer.cache_clear()


def test_a_verb_is_a_span_with_no_content(open_memory: Callable[..., Memory]) -> None:
    memory = open_memory()
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    memory.remember("The secret is tea.")
    memory.recall("What is the secret?")
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["engrain.remember", "engrain.recall"]
    assert not [span.attributes for span in spans if span.attributes]
    exporter.shutdown()


def test_the_span_of_an_error_has_only_its_class(
    open_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_get_tracer", functools.cache(lambda: provider.get_tracer("engrain")))
    with pytest.raises(NotFound):
        open_memory(user="ana").correct("secret-id", "The secret is tea.")
    (span,) = exporter.get_finished_spans()
    assert (span.status.is_ok, span.status.description, span.events) == (False, "NotFound", ())
    assert not [word for word in ("secret", "ana", "tea") if word in span.to_json()]


def test_without_the_api_nothing_happens(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert memory.remember("Tea.")
    assert telemetry._get_tracer() is None
