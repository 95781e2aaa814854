"""What the verbs answer, as values that print themselves for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engrain.core.erasure import Hold
from engrain.core.items import Item, Source


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What `forget` removed. `pending`: the bytes are still in a file because a reader holds them; they go by
    themselves, and `status` shows when they are gone."""

    ids: tuple[str, ...]
    marked: tuple[str, ...] = ()  # messages of which a span was cut out
    pending: bool = False

    def __bool__(self) -> bool:
        return bool(self.ids)


@dataclass(frozen=True, slots=True)
class Why:
    """Where an item came from, how far it is trusted, and what has become of it and of its importance."""

    item: Item
    cites: tuple[Item, ...] = ()
    cited_by: tuple[Item, ...] = ()
    versions: tuple[Item, ...] = ()
    left: float | None = None  # of the importance, where it fades

    def __str__(self) -> str:
        item = self.item
        lines = [f"{item.id}  {item.kind}", f'  "{_short(item.text)}"', f"  {_standing(item)}"]
        lines += [f"  source: {_origin(source)}" for source in item.sources]
        lines += [f'  rests on {cited.id}: "{_short(cited.text)}"' for cited in self.cites]
        lines.append(f"  trust {item.trust:.1f}: {_trust(self)}")
        lines += [f'  gave rise to {child.id}: "{_short(child.text)}"' for child in self.cited_by]
        lines += [f'  {_span(one)}: "{_short(one.text)}"' for one in self.versions if one.id != item.id]
        lines += [f"  important for: {reasons}"] if (reasons := _reasons(item)) else []
        faded = "" if self.left is None else f", {self.left:.2f} left of it"
        used = f"used {item.access_count} {'time' if item.access_count == 1 else 'times'}{', pinned' * item.pinned}"
        lines.append(f"  importance {item.importance:.2f}{faded}, {used}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Status:
    """How a memory stands: the items it holds now, its whole store, its embedder, what is still to do, and
    what its model was asked. `holds` are its sessions, episodes, procedures and tasks, each counted up to 1,000; None
    where their store does not answer."""

    scope: str
    items: int
    store: Mapping[str, Any]
    embedder: Mapping[str, Any]
    background: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    holds: Mapping[str, int | None] = field(default_factory=dict)
    hold: Hold | None = None  # a legal one on its user; if that is `hidden`, nothing of this memory is shown


@dataclass(frozen=True, slots=True)
class Owned:
    """One of the memories of a store: whose it is, and how many items it holds now."""

    tenant: str | None
    agent: str | None
    user: str | None
    items: int


def _reasons(item: Item) -> str:
    """What the importance of an episode is made of, as it was kept with it."""
    own = item.metadata.get("engrain")
    why = own.get("why", ()) if isinstance(own, Mapping) else ()
    return ", ".join(f"{name} {part:+.2f}" for name, part in why)


def _short(text: str, most: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _standing(item: Item) -> str:
    parts = [f"recorded {item.recorded_at:%Y-%m-%d %H:%M}"]
    if item.occurred_at:
        parts.append(f"happened {item.occurred_at:%Y-%m-%d %H:%M}")
    if item.slot:
        parts.append(f"slot {item.slot}")
    if item.session:
        parts.append(f"session {item.session}, place {item.place}, {item.speaker or item.role or 'unknown speaker'}")
    if item.retracted_at:
        parts.append(f"corrected {item.retracted_at:%Y-%m-%d %H:%M} by {item.replaced_by}")
    elif item.valid_to:
        parts.append(f"held until {item.valid_to:%Y-%m-%d %H:%M}, then {item.replaced_by or 'nothing'}")
    return " · ".join(parts)


def _span(item: Item) -> str:
    if item.retracted_at:
        return "corrected, never so"
    return f"{item.valid_from:%Y-%m-%d} – {format(item.valid_to, '%Y-%m-%d') if item.valid_to else 'now'}"


def _origin(source: Source) -> str:
    said = {"user": "said by the user", "agent": "said by the agent", "system": "set by the system"}
    return (source.name and f"{source.name} ({source.kind})") or said.get(source.kind, source.kind)


def _trust(why: Why) -> str:
    lowest = min(why.cites, key=lambda cited: cited.trust, default=None)
    if lowest is not None and lowest.trust <= why.item.trust:
        return f"no more than {lowest.id}, which it rests on"
    best = max(why.item.sources, key=lambda source: source.trust, default=None)
    return f"as for every {best.kind} source" if best else "no source was named"
