"""The contracts between engrain and its backends, each stated once and tested in engrain_conformance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from engrain.core.clock import Clock
from engrain.core.identity import Scope
from engrain.core.markdown.sync_state import IdleState
from engrain.core.model.procedures import Tally, Trial
from engrain.core.model.queries import (
    Changes,
    Finding,
    ItemChange,
    ItemCitation,
    ListQuery,
    Nearest,
    OutboxEntry,
    OutdatedSpan,
    Sketch,
    SketchQuery,
    StoreStatus,
    Summary,
    UnembeddedItem,
    UnprocessedSession,
    VectorQuery,
    WordHit,
    WordMatches,
    WordQuery,
)
from engrain.core.model.retention import Policies
from engrain.core.model.sessions import Episode, EpisodeDraft, RawOutput
from engrain.core.tokens import CountTokens
from engrain.ports.erasure import AuditLog, Erasable, Erasing
from engrain.ports.items import ItemStore
from engrain.ports.search import Embedder, Feed, VectorIndex, VectorServer, WordIndex
from engrain.ports.sessions import Episodes, Outcomes, SessionLog, SessionState
from engrain.ports.storage import Folder, Movable
from engrain.ports.tasks import TaskJournal

if TYPE_CHECKING:
    from engrain.core.model.chat import ChatReply, ChatRequest
    from engrain.core.secrets.redact import RedactFunction
    from engrain.ports.search import Matrix as Matrix

__all__ = [
    "AuditLog",
    "UnprocessedSession",
    "Changes",
    "Embedder",
    "Episode",
    "Episodes",
    "Erasable",
    "Erasing",
    "Feed",
    "Finding",
    "EpisodeDraft",
    "ItemChange",
    "ItemStore",
    "Services",
    "ItemCitation",
    "ListQuery",
    "WordMatches",
    "Model",
    "Movable",
    "Nearest",
    "OutboxEntry",
    "Outcomes",
    "OutdatedSpan",
    "RawOutput",
    "Server",
    "SessionLog",
    "SessionState",
    "Sketch",
    "SketchQuery",
    "StoreStatus",
    "Summary",
    "Tally",
    "TaskJournal",
    "Trial",
    "UnembeddedItem",
    "VectorIndex",
    "VectorQuery",
    "VectorServer",
    "WordHit",
    "WordIndex",
    "WordQuery",
]


class Model(Protocol):
    """A language model that takes messages and tools."""

    @property
    def name(self) -> str: ...

    def reply(self, ask: ChatRequest) -> ChatReply:
        """ModelFailed if there is no usable answer within the time-out and the retries."""


class Server(Protocol):
    """A store that holds a part of a memory beside its items."""

    @property
    def where(self) -> str:
        """The server as it is named to people, without a password."""

    @property
    def trouble(self) -> str | None:
        """Why it did not answer the last time; None if it did."""

    def check(self) -> list[Finding]:
        """As ItemStore.check."""

    def close(self) -> None:
        """A second call does nothing; every other call after it is StoreClosed."""


@dataclass(frozen=True, slots=True)
class Services:
    """The ports of one opened memory. What a deployment does not have is None."""

    items: ItemStore
    vectors: VectorIndex
    words: WordIndex
    log: SessionLog
    embedder: Embedder
    clock: Clock
    count_tokens: CountTokens
    episodes: Episodes | None = None
    journal: TaskJournal | None = None
    model: Model | None = None  # the small one, for summaries and extraction
    outcomes: Outcomes | None = None
    # Items and episodes are in one store, so that a plan can write both.
    same_store: bool = False
    servers: tuple[Server, ...] = ()
    # Where `vectors` are on a server of their own.
    feed: Feed | None = None
    state: SessionState | None = None
    erasing: Erasing | None = None
    audit: AuditLog | None = None
    policies: Policies = field(default_factory=Policies)
    # The embedder that made the vectors which are there, until the present one has made its own.
    before: Embedder | None = None
    # The folder of files that is kept in step with a memory.
    folder: Callable[[Scope], Folder] | None = None
    open_folder: Callable[[str], Folder] | None = None  # any other, by its path
    # Which folders were found in step with which memory (its path, the scope's id), as long as this is open.
    rests: dict[tuple[str, str], IdleState] = field(default_factory=dict)
    redact: RedactFunction | None = None  # what every text goes through before it is embedded or kept
    # Every row of the memory in whatever store it is; None if `items` has them all.
    rows: Movable | None = None

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.items.close()
