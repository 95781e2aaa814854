"""Check that no other user and no untrusted text can read or steer a memory."""

from __future__ import annotations

import shlex

from engrain.core.errors import EngrainError
from engrain.core.markdown.layout import list_conflict_ids
from engrain.core.markdown.three_way_merge import CONFLICTS, SOUL_SLOT
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import TRUST, Item
from engrain.core.model.messages import get_answered_call, read_calls
from engrain.core.model.queries import ListQuery
from engrain.core.model.results import Verdict, format_command, list_first, report_failure, report_pass, report_warning
from engrain.core.rules.message_filters import is_prompt_injection
from engrain.core.rules.removal import find_addresses
from engrain.core.validation import count_noun
from engrain.health.run_checks import MAX_CHARACTERS_READ, Check, CheckContext, find_worst
from engrain.ports.storage import is_open_to_others

USER_SLOT_PREFIX = "user."
MIN_OWN_TRUST = TRUST["agent"]  # texts of pages, files and tools are below it
MAX_OTHERS_TRUST = TRUST["agent"]  # texts of the user and the program are above it
MAX_PINNED_ITEMS = 1_000


def check_isolation(context: CheckContext) -> Verdict:
    owners = context.find_own("owners")
    if owners and owners.state != "pass":
        nobodys = format_command("list", store=context.store_name)
        owners = owners._replace(fix=f"`{nobodys}` shows them; give every Memory(…) its user=")
    return find_worst([verdict for verdict in (context.find_own("isolation"), owners) if verdict]) or report_pass(
        "each memory is separate in this process"
    )


def check_trust(context: CheckContext) -> Verdict:
    items = context.services.items
    soul = items.slot(context.scope, SOUL_SLOT, None)
    pinned = items.page(
        ListQuery(context.scope, parse_filter({"pinned": True, "trust": {"<": MIN_OWN_TRUST}}), limit=MAX_PINNED_ITEMS)
    )
    speaks = [*items.slots(context.scope, USER_SLOT_PREFIX, None), *([soul] if soul else [])]
    low = {item.id: item for item in (*speaks, *pinned) if item.trust < MIN_OWN_TRUST}
    if not low:
        return report_pass(f"what describes the user comes from the user ({count_noun(len(speaks), 'slot')})")
    listed = list_first([f"{item.slot or item.id} (trust {item.trust:g})" for item in low.values()])
    many = count_noun(len(low), "item about the user was", "items about the user were")
    why = f"{many} taken from a page, a file or a tool: {listed}"
    shown = context.build_command("explain", next(iter(low)))
    return report_warning(
        why, f"{shown} shows the source; then engrain correct ID, engrain forget ID or engrain undo SOURCE"
    )


def check_instructions(context: CheckContext) -> Verdict:
    where = parse_filter({"trust": {"<=": MAX_OTHERS_TRUST}})
    read = context.services.items.page(ListQuery(context.scope, where, limit=context.limit))
    found = [item for item in read if is_prompt_injection(item.text[:MAX_CHARACTERS_READ])]
    if not read:
        return report_pass("every text comes from the user")
    if not found:
        return report_pass(f"none of {len(read):,} texts from others gives orders to the model")
    listed = list_first([f"{item.id} from {item.source}" if item.source else item.id for item in found])
    why = f"{len(found):,} of {len(read):,} texts from others read like orders to the model: {listed}"
    source = next((source for item in found if (source := _find_origin(context, item))), None)
    if source is None:
        return report_warning(why, f"{context.build_command('get', found[0].id)}, then engrain forget")
    return report_warning(
        why, f"{context.build_command('undo', about=source)} shows what came from there; with --yes it is removed"
    )


def _find_origin(context: CheckContext, item: Item) -> str | None:
    """Return an item's source. For a tool's answer, return the address that the tool was called with.

    Undoing by the tool's name would remove all that it ever returned.
    """
    if item.role != "tool" or item.place is None:
        return item.source
    asked = parse_filter({"session": item.session, "role": "assistant"})
    said = context.services.items.page(ListQuery(context.scope, asked, limit=context.limit))
    before = sorted((other for other in said if (other.place or 0) < item.place), key=lambda other: other.place or 0)
    calls = [call for other in before for call in read_calls(other.text, other.metadata)]
    made = [call for call in calls if call.id == get_answered_call(item.metadata)]
    return min(find_addresses(made[-1]), default=None) if made else None


def check_rights(context: CheckContext) -> Verdict:
    own = context.find_own("rights") or report_pass(f"no file of its own: {context.store.backend}")
    # The folders of the mirror and of the backups have the same texts.
    folders = [str(path) for path in context.list_folders() if is_open_to_others(path)]
    if not folders:
        return own
    why, fix = f"other users of this machine can look into {list_first(folders)}", f"`chmod 700 {shlex.join(folders)}`"
    if own.state == "pass":
        return report_warning(why, fix)
    return Verdict(own.state, f"{own.why}; {why}", f"{own.fix} and {fix}")


def check_file_conflicts(context: CheckContext) -> Verdict:
    if context.services.folder is None:
        return report_pass("no folder of files is synced (mirror in [lifecycle])")
    folder = context.services.folder(context.scope)
    try:
        raw = folder.read(CONFLICTS)
    except EngrainError as exc:
        return report_failure(
            f"{folder.path} cannot be read: {str(exc).rstrip('.')}",
            context.build_command("files", "status", str(folder.path)),
        )
    waiting = list_conflict_ids(raw.decode("utf-8", "replace")) if raw else []
    if not waiting:
        return report_pass(f"nothing in {folder.path} waits for a decision")
    why = f"{count_noun(len(waiting), 'line was', 'lines were')} changed both by hand and by the memory"
    return report_warning(
        f"{why}; the memory's version is kept: {list_first(waiting)}",
        f"decide in {folder.path}/{CONFLICTS}, and delete what is settled",
    )


CHECKS = (
    Check(20, "safety", "isolation", "Does every item have an owner?", check_isolation),
    Check(21, "safety", "trust", "Does everything about the user come from the user?", check_trust,
          "what describes the user comes from the user"),
    Check(22, "safety", "instructions", "Does a stored text give orders to the model?", check_instructions,
          "none of the newest texts from others gives orders to the model"),
    Check(23, "safety", "rights", "Can other users of this machine read the files?", check_rights),
    Check(24, "safety", "file conflicts", "Does a conflict in the files wait for a decision?", check_file_conflicts,
          "no conflict in the files waits for a decision"),
)  # fmt: skip
