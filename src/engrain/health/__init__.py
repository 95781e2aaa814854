"""The checklist for a memory in production: 35 checks of a store and its settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

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
from engrain.core.model.results import NOT_OPENED, CheckResult, Verdict, format_command, report_pass
from engrain.core.validation import count_noun
from engrain.health import durability, operation, privacy, retrieval, safety, tiers
from engrain.health.context import SEVERITY, Check, CheckContext

__all__ = ["CHECKS", "Check", "CheckContext", "explain_unopened", "run_checks"]

_log = logging.getLogger("engrain")

CHECKS: tuple[Check, ...] = (
    *tiers.CHECKS,
    *durability.CHECKS,
    *retrieval.CHECKS,
    *safety.CHECKS,
    *privacy.CHECKS,
    *operation.CHECKS,
)
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


def run_checks(context: CheckContext, tell: Callable[[int], None] = lambda _: None) -> list[CheckResult]:
    """Run all checks in order. `tell` is called with 1 after each."""
    found = []
    for check in CHECKS:
        context.verdicts[check.name] = _check_all_memories(check, context)
        found.append(_build_result(check, context.verdicts[check.name]))
        tell(1)
    return found


def explain_unopened(error: EngrainError, store: str | None = None) -> list[CheckResult]:
    """Return the results for a store that does not open: one check explains it, the others are unknown."""
    reason, fix = next(
        ((name, fix) for kind, name, fix in _OPEN_ERRORS if isinstance(error, kind)),
        ("stores", "start its server, or name another store with --store"),
    )
    why = Verdict("fail", _shorten_message(error), fix.replace("%s", f"`{format_command('status', store=store)}`"))
    rest = Verdict("unknown", NOT_OPENED)
    return [_build_result(check, why if check.name == reason else rest) for check in CHECKS]


def _check_all_memories(check: Check, context: CheckContext) -> Verdict:
    """Run a check for all memories. Return the worst finding, and name its memory."""
    if not check.each or context.memory_count is None:
        return _run_check(check, context)
    found = [(one.scope, _run_check(check, one)) for one in context.memories[: check.most]]
    scope, first = min(found, key=lambda one: SEVERITY.index(one[1].state))
    if first.state == "pass" and check.whole:
        together = _run_check(replace(check, run=check.whole), context)
        if together.state != "pass":
            return together
    if first.state in ("pass", "unknown") and _is_about_store(first, [verdict for _, verdict in found]):
        return first
    if first.state == "pass":
        few = (
            f"the {len(found):,} of {context.memory_count:,}"
            if len(found) < context.memory_count
            else f"all {len(found):,}"
        )
        last = " last written to," if len(found) < context.memory_count else ""
        return report_pass(f"in {few} memories{last} {check.each}")
    more = sum(verdict.state == first.state for _, verdict in found) - 1
    others = f"; the same in {count_noun(more, 'more memory', 'more memories')}" if more else ""
    return Verdict(first.state, f"{scope}: {first.why}{others}", first.fix)


def _is_about_store(first: Verdict, found: list[Verdict]) -> bool:
    """Check whether a finding is about the store: all memories have the same text without numbers."""
    return len(found) == 1 or ({one.why for one in found} == {first.why} and not any(map(str.isdigit, first.why)))


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
    except (ValueError, TypeError, LookupError, ArithmeticError) as exc:
        # Another program or a bad disk may leave anything in a row. Its content is not repeated here.
        _log.debug("check %s failed to run", check.number, exc_info=True)
        why = f"the check failed: stored data is not as engrain writes it ({type(exc).__name__})"
        return Verdict("fail", why, f"{context.build_command('doctor', '--rebuild')}; if it stays, {_RESTORE}")


def _choose_fix(error: EngrainError, context: CheckContext) -> str:
    if "--rebuild" in str(error):
        return context.build_command("doctor", "--rebuild")
    known = next((fix for kind, _, fix in _OPEN_ERRORS if isinstance(error, kind)), None)
    return (
        known and known.replace("%s", context.build_command("status"))
    ) or "fix what it names, and run engrain doctor again"


def _shorten_message(error: EngrainError) -> str:
    """Drop the advice to run the doctor, which is running."""
    return str(error).replace("Run: engrain doctor. ", "").rstrip(".")


def _build_result(check: Check, verdict: Verdict) -> CheckResult:
    return CheckResult(check.number, check.group, check.name, *verdict)
