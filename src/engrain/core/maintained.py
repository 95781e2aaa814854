"""What a round of care did or would do, pass by pass and thing by thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engrain.core.scope import Scope


@dataclass(frozen=True, slots=True)
class Doing:
    """One thing, what is done with it, and why. `id` is that of an item, an episode or a task, or the
    name of a model or a file; `text` its words, where it has some; `scope` whose it is, None for the whole store's."""

    act: str
    id: str
    why: str
    text: str = ""
    scope: Scope | None = None

    def __str__(self) -> str:
        words = " ".join(self.text.split())
        said = f' "{words if len(words) <= 80 else words[:79] + "…"}"' if words else ""
        return f"{self.act} {self.id}{said}: {self.why}"


@dataclass(frozen=True, slots=True)
class Maintained:
    """What a round did, or with a dry run would do: how many by the name of the pass, a line of each pass, every
    single thing, and what could not be done and why; in how many memories."""

    dry_run: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    each: tuple[Doing, ...] = ()
    trouble: tuple[str, ...] = ()
    memories: int = 1

    @property
    def expired(self) -> int:
        return self.counts.get("expired", 0)

    @property
    def trimmed(self) -> int:
        return self.counts.get("trimmed", 0)

    @property
    def pruned(self) -> int:
        return self.counts.get("pruned", 0)

    def __bool__(self) -> bool:
        return bool(self.each)

    def __str__(self) -> str:
        return "\n".join(self.lines)
