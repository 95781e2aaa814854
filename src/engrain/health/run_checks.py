"""Run the checks of a store, and read each thing that several checks need once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from engrain.core.errors import (
    BackendMissing,
    ConfigError,
    DiskFull,
    EngrainError,
    InvalidInput,
    NewerStore,
    NotADatabase,
    OlderStore,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
    WrongKey,
)
from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry, AuditResult
from engrain.core.model.items import Item
from engrain.core.model.queries import Finding, ListQuery, StoreStatus
from engrain.core.model.results import NOT_OPENED, CheckResult, Group, Verdict, format_command, report_pass
from engrain.core.validation import count_noun
from engrain.ports import Services
from engrain.ports.storage import Deployed


class FailFastPort:
    """A port that raises the first StoreUnavailable again instead of waiting for its server once more.

    `find_error` tells why its server is known not to answer.
    """

    def __init__(self, port: object, find_error: Callable[[], str | None] = lambda: None) -> None:
        self._port = port
        self._find_error = find_error
        self._error: StoreUnavailable | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        def call(*args: Any, **options: Any) -> Any:
            if self._error is not None:
                raise self._error
            try:
                if why := self._find_error():
                    raise StoreUnavailable(why)
                return method(*args, **options)
            except StoreUnavailable as exc:
                self._error = exc
                raise

        return call


def wrap_server_ports(services: Services, check: Callable[[], Sequence[Finding]]) -> dict[str, Any]:
    """Return replacements for the ports of this services that may be on a server of their own."""
    feed: object = services.feed
    servers = [server for server in services.servers if server is not feed]

    def find_error() -> str | None:
        check()
        # The server with the episodes is not known here, so they are read unless no server answers.
        return servers[0].last_error if servers and all(server.last_error for server in servers) else None

    found: dict[str, Any] = {}
    if services.episodes is not None and not services.same_store:
        found["episodes"] = FailFastPort(services.episodes, find_error)
    if services.journal is not None and servers:
        found["journal"] = FailFastPort(services.journal)
    return found


MAX_ITEMS_PER_MEMORY = 500  # whose texts are read
MAX_ITEMS_OVERALL, MIN_ITEMS_PER_MEMORY = 5_000, 10
MAX_MEMORIES = 300  # the ones written to last
MAX_SORTED_MEMORIES = 5_000  # that are sorted by their last write
MAX_CHARACTERS_READ = 20_000  # of each item
MAX_AUDIT_ENTRIES = 5_000
SEVERITY = ("fail", "warn", "unknown", "pass")

T = TypeVar("T")
_log = logging.getLogger("engrain")
_RESTORE = "`engrain restore BACKUP STORE --force --yes`"
_FIX_SETTINGS = "fix the settings, and run engrain doctor again"
# Error of opening a store -> the check that reports it, and the fix. Other errors belong to the first check.
_OPEN_ERRORS: tuple[tuple[type[EngrainError], str, str], ...] = (
    (StoreCorrupt, "integrity", _RESTORE),
    (NotADatabase, "integrity", "name the store's own file with --store; an encrypted one needs ENGRAIN_KEY"),
    (NewerStore, "schema", "`pip install -U engrain`"),
    (OlderStore, "schema", "%s brings it up to date; a file's old version is kept as a copy"),
    (DiskFull, "disk", "free some space on its disk"),
    (WrongKey, "encryption", "set ENGRAIN_KEY to the key of this file, or unset it"),
    (ConfigError, "stores", _FIX_SETTINGS),
    (InvalidInput, "stores", _FIX_SETTINGS),
    (BackendMissing, "stores", "install it, and run engrain doctor again"),
)


class CheckContext:
    """An opened store and the memories to check. Nothing is changed, and nothing is read twice.

    `store` is the name that the caller gave it, for the commands in the fixes.
    """

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
        self.services = replace(services, **wrap_server_ports(services, lambda: self._server_findings))
        self.scope = scope
        self.now: datetime = services.clock()
        # State of the background workers of this process, as `status` shows it.
        self.background = background or {}
        self.verdicts: dict[str, Verdict] = {}  # of the earlier checks, by name
        self.limit = MAX_ITEMS_PER_MEMORY
        self.is_one_of_several = False
        self.store_name = store
        self._others = others

    @property
    def store(self) -> StoreStatus:
        return self._once("store", lambda: self.services.items.status(self.services.embedder.model.key))

    @property
    def memory_count(self) -> int | None:
        """The number of memories; None if only one is checked."""
        return None if self._others is None else len(self._others)

    @property
    def memories(self) -> list[CheckContext]:
        """A context for each memory, the one written to last first; only some of very many."""
        return self._once("memories", self._list_memories)

    @property
    def newest_items(self) -> list[Item]:
        if self._others is not None:
            return [item for memory in self.memories for item in memory.newest_items]
        query = ListQuery(self.scope, limit=self.limit)
        return self._once(f"newest {self.scope.id}", lambda: self.services.items.page(query))

    @property
    def audit_result(self) -> AuditResult | None:
        return self._once("audited", lambda: self.services.audit.verify() if self.services.audit else None)

    def find_last_recorded(self, what: str) -> datetime | None:
        """Return the time of the last such audit entry; None if there is none among the newest entries."""
        return max((entry.at for entry in self.audit_entries if entry.what == what), default=None)

    @property
    def audit_entries(self) -> list[AuditEntry]:
        """The newest entries of the audit log."""
        if self.services.audit is None or self.audit_result is None:
            return []
        return self.services.audit.entries(max(0, self.audit_result.entries - MAX_AUDIT_ENTRIES), MAX_AUDIT_ENTRIES)

    def list_folders(self, with_backups: bool = True) -> list[Path]:
        """List the folders of the mirror and of the backups."""
        mirror, backups = self.services.folder, self.services.policies.backup_folder
        paths = [mirror(memory.scope).path for memory in self.memories] if mirror else []
        if with_backups and backups:
            paths.append(backups)
        return list(dict.fromkeys(Path(path).expanduser() for path in paths))

    def build_command(self, *words: str, about: str = "") -> str:
        """Build the engrain command for this memory, in the backticks that the report expects."""
        of_all = self._others is not None or (self.is_one_of_several and words[0] == "maintain")
        owner = None if of_all else self.scope
        return f"`{format_command(*words, about=about, store=self.store_name, owner=owner)}`"

    def find_own(self, point: str) -> Verdict | None:
        """Return the store's own finding; None if it has none."""
        finding = self._once("own", self._check_store).get(point)
        return finding and Verdict(finding.state, finding.why.rstrip("."), finding.fix)

    def find_on_servers(self, point: str) -> list[Verdict]:
        """Return the findings of the memory's servers."""
        found = [finding for finding in self._server_findings if finding.point == point]
        return [Verdict(finding.state, finding.why.rstrip("."), finding.fix) for finding in found]

    def _check_store(self) -> dict[str, Finding]:
        items = self.services.items
        around = items.deployment() if isinstance(items, Deployed) else []
        return {finding.point: finding for finding in (*items.check(), *around)}

    @property
    def _server_findings(self) -> list[Finding]:
        return self._once("servers", self._check_servers)

    def _check_servers(self) -> list[Finding]:
        feed, state = cast(object, self.services.feed), self.background.get("vectors") or {}
        # The background state tells whether the vector server answers: do not wait for it again.
        error = state.get("error") if state.get("behind") is None else None
        known = [Finding("vectors", "fail", error)] if error else []
        asked = [server for server in self.services.servers if not (error and server is feed)]
        # In parallel: of several servers that do not answer, only the slowest costs time.
        with ThreadPoolExecutor(max(1, len(asked))) as pool:
            answers = list(pool.map(lambda server: server.check(), asked))
        return known + [finding for answer in answers for finding in answer]

    def _list_memories(self) -> list[CheckContext]:
        if not self._others:
            return [self._narrow_to(self.scope, MAX_ITEMS_PER_MEMORY)]
        # Every n-th memory, because a store lists them in any order.
        spread = self._others[:: -(-len(self._others) // MAX_SORTED_MEMORIES)]
        last = spread
        if len(spread) > MAX_MEMORIES:
            last = sorted(spread, key=self._read_last_write, reverse=True)[:MAX_MEMORIES]
        limit = min(MAX_ITEMS_PER_MEMORY, max(MIN_ITEMS_PER_MEMORY, MAX_ITEMS_OVERALL // len(last)))
        return [self._narrow_to(scope, limit) for scope in last]

    def _read_last_write(self, scope: Scope) -> float:
        newest = self.services.items.page(ListQuery(scope, history=True, limit=1))
        return newest[0].recorded_at.timestamp() if newest else 0.0

    def _narrow_to(self, scope: Scope, limit: int) -> CheckContext:
        narrowed = copy(self)
        narrowed.scope, narrowed.limit = scope, limit
        narrowed.is_one_of_several, narrowed._others = self._others is not None, None
        return narrowed

    def _once(self, what: str, ask: Callable[[], T]) -> T:
        if what not in self._known:
            self._known[what] = ask()
        return cast(T, self._known[what])


@dataclass(frozen=True, slots=True)
class Check:
    """One check. Its `number` and `name` stay the same in all versions and on every backend.

    `each` is the finding if several memories pass; "" if the check is about the store. At most `most` memories are
    checked. If all pass, `whole` checks the store.
    """

    number: int
    group: Group
    name: str
    question: str
    run: Callable[[CheckContext], Verdict]
    each: str = ""
    most: int = MAX_MEMORIES
    whole: Callable[[CheckContext], Verdict] | None = None


def report_own(point: str, otherwise: str) -> Callable[[CheckContext], Verdict]:
    """Make a check that returns the store's own finding, and passes if it has none."""
    return lambda context: context.find_own(point) or report_pass(otherwise.format(store=context.store))


def describe_span(span: timedelta) -> str:
    """Describe a length of time in the largest unit that fits."""
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    unit, length = next((unit for unit in units if span.total_seconds() >= unit[1]), units[-1])
    return count_noun(int(span.total_seconds() // length), unit)


def describe_age(time: datetime, now: datetime) -> str:
    return f"{describe_span(now - time)} ago" if now - time >= timedelta(minutes=1) else "just now"


def find_worst(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the first of the worst verdicts; None if there are none."""
    return min(verdicts, key=lambda verdict: SEVERITY.index(verdict.state), default=None)


def run_checks(
    checks: Sequence[Check], context: CheckContext, report: Callable[[int], None] = lambda _: None
) -> list[CheckResult]:
    """Run the checks in order. `report` is called with 1 after each."""
    found = []
    for check in checks:
        context.verdicts[check.name] = _check_all_memories(check, context)
        found.append(_build_result(check, context.verdicts[check.name]))
        report(1)
    return found


def explain_unopened(checks: Sequence[Check], error: EngrainError, store: str | None) -> list[CheckResult]:
    """Return the results for a store that does not open: one check explains it, the others are unknown."""
    reason, fix = next(
        ((name, fix) for kind, name, fix in _OPEN_ERRORS if isinstance(error, kind)),
        ("stores", "start its server, or name another store with --store"),
    )
    why = Verdict("fail", _shorten_message(error), fix.replace("%s", f"`{format_command('status', store=store)}`"))
    rest = Verdict("unknown", NOT_OPENED)
    return [_build_result(check, why if check.name == reason else rest) for check in checks]


def _check_all_memories(check: Check, context: CheckContext) -> Verdict:
    """Run a check for all memories. Return the worst finding, and name its memory."""
    if not check.each or context.memory_count is None:
        return _run_check(check, context)
    found = [(memory.scope, _run_check(check, memory)) for memory in context.memories[: check.most]]
    scope, first = min(found, key=lambda pair: SEVERITY.index(pair[1].state))
    if first.state == "pass" and check.whole:
        overall = _run_check(replace(check, run=check.whole), context)
        if overall.state != "pass":
            return overall
    # A finding is about the store if all memories have the same text without numbers.
    is_same = {verdict.why for _, verdict in found} == {first.why} and not any(map(str.isdigit, first.why))
    if first.state in ("pass", "unknown") and (len(found) == 1 or is_same):
        return first
    if first.state == "pass":
        if len(found) == context.memory_count:
            return report_pass(f"in all {len(found):,} memories {check.each}")
        return report_pass(f"in the {len(found):,} of {context.memory_count:,} memories last written to, {check.each}")
    more = sum(verdict.state == first.state for _, verdict in found) - 1
    others = f"; the same in {count_noun(more, 'more memory', 'more memories')}" if more else ""
    return Verdict(first.state, f"{scope}: {first.why}{others}", first.fix)


def _run_check(check: Check, context: CheckContext) -> Verdict:
    """Run one check. Its error becomes a finding, so that the others still run."""
    try:
        return check.run(context)
    except StoreClosed:
        raise
    except StoreUnavailable as exc:
        return Verdict("unknown", f"not checked: {_shorten_message(exc)}", "start the server")
    except EngrainError as exc:
        return Verdict("fail", f"the check failed: {_shorten_message(exc)}", _choose_fix(exc, context))
    except OSError as exc:
        why = f"the check failed: {exc.filename or 'a file'} cannot be looked at ({exc.strerror})"
        return Verdict("fail", why, "look if it was moved or removed; put it back, or restore a backup")
    except (ValueError, TypeError, LookupError, ArithmeticError) as exc:
        # Another program or a bad disk may leave anything in a row. Its content is not repeated here.
        _log.debug("check %s failed to run", check.number, exc_info=True)
        why = f"the check failed: stored data is not as engrain writes it ({type(exc).__name__})"
        return Verdict("fail", why, f"{context.build_command('doctor', '--rebuild')}; if it stays, {_RESTORE}")


def _choose_fix(error: EngrainError, context: CheckContext) -> str:
    rebuild = context.build_command("doctor", "--rebuild")
    if isinstance(error, StoreCorrupt):
        return f"{_RESTORE}; without a backup, {rebuild}"
    if "--rebuild" in str(error):
        return rebuild
    otherwise = "fix what it names, and run engrain doctor again"
    known = next((fix for kind, _, fix in _OPEN_ERRORS if isinstance(error, kind)), otherwise)
    return known.replace("%s", context.build_command("status"))


def _shorten_message(error: EngrainError) -> str:
    """Drop the advice to run the doctor, which is running."""
    return str(error).replace("Run: engrain doctor. ", "").rstrip(".")


def _build_result(check: Check, verdict: Verdict) -> CheckResult:
    return CheckResult(check.number, check.group, check.name, *verdict)
