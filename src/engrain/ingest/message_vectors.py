"""Hold the vectors of one message and of its parts, all made in one pass of the local model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engrain.core.errors import EmbedderFailed
from engrain.core.model.items import Draft, Vectors
from engrain.core.rules.statements import find_conditions
from engrain.core.text.passages import Span
from engrain.ingest.write import find_sentences
from engrain.ports.search import Embedder, TextStates, find_span_pooling, pin_embedder

if TYPE_CHECKING:
    from engrain.ports.search import Matrix


@dataclass(frozen=True, slots=True, eq=False)
class ReadSpan:
    """The vector of a part of a message, and the pooled states of its words."""

    vector: Matrix
    state: Matrix


@dataclass(slots=True)
class MessageVectors:
    """The gate, the finder of changes and the write of one message read their vectors here.

    Only the first window of a message is read. With an embedder that cannot pool there is nothing here.
    """

    embedder: Embedder
    _states: TextStates | None = field(default=None, init=False)
    _spans: dict[Span, ReadSpan] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.embedder = pin_embedder(self.embedder)

    def read(self, text: str) -> TextStates | None:
        """Run the model over the first window of a text. None if it fails.

        The first text is the message, and its states are kept. Another one has only some of the message's words.
        """
        pooling = find_span_pooling(self.embedder)
        if pooling is None:
            return None
        if self._states is not None and text.startswith(self._states.text):
            return self._states
        try:
            states = pooling.read_text(self.embedder.windows(text)[0])
        except EmbedderFailed:  # the message is stored without a vector, and read by the rules alone
            return None
        self._states = self._states or states
        return states

    def read_span(self, text: str, span: Span) -> ReadSpan | None:
        """Return the vector of a part of the text and the states of its words, if that was read."""
        states, (start, end) = self._states, span
        if states is None or text[start:end] != states.text[start:end]:
            return None
        if span not in self._spans:
            self._spans[span] = ReadSpan(states.embed_spans([span])[0], states.pool_spans([span])[0])
        return self._spans[span]

    def embed_draft(self, draft: Draft, text: str, span: Span) -> Vectors | None:
        """Return the vectors of a draft with the words of a message or of a part of it, if that was read."""
        states = self._states
        # The condition of a standing order is embedded apart: `embed_texts` does all of such a text.
        if states is None or draft.text != text[slice(*span)] or find_conditions(draft.text):
            return None
        if draft.kind == "message" and text.startswith(states.text):
            rows = [states.vector, *states.embed_spans(find_sentences(text))]
        elif found := self.read_span(text, span):
            rows = [found.vector]
        else:
            return None
        return Vectors(self.embedder.model.key, tuple(row.tobytes() for row in rows))
