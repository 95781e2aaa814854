"""Whose data is erased, how far an erasure has come, and the receipt without content that is left of it."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from engrain.core.errors import BeingErased, Conflict, InvalidInput, OnHold
from engrain.core.identity import Scope
from engrain.core.model.audit import is_code
from engrain.core.model.items import FORGOTTEN, Item
from engrain.core.model.plans import Add, Correct, Plan

SubjectKind = Literal["user", "session", "source", "id"]
PART_KINDS: tuple[SubjectKind, ...] = ("session", "source", "id")  # of one memory
# shut: nobody writes or reads it any more. rows: its rows are gone. named: the other stores and files are clean, and
# no name is left. Then the bytes are swept and looked for, and the receipt closes it.
Stage = Literal["shut", "rows", "named"]
SETTLE_SECONDS = 0.2  # seconds after a user is shut out: whoever was about to write has done so, or is refused


@dataclass(frozen=True, slots=True)
class Subject:
    """Everything of one user in a tenant, whatever agent knows it; or, inside one scope, a session, a source or an
    item. Names are compared as they are: never as a pattern, never without regard to case."""

    scope: Scope
    by: SubjectKind
    name: str

    def parts(self) -> tuple[str, ...]:
        """What its keyed hash is made of."""
        if self.by == "user":
            return ("user", "-" if self.scope.tenant is None else f"={self.scope.tenant}", self.name)
        return (self.by, self.scope.id, self.name)


def find_owner(scope: Scope) -> Subject | None:
    """The user whose scope it is; None for a memory of no user."""
    return None if scope.user is None else Subject(scope, "user", scope.user)


def find_subjects(plan: Plan) -> set[Subject]:
    """To whom: its user, and the sessions and sources of what it adds."""
    user = find_owner(plan.scope)
    found = {user} if user else set()
    for step in plan.steps:
        if isinstance(step, (Add, Correct)):
            place, source = step.draft.place, step.draft.source
            found |= {Subject(plan.scope, "session", place.session)} if place else set()
            found |= {Subject(plan.scope, "source", source.name)} if source.name else set()
    return found | {Subject(plan.scope, "session", one.episode.session) for one in plan.episodes}


def make_erased_error() -> BeingErased:
    return BeingErased("what this belongs to was erased while it was on its way: nothing of it was kept.")


def hash_session_subjects(key: bytes, scope: Scope, session: str) -> list[str]:
    """Of the two erasures by which a session goes as a whole: its own, and its user's."""
    user = find_owner(scope)
    subjects = [Subject(scope, "session", session), *([user] if user else [])]
    return [hash_keyed(key, *one.parts()) for one in subjects]


def first_summary_version(at: int) -> int:
    """Of a summary after an erasure at that moment (microseconds; 0 for none): one that nobody who was still summing up
    has in hand. Milliseconds, as many as a small number holds."""
    return 1 + at // 1_000 % (1 << 30) if at else 0


def group_by_scope(tombstones: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The hashes of what was forgotten in each scope, by its id."""
    found: dict[str, set[str]] = {}
    for scope, digest in tombstones:
        found.setdefault(scope, set()).add(digest)
    return found


def hash_keyed(key: bytes, *parts: str) -> str:
    """Says nothing to whoever has not the store's key."""
    digest = hashlib.blake2b(key=key, digest_size=16)
    for part in parts:
        raw = part.encode()
        digest.update(b"%d:" % len(raw) + raw)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Impact:
    """What an erasure takes: rows of each kind, and, but for a whole user, the ids of the items; `kept` are items that
    lose one of several sources and stay."""

    counts: Mapping[str, int] = field(default_factory=dict)
    scopes: tuple[Scope, ...] = ()
    ids: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self.counts.values()) or bool(self.scopes)


