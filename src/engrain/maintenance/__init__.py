"""The rounds of care over a memory: what goes, what stays, what is kept safe."""

from __future__ import annotations
