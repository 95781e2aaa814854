"""Take a memory along, and bring one in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, BinaryIO

from engrain.core.errors import EmbedderFailed, EngrainError, InvalidInput, OnHold, StoreError
from engrain.core.model.erasure import find_owner
from engrain.engine.parts import Parts
from engrain.ingest import write
from engrain.privacy.audit import record

if TYPE_CHECKING:
    from engrain.transfer.export import ExportResult
    from engrain.transfer.load import LoadOptions, LoadResult

FORMS = ("jsonl", "markdown")
OWN_FORMS = ("engrain", "notes")
COUNTED = ("added", "repeated", "replaced", "behind", "kept_out")

_log = logging.getLogger("engrain")


class Portable(Parts):
    def export(
        self, file: AbstractContextManager[BinaryIO], form: str, vectors: bool, done: Callable[[int], None]
    ) -> ExportResult:
        """`file` is made on entering, and gone again if that is left by an error."""
        if form not in FORMS:
            raise InvalidInput(f"unknown form {form!r}. Known: {', '.join(FORMS)}.")
        self._refuse_hidden()
        begun: dict[str, int] = {}
        try:
            with file as out:
                # Before anything is read: one that is killed leaves a part of it, and a receipt must know.
                entry = record(self.services, "export_begun", {"form": form}, self.scope)
                begun = {"begun": entry.n} if entry else {}
                exported = self._exported(out, form, vectors, done)
                record(self.services, "export", {"form": form, "counts": dict(exported.rows), **begun}, self.scope)
        except BaseException:
            if begun:
                with suppress(EngrainError):
                    record(self.services, "export_failed", begun, self.scope)
            raise
        return exported

    def _exported(self, out: BinaryIO, form: str, vectors: bool, done: Callable[[int], None]) -> ExportResult:
        from engrain.transfer import export, markdown

        if form == "markdown":
            return markdown.export_markdown(self.services, self.scope, out, done)
        return export.export(self.services, self.scope, out, vectors=vectors, done=done)

    def _refuse_hidden(self) -> None:
        """What a hold hides reads as empty, and a file that says so would not be true."""
        erasing, user = self.services.erasing, find_owner(self.scope)
        if erasing is None or user is None:
            return
        mark = erasing.mark(user)
        if any(one.mark == mark and one.hidden for one in erasing.holds()):
            raise OnHold(
                "this user's memory is hidden under a legal hold: nothing of it can be exported until the release."
            )

    def load(self, file: BinaryIO, terms: LoadOptions, done: Callable[[int], None]) -> LoadResult:
        from engrain.transfer import load

        loaded = load.load(file, self.scope, self.services, terms, done)
        if loaded.written:
            counts = {name: getattr(loaded, name) for name in COUNTED}
            what = "load" if loaded.form in OWN_FORMS else "import"
            record(self.services, what, {"form": loaded.form, "counts": counts}, self.scope)
        if loaded.written and loaded.rows.get("item"):
            self._embed(done)
        return loaded

    def _embed(self, done: Callable[[int], None]) -> None:
        """In the background where there is one; else right now."""
        if self.background:
            self.upkeep.wake()
            return
        try:
            while made := write.embed_missing(self.services, write.BATCH_SIZE):
                done(made)
        except KeyboardInterrupt as stop:
            stop.add_note("All of it is written. What has no vector yet is found by its words, and gets one later.")
            raise
        except (EmbedderFailed, StoreError) as exc:
            # All of it is written: to raise would say that nothing was.
            _log.warning("what was loaded is without vectors for now: %s", exc)
