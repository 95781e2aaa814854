"""Embed what has no vector yet, and pass over a text that the embedder does not take."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.capture import write
from engrain.core.errors import EmbedderFailed
from engrain.ports import Kit, Unembedded

# Whoever does not take this takes nothing.
PLAIN = "tea"


class Embedding:
    """`refused` has the texts that the embedder failed at while it took others, by id, with what it said."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.refused: dict[str, str] = {}

    def some(self, limit: int) -> list[str]:
        """The ids of those that got a vector; none if only refused ones are left. EmbedderFailed if it takes none."""
        began = self._kit.items.moment()
        while missing := self._missing(limit):
            try:
                write.embed_some(self._kit, missing, began)
            except EmbedderFailed:
                self._kit.embedder.embed([PLAIN], "document")
                if made := self._one_by_one(missing, began):
                    return made
            else:
                return [one.id for one in missing]
        return []

    @property
    def trouble(self) -> str:
        """What is told of the refused ones, naming the first of them."""
        if not self.refused:
            return ""
        count, (id, why) = len(self.refused), next(iter(self.refused.items()))
        return f"{count:,} text{'s' * (count != 1)} not taken by the embedder, such as that of {id}: {why}"

    def left(self) -> bool:
        return bool(self._missing(1))

    def _missing(self, limit: int) -> list[Unembedded]:
        found = self._kit.items.unembedded(self._kit.embedder.model.key, limit + len(self.refused))
        return [one for one in found if one.id not in self.refused][:limit]

    def _one_by_one(self, missing: Sequence[Unembedded], began: int) -> list[str]:
        made: list[str] = []
        for one in missing:
            try:
                write.embed_some(self._kit, [one], began)
            except EmbedderFailed as exc:
                self.refused[one.id] = str(exc)
            else:
                made.append(one.id)
        return made
