"""What a legal hold is kept for, and what it says when it refuses."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from engrain.core.audit import is_code
from engrain.core.erasure import Subject
from engrain.core.errors import Conflict, InvalidInput, OnHold

Reasons = tuple[str, ...]
Which = str | Sequence[str] | None


def added(reasons: Reasons, reason: str) -> Reasons:
    """With this one too."""
    if not is_code(reason):
        raise InvalidInput(
            "a reason is a code word such as case-7: up to 64 letters, digits and - _ . : +, no names and no content."
        )
    return reasons if reason in reasons else (*reasons, reason)


def without(user: Subject, reasons: Reasons, which: Which) -> Reasons:
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


def stored(reasons: Reasons) -> str:
    """In one text: no code word has a space in it."""
    return " ".join(reasons)


def read(text: str) -> Reasons:
    return tuple(text.split())


def refusal(user: Subject, reasons: Sequence[str] = (), *, hides: bool = False) -> OnHold:
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
