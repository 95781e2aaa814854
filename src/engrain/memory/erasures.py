"""The verbs of erasure, undo, legal holds and the audit log."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engrain.core.errors import InvalidInput
from engrain.core.validation import check_count, check_key
from engrain.memory.opened import Opened
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.model.audit import AuditEntry, AuditResult
    from engrain.core.model.erasure import Hold, HoldRelease, Subject
    from engrain.privacy.erase import ErasureResult, UndoResult
    from engrain.privacy.receipts import Receipt, VerificationResult

PathLike = str | os.PathLike[str]
Progress = Callable[[str], None]


class Erasures(Opened):
    @traced
    def erase(
        self,
        *,
        user: str | None = None,
        session: str | None = None,
        source: str | None = None,
        id: str | None = None,
        folders: Sequence[PathLike] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ErasureResult:
        """Erase everything of a user of this tenant, whatever agent knows it; or, in this memory, of a session, of a
        source, or an item. Every tier, index, journal and server, and the files in `folders`, down to the bytes; then
        it is looked for, and what comes back has a receipt. Names are matched exactly: NotFound if nothing was ever
        kept of it. OnHold under a legal hold. A dry run changes nothing, and is refused like the erasure itself.

        Killed anywhere, it goes on when the store is next opened, or when it is asked for again."""
        subject = self._subject(user=user, session=session, source=source, id=id)
        paths = [str(Path(one).expanduser().absolute()) for one in folders]
        if missing := [path for path in paths if not Path(path).is_dir()]:
            raise InvalidInput(f"there is no folder {missing[0]}. Nothing was erased.")
        return self._open.erase(subject, paths, dry_run, progress or _quiet)

    @traced
    def undo(self, source: str, *, dry_run: bool = True, progress: Progress | None = None) -> UndoResult:
        """What came from one source, such as a poisoned page or a bad tool, whichever way it came in, with all it led
        to; with dry_run=False it is taken back: those items go, and what they had replaced or corrected holds again."""
        return self._open.undo(check_key(source, "source"), dry_run, progress or _quiet)

    @traced
    def resume_erasures(self, progress: Progress | None = None) -> builtins.list[ErasureResult]:
        """Complete every erasure that is under way, whoever began it."""
        return self._open.resume_erasures(progress or _quiet)

    @traced
    def verify_erasure(self, receipt: Receipt | str | bytes, *, texts: Sequence[str] = ()) -> VerificationResult:
        """Look again: no row is left, and nothing on the servers of the settings, the audit log holds the receipt, and
        none of these texts is in any file. `beside` of the answer names the servers; one that does not answer is no
        proof, and the answer is not true."""
        from engrain.privacy.receipts import Receipt

        given = receipt if isinstance(receipt, Receipt) else Receipt.read(receipt)
        return self._open.verify_erasure(given, texts)

    @traced
    def hold(self, user: str, *, reason: str = "legal") -> Hold:
        """Keep a user's data from being removed until each reason is released. A reason is a code word, such as a file
        number: no content. The answer names no `user` if nothing is kept of them yet."""
        return self._open.hold(user, reason)

    @traced
    def release(self, user: str, *, reason: str | Sequence[str] | None = None) -> HoldRelease:
        """End a hold for a reason, for several (all or none), or for its only one; Conflict if there are several and
        none is named. With the last the hold is over, and what an erasure had hidden meanwhile is shown again:
        `refused` says when it was asked for. Not true, and nothing is changed, if one of them was not there."""
        return self._open.release(user, reason)

    @traced
    def holds(self, *, user: str | None = None) -> builtins.list[Hold]:
        """Every hold of this store, by name where a memory says it, or that of one user if there is one."""
        return self._open.holds(user)

    @traced
    def audit(
        self, *, user: str | None = None, after: int | None = None, limit: int = 1_000
    ) -> builtins.list[AuditEntry]:
        """What was removed, moved and held, without content: entries with a number above `after`, or the newest. Of a
        `user` of this tenant, those that concern all of them, not one session or item."""
        after = None if after is None else check_count(after, "after", 0, 1 << 60)
        return self._open.audit(user, after, check_count(limit, "limit", 1, 1_000_000))

    @traced
    def verify_audit(self, *, head: str | None = None) -> AuditResult:
        """Finds an entry that was changed, removed, moved or cut off. With the `head` that an earlier look gave
        (`Audited.kept`) and that was kept elsewhere, also a log that was put back or written anew as a whole."""
        return self._open.verify_audit(head)

    def _subject(self, **names: str | None) -> Subject:
        from engrain.core.model.erasure import Subject

        given = [(by, name) for by, name in names.items() if name is not None]
        if len(given) != 1:
            raise InvalidInput("erase takes one of user=, session=, source= and id=.")
        ((by, name),) = given
        if by == "user":
            return self._open.user(name)
        return Subject(self._open.scope, by, check_key(name, by))  # type: ignore[arg-type]


def _quiet(_: str) -> None:
    pass
