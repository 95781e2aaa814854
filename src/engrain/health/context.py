"""What a point of the checklist is given to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar, cast

from engrain.core.errors import StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry, AuditResult
from engrain.core.model.items import Item
from engrain.core.model.queries import Finding, ListQuery, StoreStatus
from engrain.core.model.results import Group, Verdict, format_command
from engrain.ports import Services
from engrain.ports.storage import Deployed


class FailFastPort:
    """A port that, once its server did not answer, says so again without asking."""

    def __init__(self, port: object, away: Callable[[], str | None] = lambda: None) -> None:
        self._port = port
        self._away = away
        self._error: StoreUnavailable | None = None

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._port, name)

        def asked(*args: Any, **options: Any) -> Any:
            if self._error is not None:
                raise self._error
            try:
                if why := self._away():
                    raise StoreUnavailable(why)
                return ask(*args, **options)
            except StoreUnavailable as exc:
                self._error = exc
                raise

        return asked


def wrap_server_ports(services: Services, check: Callable[[], Sequence[Finding]]) -> dict[str, Any]:
    """The ports of this services that may be on a server beside the items, to be put in their place."""
    feed: object = services.feed
    servers = [one for one in services.servers if one is not feed]

    def away() -> str | None:
        check()
        # Which of several has the episodes is not known here: they are asked for, unless none of them answers.
        return servers[0].trouble if servers and all(one.trouble for one in servers) else None

    found: dict[str, Any] = {}
    if services.episodes is not None and not services.same_store:
        found["episodes"] = FailFastPort(services.episodes, away)
    if services.journal is not None and servers:
        found["journal"] = FailFastPort(services.journal)
    return found


MAX_ITEMS_PER_MEMORY = 500  # items that are read for what their texts say, of one memory
MAX_ITEMS_OVERALL, MIN_ITEMS_PER_MEMORY = 5_000, 10  # of all memories together, and of each at least
MAX_MEMORIES = 300  # those last written to
MAX_SORTED_MEMORIES = 5_000  # memories that are asked when that was
MAX_CHARACTERS_READ = 20_000  # characters of each item
MAX_AUDIT_ENTRIES = 5_000  # entries of the audit log
SEVERITY = ("fail", "warn", "unknown", "pass")

T = TypeVar("T")


class CheckContext:
    """An opened store, and the memory or the memories of it that are meant. What several points ask for is asked once;
    nothing is changed. `store` is how it was named, for the commands that mend something."""

    def __init__(
        self,
        services: Services,
        scope: Scope,
        background: Mapping[str, Any] | None = None,
        *,
        others: Sequence[Scope] | None = None,
        store: str | None = None,
    ) -> None:
        self._known: dict[str, object] = {}
        self.services = replace(services, **wrap_server_ports(services, lambda: self._beside))
        self.scope = scope
        self.now: datetime = services.clock()
        # What goes on beside, as `status` shows it: in this process only.
        self.background = background or {}
        self.verdicts: dict[str, Verdict] = {}  # of the points before, by name
        self.limit = MAX_ITEMS_PER_MEMORY
        self.among = False  # one of several that are looked into
        self.named = store
        self._others = others

    @property
    def store(self) -> StoreStatus:
        return self._once("store", lambda: self.services.items.status(self.services.embedder.model.key))

    @property
    def all(self) -> int | None:
        """How many memories there are, if not one alone is meant."""
        return None if self._others is None else len(self._others)

    @property
    def memories(self) -> list[CheckContext]:
        """Each by itself, the one last written to first; not all of very many."""
        return self._once("memories", self._each)

    @property
    def newest(self) -> list[Item]:
        if self._others is not None:
            return [item for one in self.memories for item in one.newest]
        query = ListQuery(self.scope, limit=self.limit)
        return self._once(f"newest {self.scope.id}", lambda: self.services.items.page(query))

    @property
    def audited(self) -> AuditResult | None:
        return self._once("audited", lambda: self.services.audit.verify() if self.services.audit else None)

    def last(self, what: str) -> datetime | None:
        """When this was last done, as the audit log has it; None if that is long ago, or never was."""
        return max((one.at for one in self.recorded if one.what == what), default=None)

    @property
    def recorded(self) -> list[AuditEntry]:
        """The newest entries of the audit log."""
        if self.services.audit is None or self.audited is None:
            return []
        return self.services.audit.entries(max(0, self.audited.entries - MAX_AUDIT_ENTRIES), MAX_AUDIT_ENTRIES)

    def run(self, *words: str, about: str = "") -> str:
        """A command of engrain for this memory, as it is to be typed, in the marks that the report takes
        it out of."""
        of_all = self._others is not None or (self.among and words[0] == "maintain")
        owner = None if of_all else self.scope
        return f"`{format_command(*words, about=about, store=self.named, owner=owner)}`"

    def found(self, point: str) -> Verdict | None:
        """What the store itself says of this; None if it has nothing to say."""
        one = self._own.get(point)
        return one and Verdict(one.state, one.why.rstrip("."), one.mend)

    def beside(self, point: str) -> list[Verdict]:
        """What the servers beside it say."""
        return [Verdict(one.state, one.why.rstrip("."), one.mend) for one in self._beside if one.point == point]

    @property
    def _own(self) -> dict[str, Finding]:
        return self._once("own", self._checked)

    def _checked(self) -> dict[str, Finding]:
        items = self.services.items
        around = items.deployment() if isinstance(items, Deployed) else []
        return {one.point: one for one in (*items.check(), *around)}

    @property
    def _beside(self) -> list[Finding]:
        return self._once("beside", self._servers)

    def _servers(self) -> list[Finding]:
        feed, told = cast(object, self.services.feed), self.background.get("vectors") or {}
        # The vector server was just asked how far behind it is: one that did not answer is not waited for again.
        away = told.get("error") if told.get("behind") is None else None
        known = [Finding("vectors", "fail", away)] if away else []
        asked = [server for server in self.services.servers if not (away and server is feed)]
        # Side by side: of several that do not answer, the slowest alone is waited for.
        with ThreadPoolExecutor(max(1, len(asked))) as together:
            answers = list(together.map(lambda server: server.check(), asked))
        return known + [one for answer in answers for one in answer]

    def _each(self) -> list[CheckContext]:
        if not self._others:
            return [self._of(self.scope, MAX_ITEMS_PER_MEMORY)]
        # Spread, because a store names its memories in any order.
        spread = self._others[:: -(-len(self._others) // MAX_SORTED_MEMORIES)]
        last = sorted(spread, key=self._written, reverse=True)[:MAX_MEMORIES] if len(spread) > MAX_MEMORIES else spread
        limit = min(MAX_ITEMS_PER_MEMORY, max(MIN_ITEMS_PER_MEMORY, MAX_ITEMS_OVERALL // len(last)))
        return [self._of(one, limit) for one in last]

    def _written(self, scope: Scope) -> float:
        newest = self.services.items.page(ListQuery(scope, history=True, limit=1))
        return newest[0].recorded_at.timestamp() if newest else 0.0

    def _of(self, scope: Scope, limit: int) -> CheckContext:
        one = copy(self)
        one.scope, one.limit, one.among, one._others = scope, limit, self._others is not None, None
        return one

    def _once(self, what: str, ask: Callable[[], T]) -> T:
        if what not in self._known:
            self._known[what] = ask()
        return cast(T, self._known[what])


@dataclass(frozen=True, slots=True)
class Check:
    """`number` and `name` stay what they are from version to version, on every backend. `each` is what is said of
    several memories that all pass; "" if the point is about the store as a whole. It looks into at most `most`, and if
    none of them is amiss at the `whole` of them."""

    number: int
    group: Group
    name: str
    question: str
    look: Callable[[CheckContext], Verdict]
    each: str = ""
    most: int = MAX_MEMORIES
    whole: Callable[[CheckContext], Verdict] | None = None


def describe_age(moment: datetime, now: datetime) -> str:
    """How long it has been, in the unit that a person would take."""
    seconds = max(0.0, (now - moment).total_seconds())
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count:,} {unit}{'s' * (count != 1)} ago"
    return "just now"


def find_worst(verdicts: Sequence[Verdict]) -> Verdict | None:
    """The first of the worst; None of none."""
    return min(verdicts, key=lambda one: SEVERITY.index(one.state), default=None)
