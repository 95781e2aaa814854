"""Types of the fixtures that open memories."""

from __future__ import annotations

from collections.abc import Callable

from engrain import Memory

Open = Callable[..., Memory]
