"""How a procedure turned out in a task, and the sum of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Trial:
    """One task in which one version of a procedure was used."""

    procedure: str  # the item that is this version
    task: str
    success: bool
    at: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    successes: int = 0
    failures: int = 0
    last_at: datetime | None = None
