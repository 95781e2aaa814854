"""The contracts between engrain and its backends, each stated once and tested in engrain_conformance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from engrain.core.clock import Clock
from engrain.core.identity import Scope
from engrain.core.model.queries import Finding
from engrain.core.model.retention import Policies
from engrain.core.tokens import CountTokens
from engrain.ports.erasure import AuditLog, Erasing
from engrain.ports.items import ItemStore, Records
from engrain.ports.reranker import Reranker
from engrain.ports.search import Embedder, Feed, VectorIndex, WordIndex
from engrain.ports.sessions import Episodes, Outcomes, SessionLog, SessionState
from engrain.ports.storage import Folder, Movable
from engrain.ports.tasks import TaskJournal

if TYPE_CHECKING:
    from engrain.core.model.messages import ChatReply, ChatRequest
    from engrain.core.secrets.redact import RedactFunction


class Model(Protocol):
    """A language model that takes messages and tools."""

    @property
    def name(self) -> str: ...

    def reply(self, ask: ChatRequest) -> ChatReply:
        """Answer a request. ModelFailed if there is no usable answer within the timeout and the retries."""


class Server(Protocol):
    """A server that holds a part of a memory, apart from the store of its items."""

    @property
    def where(self) -> str:
        """The server's name for people, without a password."""

    @property
    def last_error(self) -> str | None:
        """The reason why the server did not answer the last call; None if it did."""

    def check(self) -> list[Finding]:
        """Check the server, like ItemStore.check."""

    def close(self) -> None:
        """Close the server. A second call does nothing; every other call after it raises StoreClosed."""


class Background(Protocol):
    """The workers of an opened store."""

    def embed(self) -> None:
        """Give vectors soon to items that have none."""

    def enrich(self, scope: Scope, session: str, *, to_the_end: bool = False) -> None:
        """Let the small model look over this session soon: with `to_the_end`, however few messages are new."""

    def refine(self, refine: Callable[[], bool]) -> None:
        """Call this with the next look: it improves the summary of a working memory."""


@dataclass(frozen=True, slots=True)
class Services:
    """The ports of one opened store. What a deployment does not have is None."""

    items: ItemStore
    vectors: VectorIndex
    words: WordIndex
    log: SessionLog
    embedder: Embedder
    clock: Clock
    count_tokens: CountTokens
    episodes: Episodes | None = None
    journal: TaskJournal | None = None
    model: Model | None = None  # a small one, for summaries and extraction
    reranker: Reranker | None = None
    reranker_seconds: float = 5.0
    outcomes: Outcomes | None = None
    records: Records | None = None
    # Items and episodes are in one store, so that a plan can write both.
    same_store: bool = False
    servers: tuple[Server, ...] = ()
    # Present if the vectors are on a server of their own.
    feed: Feed | None = None
    state: SessionState | None = None
    erasing: Erasing | None = None
    audit: AuditLog | None = None
    policies: Policies = field(default_factory=Policies)
    # The previous embedder, whose vectors answer until the current one has embedded everything.
    previous_embedder: Embedder | None = None
    # Opens the folder that mirrors a memory.
    folder: Callable[[Scope], Folder] | None = None
    open_folder: Callable[[str], Folder] | None = None  # opens any other folder by its path
    redact: RedactFunction | None = None  # applied to every text before it is embedded or stored
    # Reads and restores the rows of all stores of the memory; None if `items` has them all.
    rows: Movable | None = None
    background: Background | None = None  # where nothing runs in the background
    read_only: bool = False

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.items.close()
