"""Erasure and legal holds as values: subjects, stages, erased subjects, and reasons of holds."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from engrain.core.errors import BeingErased, Conflict, InvalidInput, OnHold
from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.audit import is_code
from engrain.core.model.plans import Add, Correct, Plan

SubjectKind = Literal["user", "session", "source", "id"]
PART_KINDS: tuple[SubjectKind, ...] = ("session", "source", "id")  # parts of one memory
# blocked: nobody reads or writes. deleted: the rows are. anonymized: other stores, files and names are clean too.
# Then the bytes are overwritten and searched, and the receipt ends the erasure.
Stage = Literal["blocked", "deleted", "anonymized"]
SETTLE_SECONDS = 0.2  # after a user is blocked: a write that was running has ended or is refused


@dataclass(frozen=True, slots=True)
class Subject:
    """All data of one user in a tenant, for any agent; or a session, a source or an item in one scope.

    Names are compared exactly: never as a pattern, and with their case.
    """

    scope: Scope
    by: SubjectKind
    name: str

    def parts(self) -> tuple[str, ...]:
        """Return the parts of the subject's keyed hash."""
        if self.by == "user":
            return ("user", "-" if self.scope.tenant is None else f"={self.scope.tenant}", self.name)
        return (self.by, self.scope.id, self.name)

    def hash(self, key: bytes) -> str:
        """Return the keyed hash by which a store knows the subject."""
        return _hash_parts(key, *self.parts())


@lru_cache(maxsize=1_000)  # every write of a user asks for the same
def _hash_parts(key: bytes, *parts: str) -> str:
    return hash_keyed(key, *parts)


def find_owner(scope: Scope) -> Subject | None:
    """Return the user of a scope; None for a memory without a user."""
    return None if scope.user is None else Subject(scope, "user", scope.user)


def find_subjects(plan: Plan) -> set[Subject]:
    """Return the subjects that a plan writes to: the user, and the sessions and sources of its drafts."""
    user = find_owner(plan.scope)
    drafts = [step.draft for step in plan.steps if isinstance(step, (Add, Correct))]
    sessions = {draft.position.session for draft in drafts if draft.position}
    sessions.update(draft.episode.session for draft in plan.episodes)
    sources = {draft.source.name for draft in drafts if draft.source.name}
    found = {Subject(plan.scope, "session", name) for name in sessions}
    found.update(Subject(plan.scope, "source", name) for name in sources)
    return found | {user} if user else found


def make_erased_error() -> BeingErased:
    return BeingErased("what this belongs to was erased while it was on its way: nothing of it was kept.")


def make_blocked_error(hidden: bool) -> BeingErased | OnHold:
    """The error for a user whose data is `hidden` by a hold, or else is being erased."""
    if hidden:
        return OnHold("this user's memory is under a legal hold and is to be erased: nothing is shown or written.")
    return BeingErased("this user's memory is being erased. Write again when that is done: engrain erase --resume.")


def hash_session_subjects(key: bytes, scope: Scope, session: str) -> list[str]:
    """Return the keyed hashes of the two subjects whose erasure removes a whole session: the session and its user."""
    user = find_owner(scope)
    subjects = [Subject(scope, "session", session), *([user] if user else [])]
    return [subject.hash(key) for subject in subjects]


def first_summary_version(at: int) -> int:
    """Return the first version of a summary after an erasure at that moment (microseconds; 0 for none).

    It differs from every version in use before, so that a summary made during the erasure is refused.
    """
    return 1 + at // 1_000 % (1 << 30) if at else 0


@dataclass(frozen=True, slots=True)
class Impact:
    """The rows that an erasure removes, by kind, and for a part of a memory the ids of its items.

    `remaining` are items that lose one of several sources and stay.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    scopes: tuple[Scope, ...] = ()
    ids: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self.counts.values()) or bool(self.scopes)


@dataclass(frozen=True, slots=True)
class Erasure:
    """A running erasure, as the store keeps it. From the stage `anonymized` on it has no name."""

    id: str
    subject_hash: str  # the keyed hash of its subject
    by: SubjectKind
    stage: Stage
    at: datetime
    subject: Subject | None = None
    scopes: tuple[Scope, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    ids: tuple[str, ...] = ()  # the removed items, for side stores; empty for a whole user
    notes: Mapping[str, Any] = field(default_factory=dict)  # codes and counts that a resumed run needs
    prints: bytes = b""  # fingerprints to search the files for


@dataclass(frozen=True, slots=True)
class ErasedSubject:
    """The keyed hash of an erased subject and the time of the erasure. It keeps old copies of the data out."""

    subject_hash: str
    by: SubjectKind
    at: datetime
    receipt: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A legal hold: a user's data must not be removed until every reason is released.

    `hidden`: an erasure was requested, and the data is hidden since. A store keeps only the keyed hash. `user` and
    `tenant` are set if a memory still has the name.
    """

    subject_hash: str
    at: datetime
    reasons: tuple[str, ...]
    hidden: bool = False
    tenant: str | None = None
    user: str | None = None

    @property
    def reason(self) -> str:
        """All reasons, for people."""
        return ", ".join(self.reasons)


@dataclass(frozen=True, slots=True)
class HoldRelease:
    """The result of a release. `left` are the reasons for which the hold continues.

    `refused` is the time of the last erasure request during the hold. It is not carried out now: the hidden data is
    shown again, and the erasure must be requested again.
    """

    done: bool
    left: tuple[str, ...] = ()
    refused: datetime | None = None

    def __bool__(self) -> bool:
        return self.done


Reasons = tuple[str, ...]
ReasonChoice = str | Sequence[str] | None


def add_reason(reasons: Reasons, reason: str) -> Reasons:
    if not is_code(reason):
        raise InvalidInput(
            "a reason is a code word such as case-7: up to 64 letters, digits and - _ . : +, no names and no content."
        )
    return reasons if reason in reasons else (*reasons, reason)


def remove_reasons(user: Subject, reasons: Reasons, which: ReasonChoice) -> Reasons:
    """Return the reasons that are left; all of them if one of the named ones does not exist.

    None releases the only reason. Conflict if there are several.
    """
    if which is not None:
        over = {which} if isinstance(which, str) else set(which)
        return tuple(reason for reason in reasons if reason not in over) if over <= set(reasons) else reasons
    if len(reasons) > 1:
        raise Conflict(
            f"this user is held for {len(reasons)} reasons: {', '.join(reasons)}. Say which of them is over: "
            f"{release_command(user, reasons[:1])}"
        )
    return ()


def write_reasons(reasons: Reasons) -> str:
    """Join the reasons into one text: a code word has no space."""
    return " ".join(reasons)


def read_reasons(text: str) -> Reasons:
    return tuple(text.split())


def make_hold_error(user: Subject, reasons: Sequence[str] = (), *, hides: bool = False) -> OnHold:
    """`hides`: the erasure of a whole user was requested, and the data is hidden from now on."""
    why = f" ({', '.join(reasons)})" if reasons else ""
    meanwhile = "; it is shown to nobody meanwhile" if hides else ""
    return OnHold(
        f"a legal hold{why} keeps this data from being removed{meanwhile}. Release it first: "
        f"{release_command(user, reasons)}"
    )


def release_command(user: Subject, reasons: Sequence[str] = ()) -> str:
    """Return the command as it is typed. No full stop may follow it: a code word may end with one."""
    tenant = ["--tenant", user.scope.tenant] if user.scope.tenant is not None else []
    named = [part for reason in reasons for part in ("--reason", reason)]
    return shlex.join(["engrain", "hold", *tenant, "--user", user.name, "--release", *named])