@dataclass(frozen=True, slots=True)
class Erasure:
    """One that is under way, as the store keeps it. From the stage `named` on it knows no name."""

    id: str
    mark: str  # the keyed hash of its subject
    by: SubjectKind
    stage: Stage
    at: datetime
    subject: Subject | None = None
    scopes: tuple[Scope, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    ids: tuple[str, ...] = ()  # the items that went, for the stores beside; none for a whole user
    notes: Mapping[str, Any] = field(default_factory=dict)  # what the run needs to go on: codes and counts
    prints: bytes = b""  # what is looked for in the files


@dataclass(frozen=True, slots=True)
class ErasedSubject:
    """What keeps an old copy of the same data out: the keyed hash of what was erased, and when."""

    mark: str
    by: SubjectKind
    at: datetime
    receipt: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A user's data that must not be removed until the last of the reasons is released. `hidden`: an erasure was asked
    for, and nothing of it is shown since.

    A store keeps the keyed hash; `user` and their tenant are named where a memory still says who it is."""

    mark: str
    at: datetime
    reasons: tuple[str, ...]
    hidden: bool = False
    tenant: str | None = None
    user: str | None = None

    @property
    def reason(self) -> str:
        """All of them, for people."""
        return ", ".join(self.reasons)


@dataclass(frozen=True, slots=True)
class HoldRelease:
    """Whether there was such a hold, and for which reasons it goes on. `refused`: an erasure was asked for meanwhile,
    the last time then. It is not done by itself: what it hid is shown again, and who still wants it asks once more."""

    done: bool
    left: tuple[str, ...] = ()
    refused: datetime | None = None

    def __bool__(self) -> bool:
        return self.done


Reasons = tuple[str, ...]
ReasonChoice = str | Sequence[str] | None


def add_reason(reasons: Reasons, reason: str) -> Reasons:
    """With this one too."""
    if not is_code(reason):
        raise InvalidInput(
            "a reason is a code word such as case-7: up to 64 letters, digits and - _ . : +, no names and no content."
        )
    return reasons if reason in reasons else (*reasons, reason)


def remove_reasons(user: Subject, reasons: Reasons, which: ReasonChoice) -> Reasons:
    """Those that are left: all of them, if one of several that are named is not there. None is the only one there is:
    Conflict if there are several."""
    if which is not None:
        over = {which} if isinstance(which, str) else set(which)
        return tuple(one for one in reasons if one not in over) if over <= set(reasons) else reasons
    if len(reasons) > 1:
        raise Conflict(
            f"this user is held for {len(reasons)} reasons: {', '.join(reasons)}. Say which of them is over: "
            f"{release_command(user, reasons[:1])}"
        )
    return ()


def write_reasons(reasons: Reasons) -> str:
    """In one text: no code word has a space in it."""
    return " ".join(reasons)


def read_reasons(text: str) -> Reasons:
    return tuple(text.split())


def make_hold_error(user: Subject, reasons: Sequence[str] = (), *, hides: bool = False) -> OnHold:
    """`hides`: a whole user was to be erased, and is now shown to nobody."""
    why = f" ({', '.join(reasons)})" if reasons else ""
    meanwhile = "; it is shown to nobody meanwhile" if hides else ""
    return OnHold(
        f"a legal hold{why} keeps this data from being removed{meanwhile}. Release it first: "
        f"{release_command(user, reasons)}"
    )


def release_command(user: Subject, reasons: Sequence[str] = ()) -> str:
    """As it is typed. No full stop may follow it: a code word may end with one."""
    tenant = ["--tenant", user.scope.tenant] if user.scope.tenant is not None else []
    named = [part for reason in reasons for part in ("--reason", reason)]
    return shlex.join(["engrain", "hold", *tenant, "--user", user.name, "--release", *named])


def hash_item(key: bytes, item: Item) -> str:
    """Of one that was cut it has its id in it: two items cut to the same words are still two."""
    if FORGOTTEN in item.text:
        return hash_keyed(key, "cut", item.id, item.text)
    relation = item.relation
    parts = (relation.subject, relation.relation, relation.object) if relation else ()
    return hash_keyed(key, "item", item.kind, item.text, *parts)


def hash_tombstone(key: bytes, text: str) -> str:
    return hash_keyed(key, "text", text)
