"""Take a memory along, and bring one in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from engrain.capture import write
from engrain.core.erasure import owner
from engrain.core.errors import EmbedderFailed, InvalidInput, OnHold, StoreError
from engrain.engine.parts import Parts
from engrain.lifecycle.recording import record

if TYPE_CHECKING:
    from engrain.lifecycle.exchange.exporting import Exported
    from engrain.lifecycle.exchange.intake import Loaded, Terms

FORMS = ("jsonl", "markdown")
OWN_FORMS = ("engrain", "notes")
COUNTED = ("added", "repeated", "replaced", "behind", "kept_out")

_log = logging.getLogger("engrain")


class Portable(Parts):
    def export(self, out: BinaryIO, form: str, vectors: bool, done: Callable[[int], None]) -> Exported:
        from engrain.lifecycle.exchange import exporting, telling

        if form not in FORMS:
            raise InvalidInput(f"unknown form {form!r}. Known: {', '.join(FORMS)}.")
        self._refuse_hidden()
        if form == "markdown":
            exported = telling.tell(self.kit, self.scope, out, done)
        else:
            exported = exporting.export(self.kit, self.scope, out, vectors=vectors, done=done)
        record(self.kit, "export", {"form": form, "counts": dict(exported.rows)}, self.scope)
        return exported

    def _refuse_hidden(self) -> None:
        """What a hold hides reads as empty, and a file that says so would not be true."""
        erasing, user = self.kit.erasing, owner(self.scope)
        if erasing is None or user is None:
            return
        mark = erasing.mark(user)
        if any(one.mark == mark and one.hidden for one in erasing.holds()):
            raise OnHold(
                "this user's memory is hidden under a legal hold: nothing of it can be exported until the release."
            )

    def load(self, file: BinaryIO, terms: Terms, done: Callable[[int], None]) -> Loaded:
        from engrain.lifecycle.exchange import intake

        loaded = intake.load(file, self.scope, self.kit, terms, done)
        if loaded.written:
            counts = {name: getattr(loaded, name) for name in COUNTED}
            what = "load" if loaded.form in OWN_FORMS else "import"
            record(self.kit, what, {"form": loaded.form, "counts": counts}, self.scope)
        if loaded.written and loaded.rows.get("item"):
            self._embed(done)
        return loaded

    def _embed(self, done: Callable[[int], None]) -> None:
        """In the background where there is one; else right now."""
        if self.background:
            self.upkeep.wake()
            return
        try:
            while made := write.embed_missing(self.kit, write.BATCH):
                done(made)
        except KeyboardInterrupt as stop:
            stop.add_note("All of it is written. What has no vector yet is found by its words, and gets one later.")
            raise
        except (EmbedderFailed, StoreError) as exc:
            # All of it is written: to raise would say that nothing was.
            _log.warning("what was loaded is without vectors for now: %s", exc)
