"""Memory: the one entry object, and the verbs as a program sees them."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import EmptyText, InvalidInput
from engrain.core.identity import Scope
from engrain.core.tokens import CountTokens, estimate_tokens
from engrain.memory.durable import DurableTasks
from engrain.memory.erasures import Erasures
from engrain.memory.happenings import Happenings
from engrain.memory.knowledge import Knowledge
from engrain.memory.portable import Portable
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.formats.manifests import BackupInfo
    from engrain.core.model.items import SourceKind
    from engrain.core.model.results import CheckResult, MemoryInfo, Status
    from engrain.core.secrets.redact import RedactFunction
    from engrain.maintenance.consolidate import ConsolidationResult
    from engrain.maintenance.maintain import MaintenanceReport
    from engrain.mirror.mirror import Mirror
    from engrain.ports import Embedder, Model
    from engrain.tiers.conversation import ConversationMemory
    from engrain.tiers.episodic import EpisodicMemory
    from engrain.tiers.procedural import ProceduralMemory
    from engrain.tiers.semantic import SemanticMemory
    from engrain.tiers.working import WorkingMemory


class Memory(Knowledge, Happenings, DurableTasks, Erasures, Portable):
    """A memory that stays, for one (tenant, agent, user).

        with Memory("agent.db", user="ana") as memory:
            memory.remember("Ana prefers Python over JavaScript.", importance=0.8)
            print(memory.recall("Which language should the example use?"))

    `store` is a path (the file is made on first use), a URL, or the path of a .toml file. `reads` are scopes of other
    memories in the same store that `recall` may look into; nothing is ever written there. `model` is a small one, such
    as "anthropic" or "ollama:NAME", for better summaries and facts in the background; without one all works. `key` (or
    ENGRAIN_KEY) encrypts the file: pip install "engrain[encryption]". `embedder_before` made the vectors that are
    there, and answers until `embedder` has made all anew. `lifecycle` has values of [lifecycle] (docs/lifecycle.md),
    such as {"every_minutes": 60}. `redact` names what is taken out of every text before it is embedded or kept: "keys",
    "cards", "mails", "phones", "iban", or functions of your own. Safe to use from several threads and, on one file,
    from several processes.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        reads: Sequence[Scope] = (),
        embedder: Embedder | str | None = None,
        model: Model | str | None = None,
        clock: Clock = system_clock,
        count_tokens: CountTokens = estimate_tokens,
        read_only: bool = False,
        background: bool = True,
        key: str | None = None,
        embedder_before: Embedder | str | None = None,
        lifecycle: Mapping[str, Any] | None = None,
        redact: Sequence[str | RedactFunction] | RedactFunction | None = None,
    ) -> None:
        # Imported here, so that `import engrain` stays light: numpy and the store's engine come with the first memory.
        from engrain.factory import Engine, open_services

        scope = _scope(tenant, agent, user)
        shared = tuple(one for one in _read(reads) if one != scope)
        services = open_services(
            store,
            embedder=embedder,
            model=model,
            clock=clock,
            count_tokens=count_tokens,
            read_only=read_only,
            key=key,
            before=embedder_before,
            lifecycle=lifecycle,
            redact=redact,
        )
        self._named = None if store is None else os.fsdecode(store)
        try:
            self._engine = Engine(services, scope, shared, background and not read_only)
            if not read_only:
                self._engine.go_on()
        except BaseException:
            services.close()
            raise

    @property
    def scope(self) -> Scope:
        """Whose memory this is: (tenant, agent, user)."""
        return self._open.scope

    @property
    def working(self) -> WorkingMemory:
        """The task at hand, with its goal, results and thoughts."""
        return self._open.working

    @property
    def conversation(self) -> ConversationMemory:
        """Of the present session, which begins now if there is none."""
        return self._open.conversation()

    @property
    def episodic(self) -> EpisodicMemory:
        """What happened: turns, tool calls, decisions, errors and what helped."""
        return self._open.episodic

    @property
    def semantic(self) -> SemanticMemory:
        """Facts, preferences, knowledge, relations."""
        return self._open.semantic

    @property
    def procedural(self) -> ProceduralMemory:
        """How to do things, in versions, with their record."""
        return self._open.procedural

    @traced
    def status(self) -> Status:
        """How this memory stands: where it is, how much of each kind it holds, what is under way, what is amiss."""
        return self._open.status()

    @traced
    def memories(self) -> list[MemoryInfo]:
        """Every memory of this store, whoever's: for those who run it. What is being erased is not shown."""
        return self._open.memories()

    @traced
    def maintain(
        self,
        *,
        dry_run: bool = False,
        reembed: bool = False,
        trust_clock: bool = False,
        everyone: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> MaintenanceReport:
        """One round of care, as docs/lifecycle.md has it: what matters is kept, what is over goes. A dry run says
        exactly what a real one then does; `each` of the answer has it item by item, with the reason.

        With `reembed` everything gets vectors of the present model, and those of others go. With `trust_clock` the
        clock is right, although it says that half a year went by since the last round. With `everyone` all memories of
        the store are cared for, one after the other, and not this one alone.
        """
        from engrain.maintenance.passes import Watch

        watch = Watch(progress or (lambda _: None))
        return self._open.maintain(dry_run, reembed, trust_clock, watch, everyone)

    @traced
    def consolidate(self, *, dry_run: bool = True) -> ConsolidationResult:
        """Let go of knowledge that matters little and was rarely used; never what is pinned, cited or young."""
        return self._open.consolidate(dry_run)

    @traced
    def backup(self, path: str | os.PathLike[str], *, key: str | None = None) -> BackupInfo:
        """Copy the whole store to a new file while it is in use, read it again and check it. With a key it is
        encrypted; a backup of an encrypted store has the store's key. `engrain restore` brings it back."""
        return self._open.backup(path, key)

    def mirror(
        self,
        folder: str | os.PathLike[str],
        *,
        max_lines: int = 200,
        max_bytes: int = 25_000,
        by: SourceKind = "user",
    ) -> Mirror:
        """A folder with SOUL.md, MEMORY.md and memory/YYYY-MM-DD.md, to be kept in step with this memory by `sync()` or
        `watch()`. What stands in the files counts as said by the user; with by="agent" as said by the agent."""
        from engrain.core.markdown.layout import PageBudget
        from engrain.factory import open_folder
        from engrain.mirror.mirror import Mirror

        return Mirror(self._open.services, self._open.scope, open_folder(folder), PageBudget(max_lines, max_bytes), by)

    @traced
    def check(
        self, progress: Callable[[int], None] | None = None, *, everyone: bool = False
    ) -> builtins.list[CheckResult]:
        """The 35 points of docs/checklist.md, which `engrain doctor` prints: each with how it stands, why, and what
        mends it. Nothing is changed. `progress` is called with 1 after each point. With `everyone` all memories of the
        store are looked into, and not this one alone."""
        return self._open.check(progress or (lambda _: None), everyone, self._named)

    @traced
    def rebuild(self, progress: Callable[[int], None] | None = None) -> int:
        """Make every index anew from the stored texts; the number of items seen."""
        return self._open.rebuild(progress or (lambda _: None))

    def close(self) -> None:
        """Write what is buffered and let go of the file. A second call does nothing."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _scope(tenant: str | None, agent: str | None, user: str | None) -> Scope:
    for name, value in (("tenant", tenant), ("agent", agent), ("user", user)):
        # Nearly always a variable that was not set: all its users would share one memory.
        if value == "":
            raise EmptyText(f"{name} is empty. Leave it out for a memory that has none.")
    return Scope(tenant, agent, user)


def _read(reads: object) -> tuple[Scope, ...]:
    if isinstance(reads, (list, tuple)) and all(isinstance(one, Scope) for one in reads):
        return tuple(dict.fromkeys(reads))
    raise InvalidInput(f"reads takes a list of Scopes, such as [Scope(agent='team')], not {reads!r}.")
