"""What the verbs answer, as values that print themselves for people."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from engrain.core.identity import Scope
from engrain.core.model.erasure import Hold
from engrain.core.model.items import Item, Source
from engrain.core.plain import count_noun


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """What `forget` removed. `pending`: the bytes are still in a file because a reader holds them; they go by
    themselves, and `status` shows when they are gone."""

    ids: tuple[str, ...]
    marked: tuple[str, ...] = ()  # messages of which a span was cut out
    pending: bool = False

    def __bool__(self) -> bool:
        return bool(self.ids)


@dataclass(frozen=True, slots=True)
class Explanation:
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
class MemoryInfo:
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


def _trust(why: Explanation) -> str:
    lowest = min(why.cites, key=lambda cited: cited.trust, default=None)
    if lowest is not None and lowest.trust <= why.item.trust:
        return f"no more than {lowest.id}, which it rests on"
    best = max(why.item.sources, key=lambda source: source.trust, default=None)
    return f"as for every {best.kind} source" if best else "no source was named"


@dataclass(frozen=True, slots=True)
class MaintenanceAction:
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
class MaintenanceReport:
    """What a round did, or with a dry run would do: how many by the name of the pass, a line of each pass, every
    single thing, and what could not be done and why; in how many memories."""

    dry_run: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    each: tuple[MaintenanceAction, ...] = ()
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


Group = Literal["tiers", "durability", "retrieval", "safety", "privacy", "operation"]
State = Literal["pass", "warn", "fail", "unknown"]
GROUPS: tuple[Group, ...] = get_args(Group)
_COMMAND = re.compile(r"""`((?:'[^']*'|"[^"]*"|[^`'"])+)`""")
_PASSWORD = re.compile(r"(://[^/:@?]*:)[^?]*(?=@)|(?<=[?&]password=)[^&]*")
NOT_OPENED = "not checked: the memory does not open"


class Verdict(NamedTuple):
    """How a point stands, why in one sentence, and what fixes it, with commands in `marks`. "unknown": it could not be
    looked at."""

    state: State
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One point of the checklist, as docs/checklist.md numbers and names them."""

    number: int
    group: Group
    name: str
    state: State
    why: str
    fix: str = ""


def summarize_checks(points: Sequence[CheckResult]) -> str:
    """The last line of a report."""
    count = {state: sum(one.state == state for one in points) for state in get_args(State)}
    told = f"{len(points)} checks: {count['pass']} passed, {count['warn']} with warnings, {count['fail']} failed"
    return f"{told}, {count['unknown']} not checked" if count["unknown"] else told


def report_pass(why: str) -> Verdict:
    return Verdict("pass", why)


def report_warning(why: str, fix: str) -> Verdict:
    return Verdict("warn", why, fix)


def report_failure(why: str, fix: str) -> Verdict:
    return Verdict("fail", why, fix)


def format_command(*words: str, about: str = "", store: str | None = None, owner: Scope | None = None) -> str:
    """A command line of engrain that is safe to paste, whatever the names in it hold. A password is not repeated."""
    line = ["engrain", *words]
    if about and not about.startswith("-"):
        line.append(about)
    shown = store and _PASSWORD.sub(r"\1PASSWORD", store)
    whose = (owner.user, owner.agent, owner.tenant) if owner else (None, None, None)
    for option, name in zip(("--user", "--agent", "--tenant", "--store"), (*whose, shown), strict=True):
        if name is not None:
            line += [f"{option}={name}"] if name.startswith("-") else [option, name]
    return shlex.join([*line, "--", about] if about.startswith("-") else line)


def split_commands(fix: str) -> list[tuple[bool, str]]:
    """What fixes a point, taken apart: whether it is a command, and its text without the marks. A name in a command may
    hold a mark: it is quoted then."""
    found, at = [], 0
    for one in _COMMAND.finditer(fix):
        found += [(False, fix[at : one.start()]), (True, one[1])]
        at = one.end()
    return [(is_command, text) for is_command, text in (*found, (False, fix[at:])) if text]


def list_first(found: Sequence[str], most: int = 3) -> str:
    """The first few, and how many more."""
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


# What the kinds of rows are called, in the order in which they are told; another is called by its name, at the end.
ROW_KIND_NAMES: Mapping[str, tuple[str, str | None]] = {
    "scope": ("memory", "memories"),
    "item": ("item", None),
    "source": ("source", None),
    "vector": ("vector", None),
    "session": ("session", None),
    "summary": ("summary", "summaries"),
    "progress": ("mark of progress", "marks of progress"),
    "episode": ("episode", None),
    "raw_text": ("raw output", None),
    "trial": ("trial", None),
    "request": ("answered request", None),
    "task": ("task", None),
    "step": ("step", None),
    "large_result": ("large result", None),
    "snapshot": ("snapshot", None),
    "event": ("event", None),
    "cut": ("text that it was cut out of", "texts that it was cut out of"),
    "beside": ("key on another server", "keys on other servers"),
    "files": ("file", None),
}


def describe_counts(counts: Mapping[str, int]) -> str:
    kinds = dict.fromkeys([*ROW_KIND_NAMES, *sorted(counts)])
    return ", ".join(
        count_noun(counts[kind], *ROW_KIND_NAMES.get(kind, (kind, None))) for kind in kinds if counts.get(kind)
    )


def describe_verification(seen: Mapping[str, int]) -> str:
    """What a receipt says under `verified`."""
    rows = count_noun(seen["rows"], "row is", "rows are") if seen["rows"] else "no row is"
    if not seen["prints"] or not seen["bytes"]:
        return f"Looked again: {rows} left; no bytes were looked through."
    found = f"{seen['found']:,}" if seen["found"] else "none"
    samples = f"{found} of {count_noun(seen['prints'], 'sample')} of its texts, names and vectors"
    others = f" ({seen['shared']:,} of them stand in what stays, too)" if seen.get("shared") else ""
    return f"Looked again: {rows} left, and {samples}, in {seen['bytes']:,} bytes of files{others}."
