"""Take a memory along, and bring one in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from engrain.capture import write
from engrain.core.errors import EmbedderFailed, InvalidInput
from engrain.engine.parts import Parts

if TYPE_CHECKING:
    from engrain.lifecycle.exporting import Exported
    from engrain.lifecycle.intake import Loaded, Terms

FORMS = ("jsonl", "markdown")

_log = logging.getLogger("engrain")


class Portable(Parts):
    def export(self, out: BinaryIO, form: str, vectors: bool, done: Callable[[int], None]) -> Exported:
        from engrain.lifecycle import exporting, telling

        if form not in FORMS:
            raise InvalidInput(f"unknown form {form!r}. Known: {', '.join(FORMS)}.")
        if form == "markdown":
            return telling.tell(self.kit, self.scope, out, done)
        return exporting.export(self.kit, self.scope, out, vectors=vectors, done=done)

    def load(self, file: BinaryIO, terms: Terms, done: Callable[[int], None]) -> Loaded:
        from engrain.lifecycle import intake

        loaded = intake.load(file, self.scope, self.kit, terms, done)
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
        except EmbedderFailed as exc:
            _log.warning("what was loaded is without vectors for now: %s", exc)
