"""Check that removed data is gone, and that private data is protected."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta

from engrain.core.identity import Scope
from engrain.core.model.erasure import Erasure, Hold, find_owner
from engrain.core.model.results import Verdict, format_command, list_first, report_failure, report_pass, report_warning
from engrain.core.model.tasks import ENDED_STATUSES, TaskQuery
from engrain.core.secrets.redact import PrivateKind, find_private
from engrain.core.validation import count_noun
from engrain.health.run_checks import MAX_CHARACTERS_READ, Check, CheckContext, describe_age
from engrain.maintenance import episodes
from engrain.maintenance.passes import NO_LIMIT, MaintenanceContext
from engrain.ports.erasure import Erasing
from engrain.ports.storage import Backed, on_encrypted_disk

SECRET_KINDS: tuple[PrivateKind, ...] = ("keys", "cards", "iban")
SECRET_NAMES = {"keys": "keys or passwords", "cards": "card numbers", "iban": "IBANs"}
MAX_VERIFIED_ERASURES = 20  # the newest
MAX_ERASURE_TIME = timedelta(hours=1)
OVERDUE_GRACE = timedelta(days=1)  # daily maintenance is enough
MAX_HOLD_AGE = timedelta(days=365)
OVERDUE_NAMES = {
    "episodes": ("expired episode",),
    "tasks": ("old task",),
    "holds": ("hold older than a year", "holds older than a year"),
}


def check_forgotten(context: CheckContext) -> Verdict:
    found = context.find_own("forgotten")
    if found and found.state != "pass":
        return found
    if context.store.purge_pending:
        return report_warning(
            "forgotten bytes are still to be removed",
            f"{context.build_command('maintain')}, once no other program reads the store",
        )
    return report_pass("nothing that was forgotten is left in the files")


def check_erasures(context: CheckContext) -> Verdict:
    erasing = context.services.erasing
    if erasing is None:
        return report_pass("this store cannot erase users; forget removes one item at a time")
    running = erasing.running()
    if running:
        begun = running[0].at
        many = count_noun(len(running), "erasure is", "erasures are")
        why = f"{many} not complete, the oldest begun {describe_age(begun, context.now)}"
        report = report_failure if context.now - begun > MAX_ERASURE_TIME else report_warning
        return report(why, context.build_command("erase", "--resume"))
    done = sorted(erasing.all_erased(), key=lambda erased: erased.at)[-MAX_VERIFIED_ERASURES:]
    for subject in done:
        left = erasing.count_remaining(
            Erasure(subject.receipt, subject.subject_hash, subject.by, "anonymized", subject.at)
        )
        if rows := sum(left.values()):
            erased = f"receipt {subject.receipt} says they were erased {describe_age(subject.at, context.now)}"
            why = f"{rows:,} rows are back although {erased}"
            return report_failure(
                why, f"engrain erase that {subject.by} once more, and look where they came from: engrain audit"
            )
    for user, at in _find_refused_erasures(context, erasing).items():
        asked = f"an erasure requested {describe_age(at, context.now)}"
        why = f"{asked} was refused under a legal hold, which has ended since"
        line = format_command("erase", "--yes", "--receipt", "receipt.json", store=context.store_name, owner=user)
        return report_warning(why, f"`{line}`")
    if not done:
        return report_pass("no erasure was requested")
    return report_pass(
        f"{count_noun(len(done), 'erasure is', 'erasures are')} complete, and nothing that was erased is back"
    )


def _find_refused_erasures(context: CheckContext, erasing: Erasing) -> dict[Scope, datetime]:
    """Return the users whose erasure a hold refused and nobody requested again."""
    asked: dict[str, datetime] = {}
    for entry in context.audit_entries:
        if entry.what == "erase_refused" and entry.details.get("by") == "user":
            asked[str(entry.subject)] = entry.at
        elif entry.what == "erase":
            asked.pop(str(entry.subject), None)
    for hold in erasing.holds():
        asked.pop(hold.subject_hash, None)  # the hold hides the data
    users = erasing.users() if asked else []
    known = {erasing.hash_subject(user): Scope(user.scope.tenant, None, user.name) for user in users}
    return {known[subject]: at for subject, at in asked.items() if subject in known}


def check_audit_log(context: CheckContext) -> Verdict:
    found = context.audit_result
    if found is None:
        return report_pass("this store keeps no audit log")
    if found.faults:
        why = f"the audit log was tampered with: {found.faults[0].rstrip('.')}"
        return report_failure(
            why, f"{context.build_command('audit', 'verify')} shows all; restore the log from a backup"
        )
    return report_pass(f"the chain of {count_noun(found.entries, 'entry', 'entries')} is intact")


def check_secrets(context: CheckContext) -> Verdict:
    kinds: Counter[str] = Counter()
    ids = []
    for item in context.newest_items:
        texts = (item.text, json.dumps(dict(item.metadata), ensure_ascii=False, default=str))
        found = {span.kind for text in texts for span in find_private(text[:MAX_CHARACTERS_READ], SECRET_KINDS)}
        if found:
            kinds.update(found)
            ids.append(item.id)
    if not ids:
        how = "and texts are redacted before they are kept" if context.services.redact else "and nothing is redacted"
        return report_pass(f"no secret is in the newest items ({len(context.newest_items):,} read), {how}")
    listed = ", ".join(f"{count:,} with {SECRET_NAMES[kind]}" for kind, count in kinds.items())
    why = f"{len(ids):,} of the {len(context.newest_items):,} newest items hold secrets ({listed}): {list_first(ids)}"
    fix = context.build_command("forget", ids[0])
    return report_warning(
        why, fix if context.services.redact else f'{fix}, and redact = ["keys", "cards", "iban"] in [privacy]'
    )


def check_encryption(context: CheckContext) -> Verdict:
    found = context.find_own("encryption") or report_pass("nothing of it is on a disk")
    # Backups of an encrypted store are encrypted.
    encrypted = context.store.details.get("encrypted") or not isinstance(context.services.items, Backed)
    folders = context.list_folders(with_backups=not encrypted)
    clear = [str(folder) for folder in folders if folder.exists() and not on_encrypted_disk(folder)]
    if found.state != "pass" or not clear:
        return found
    why = f"{found.why}; but {list_first(clear)} has the same texts unencrypted, as far as can be seen"
    return report_warning(why, "keep it on an encrypted disk, or leave it out of [lifecycle] and delete it")


def check_retention(context: CheckContext) -> Verdict:
    over = _count_overdue(context)
    if any(over.values()):
        late = [count_noun(count, *OVERDUE_NAMES[what]) for what, count in over.items() if count]
        maintain, holds = context.build_command("maintain"), f"{context.build_command('hold')} lists the holds"
        fix = maintain if over["episodes"] or over["tasks"] else holds
        return report_warning(f"kept past their time: {', '.join(late)}", fix)
    days = context.services.policies.task_days
    return report_pass(f"no expired episode, no task that ended more than {days:g} days ago, no hold older than a year")


def _count_overdue(context: CheckContext) -> dict[str, int]:
    services, then = context.services, context.now - OVERDUE_GRACE
    before = then - timedelta(days=services.policies.task_days)
    late = MaintenanceContext(services, context.scope, then)
    expired = episodes.plan_episode_passes(late)[1].actions if services.episodes else ()
    ended = services.journal.tasks(TaskQuery(context.scope, ENDED_STATUSES, limit=NO_LIMIT)) if services.journal else []
    return {
        "episodes": len(expired),
        "tasks": sum(task.ended_at is not None and task.ended_at < before for task in ended),
        "holds": 0 if context.is_one_of_several else len(_list_old_holds(context)),
    }


def check_old_holds(context: CheckContext) -> Verdict:
    """Check the holds of the whole store, because no memory shows what a hold hides."""
    if not (holds := _list_old_holds(context)):
        return report_pass("no hold is a year old")
    late = count_noun(len(holds), *OVERDUE_NAMES["holds"])
    return report_warning(f"kept past their time: {late}", f"{context.build_command('hold')} lists the holds")


def _list_old_holds(context: CheckContext) -> list[Hold]:
    """List the old holds in the whole store, or on the checked memory's user."""
    erasing, user = context.services.erasing, find_owner(context.scope)
    if erasing is None:
        return []
    old = [hold for hold in erasing.holds() if context.now - hold.at > MAX_HOLD_AGE]
    if context.memory_count is not None:
        return old
    return [hold for hold in old if user and hold.subject_hash == erasing.hash_subject(user)]


CHECKS = (
    Check(25, "privacy", "forgotten", "Are the bytes of what was forgotten gone?", check_forgotten),
    Check(26, "privacy", "erasures", "Is every erasure complete, and still true?", check_erasures),
    Check(27, "privacy", "audit log", "Is the log of removals intact?", check_audit_log),
    Check(28, "privacy", "secrets", "Do stored texts hold keys, cards or IBANs?", check_secrets,
          "no secret is in the newest items"),
    Check(29, "privacy", "encryption", "Is it unreadable on a stolen disk or a tapped connection?", check_encryption),
    Check(30, "privacy", "past its time", "Is anything kept longer than it may be?", check_retention,
          "no episode, no task and no hold is past its time", whole=check_old_holds),
)  # fmt: skip
