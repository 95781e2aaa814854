"""Results and progress of the verbs: forget, explain, status, maintain, doctor and erase."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from engrain.core.identity import Scope
from engrain.core.model.erasure import Hold
from engrain.core.model.items import RESERVED_KEY, Item, Source
from engrain.core.secrets.urls import hide_secrets
from engrain.core.tokens import shorten_line
from engrain.core.validation import count_noun


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """The items that `forget` removed.

    `pending`: a reader still holds the bytes in a file. They are overwritten later, and `status` shows when.
    """

    ids: tuple[str, ...]
    marked: tuple[str, ...] = ()  # messages of which a span was cut out
    pending: bool = False

    def __bool__(self) -> bool:
        return bool(self.ids)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The origin of an item, its trust, its other versions, and its remaining importance."""

    item: Item
    cites: tuple[Item, ...] = ()
    cited_by: tuple[Item, ...] = ()
    versions: tuple[Item, ...] = ()
    left: float | None = None  # the remaining importance, if importance fades

    def __str__(self) -> str:
        item = self.item
        lines = [f"{item.id}  {item.kind}", f'  "{shorten_line(item.text)}"', f"  {_describe_item(item)}"]
        lines += [f"  source: {_describe_source(source)}" for source in item.sources]
        lines += [f'  rests on {cited.id}: "{shorten_line(cited.text)}"' for cited in self.cites]
        lines.append(f"  trust {item.trust:.1f}: {explain_trust(self)}")
        lines += [f'  gave rise to {child.id}: "{shorten_line(child.text)}"' for child in self.cited_by]
        others = [version for version in self.versions if version.id != item.id]
        lines += [f'  {_describe_validity(version)}: "{shorten_line(version.text)}"' for version in others]
        lines += [f"  important for: {reasons}"] if (reasons := _list_reasons(item)) else []
        faded = "" if self.left is None else f", {self.left:.2f} left of it"
        used = f"used {item.access_count} {'time' if item.access_count == 1 else 'times'}{', pinned' * item.pinned}"
        lines.append(f"  importance {item.importance:.2f}{faded}, {used}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a memory: its current items, the whole store, the embedder, pending work and use of the model.

    `counts` has the number of sessions, episodes, procedures, tasks (each up to 1,000) and records; None if their store
    does not answer.
    """

    scope: str
    items: int
    store: Mapping[str, Any]
    embedder: Mapping[str, Any]
    background: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int | None] = field(default_factory=dict)
    hold: Hold | None = None  # the legal hold on its user; while it is `hidden`, nothing of this memory is shown


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """The owner of one memory of a store, and its number of current items."""

    tenant: str | None
    agent: str | None
    user: str | None
    items: int

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, self.agent, self.user)


def _list_reasons(item: Item) -> str:
    own = item.metadata.get(RESERVED_KEY)
    why = own.get("why", ()) if isinstance(own, Mapping) else ()
    return ", ".join(f"{name} {part:+.2f}" for name, part in why)


def _describe_item(item: Item) -> str:
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


def _describe_validity(item: Item) -> str:
    if item.retracted_at:
        return "corrected, never so"
    return f"{item.valid_from:%Y-%m-%d} – {format(item.valid_to, '%Y-%m-%d') if item.valid_to else 'now'}"


def _describe_source(source: Source) -> str:
    origins = {"user": "said by the user", "agent": "said by the agent", "system": "set by the system"}
    return (source.name and f"{source.name} ({source.kind})") or origins.get(source.kind, source.kind)


def explain_trust(why: Explanation) -> str:
    """Say where the trust of an item comes from."""
    lowest = min(why.cites, key=lambda cited: cited.trust, default=None)
    if lowest is not None and lowest.trust <= why.item.trust:
        return f"no more than {lowest.id}, which it rests on"
    best = max(why.item.sources, key=lambda source: source.trust, default=None)
    return f"as for every {best.kind} source" if best else "no source was named"


@dataclass(frozen=True, slots=True)
class MaintenanceAction:
    """One action of maintenance, and its reason.

    `id` names an item, episode, task, model or file. `scope` is its owner, None for the whole store.
    """

    act: str
    id: str
    why: str
    text: str = ""
    scope: Scope | None = None

    def __str__(self) -> str:
        quoted = f' "{words}"' if (words := shorten_line(self.text, 80)) else ""
        return f"{self.act} {self.id}{quoted}: {self.why}"


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """The result of a maintenance run, or of its dry run.

    `counts` are by pass, `lines` has a text for each pass, `each` has every action, `problems` has the failures.
    `memories` is the number of memories that were maintained.
    """

    dry_run: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    each: tuple[MaintenanceAction, ...] = ()
    problems: tuple[str, ...] = ()
    memories: int = 1

    def __bool__(self) -> bool:
        return bool(self.each)

    def __str__(self) -> str:
        return "\n".join(self.lines)


Group = Literal["tiers", "durability", "retrieval", "safety", "privacy", "operation"]
State = Literal["pass", "warn", "fail", "unknown"]
GROUPS: tuple[Group, ...] = get_args(Group)
_COMMAND = re.compile(r"""`((?:'[^']*'|"[^"]*"|[^`'"])+)`""")
NOT_OPENED = "not checked: the memory does not open"


class Verdict(NamedTuple):
    """The outcome of a check: the state, the reason in one sentence, and the remedy, with its commands in `backticks`.

    "unknown": the check could not be done.
    """

    state: State
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One point of the checklist, numbered and named as in docs/reference/checklist.md."""

    number: int
    group: Group
    name: str
    state: State
    why: str
    fix: str = ""


def summarize_checks(points: Sequence[CheckResult]) -> str:
    """Return the last line of a report: how many checks passed, warned and failed."""
    count = {state: sum(point.state == state for point in points) for state in get_args(State)}
    summary = f"{len(points)} checks: {count['pass']} passed, {count['warn']} with warnings, {count['fail']} failed"
    return f"{summary}, {count['unknown']} not checked" if count["unknown"] else summary


def report_pass(why: str) -> Verdict:
    return Verdict("pass", why)


def report_warning(why: str, fix: str) -> Verdict:
    return Verdict("warn", why, fix)


def report_failure(why: str, fix: str) -> Verdict:
    return Verdict("fail", why, fix)


def format_command(*words: str, about: str = "", store: str | None = None, owner: Scope | None = None) -> str:
    """Return a command line of engrain that is safe to paste, whatever its names contain. A password is left out."""
    line = ["engrain", *words]
    if about and not about.startswith("-"):
        line.append(about)
    shown = store and hide_secrets(store)
    whose = (owner.user, owner.agent, owner.tenant) if owner else (None, None, None)
    for option, name in zip(("--user", "--agent", "--tenant", "--store"), (*whose, shown), strict=True):
        if name is not None:
            line += [f"{option}={name}"] if name.startswith("-") else [option, name]
    return shlex.join([*line, "--", about] if about.startswith("-") else line)


def split_commands(fix: str) -> list[tuple[bool, str]]:
    """Split a remedy into texts and commands: (is it a command, its text without backticks).

    A name in a command may contain a backtick, and is quoted then.
    """
    found, at = [], 0
    for command in _COMMAND.finditer(fix):
        found += [(False, fix[at : command.start()]), (True, command[1])]
        at = command.end()
    return [(is_command, text) for is_command, text in (*found, (False, fix[at:])) if text]


def list_first(found: Sequence[str], most: int = 3, separator: str = ", ") -> str:
    """Return the first few, and how many more there are."""
    return separator.join(found[:most]) + (f" and {len(found) - most:,} more" if len(found) > most else "")


# The names of the kinds of rows for people, in the order of a list. Other kinds follow, by their own name.
ROW_KIND_NAMES: Mapping[str, tuple[str, str | None]] = {
    "scope": ("memory", "memories"), "item": ("item", None),
    "cites": ("item that cites others", "items that cite others"), "source": ("source", None),
    "vector": ("vector", None), "tombstone": ("tombstone", None), "request": ("answered request", None),
    "session": ("session", None), "summary": ("summary", "summaries"),
    "progress": ("mark of progress", "marks of progress"), "episode": ("episode", None),
    "raw_text": ("raw output", None), "trial": ("trial of a procedure", "trials of procedures"),
    "task": ("task", None), "step": ("step", None), "large_result": ("large result", None),
    "snapshot": ("snapshot", None), "event": ("event", None), "record": ("record", None),
    "erased_tombstone": ("tombstone of the erased", "tombstones of the erased"),
    "erased": ("erased subject", "erased subjects"), "hold": ("legal hold", None),
    "audit": ("row of the audit log", "rows of the audit log"),
    "cut": ("text that it was cut out of", "texts that it was cut out of"),
    "other_servers": ("key on another server", "keys on other servers"), "files": ("file", None),
}  # fmt: skip


def describe_counts(counts: Mapping[str, int]) -> str:
    kinds = dict.fromkeys([*ROW_KIND_NAMES, *sorted(counts)])
    return ", ".join(
        count_noun(counts[kind], *ROW_KIND_NAMES.get(kind, (kind, None))) for kind in kinds if counts.get(kind)
    )


def name_rows(kind: str) -> str:
    """Return the plural name of a kind of rows."""
    singular, plural = ROW_KIND_NAMES.get(kind, (kind, kind))
    return plural or singular + "s"


def describe_verification(seen: Mapping[str, int]) -> str:
    """Describe the part `verified` of a receipt."""
    rows = count_noun(seen["rows"], "row is", "rows are") if seen["rows"] else "no row is"
    if not seen["samples"] or not seen["bytes"]:
        return f"Verified: {rows} left; no bytes were searched."
    found = f"{seen['found']:,}" if seen["found"] else "none"
    samples = f"{found} of {count_noun(seen['samples'], 'sample')} of its texts, names and vectors"
    others = f" ({seen['shared']:,} of them stand in what stays, too)" if seen.get("shared") else ""
    return f"Verified: {rows} left, and {samples} in {seen['bytes']:,} bytes of files{others}."


# Called with the stage, how much of it is done, and how much there is in all; None where nobody knows.
Progress = Callable[[str, int, int | None], None]


def count_progress(progress: Progress | None, stage: str, total: int | None = None) -> Callable[[int], None]:
    """Return a function that takes how many more are done."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(stage, done, total)

    return add


def stage_progress(progress: Progress | None) -> Callable[[str], None]:
    """Return a function that takes the name of the stage that begins."""
    count = 0

    def enter(stage: str) -> None:
        nonlocal count
        if progress is not None:
            progress(stage, count, None)
        count += 1

    return enter
