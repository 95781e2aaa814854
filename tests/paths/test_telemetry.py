"""Spans where OpenTelemetry is installed, and nothing where it is not."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engrain import Memory, telemetry


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    telemetry._tracer.cache_clear()
    yield
    telemetry._tracer.cache_clear()


def test_a_verb_is_a_span_with_no_content(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[str] = []

    class Tracer:
        @contextmanager
        def start_as_current_span(self, name: str) -> Iterator[None]:
            spans.append(name)
            yield

    api = types.ModuleType("opentelemetry")
    api.trace = types.SimpleNamespace(get_tracer=lambda _: Tracer())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry", api)
    memory.remember("The secret is tea.")
    memory.recall("What is the secret?")
    assert spans == ["engrain.remember", "engrain.recall"]


def test_without_the_api_nothing_happens(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert memory.remember("Tea.")
    assert telemetry._tracer() is None
