"""Privacy: legal holds, erasure with a receipt, export, and the audit log."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from engrain import ConfigError, Conflict, ErasureResult, InvalidInput, NotFound, Receipt
from engrain.core.model.results import describe_verification
from engrain.core.validation import count_noun
from engrain.ui.addresses import write_owner
from engrain.ui.page_request import Visit

AUDIT_PAGE = 100
TARGETS = ("user", "session", "source")


def show_privacy(visit: Visit) -> Response:
    return visit.page("privacy.html", **_load(visit), names=_suggest_names(visit))


def show_preview(visit: Visit) -> Response:
    """A dry run, and the form in which the person types the name."""
    target, name = _read_target(visit)
    found = _erase(visit, target, name, dry_run=True)
    return visit.fragment("_erase_preview.html", target=target, name=name, found=found)


def erase(visit: Visit) -> Response:
    target, name = _read_target(visit)
    if visit.value("typed") != name:
        raise InvalidInput(f"the typed name does not match. Type {name!r} exactly; nothing was erased.")
    done = _erase(visit, target, name, dry_run=False)
    if done.receipt is None:
        raise Conflict(f"the erasure is not complete: {done.why} It continues when the store is next opened.")
    counts, verified = done.receipt.values["counts"], describe_verification(done.receipt.values["verified"])
    return visit.fragment("_receipt.html", receipt=done.receipt, erased=counts, verified=verified,
                          number=done.receipt.n)  # fmt: skip


def send_receipt(visit: Visit) -> Response:
    receipt = _find_receipt(visit)
    name = f"engrain-receipt-{receipt.n}.json"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(str(receipt) + "\n", media_type="application/json", headers=headers)


def verify(visit: Visit) -> Response:
    """Verify a receipt again; without a number the chain of the audit log."""
    if visit.value("n"):
        found = visit.store.verify_erasure(_find_receipt(visit), scope=visit.scope)
        return visit.fragment("_verified.html", good=bool(found), lines=list(found.lines))
    log = visit.store.verify_audit()
    whole = f"{count_noun(log.entries, 'entry', 'entries')}: the chain is whole. Its head is {log.checkpoint}"
    return visit.fragment("_verified.html", good=bool(log), lines=list(log.faults) or [whole])


def hold(visit: Visit) -> Response:
    user = visit.value("user").strip()
    if not user:
        raise InvalidInput("say whose data is held: the name of a user.")
    made = visit.store.hold(user, tenant=visit.scope.tenant, reason=visit.value("reason").strip() or "legal")
    known = "" if made.user else " Nothing is kept of this user here yet."
    return visit.redirect("privacy", f"Held for {made.reason}.{known}")


def release(visit: Visit) -> Response:
    tenant = visit.value("tenant") if "tenant" in visit.form else None
    done = visit.store.release(visit.require("user"), tenant=tenant, reason=visit.require("reason"))
    if not done:
        raise NotFound("there is no such hold any more; nothing was changed.")
    left = f" Still held for {', '.join(done.left)}." if done.left else ""
    asked = " An erasure was refused meanwhile: request it again." if done.refused else ""
    return visit.redirect("privacy", f"Released.{left}{asked}")


def send_export(visit: Visit) -> Response:
    """This memory as JSON Lines, which `load` restores item for item."""
    folder = tempfile.TemporaryDirectory(prefix="engrain-export-")
    path = Path(folder.name) / "memory.jsonl"
    visit.memory.export(path)
    name = f"engrain-{write_owner(visit.scope).replace('=', '-').replace(',', '-')}.jsonl"
    return FileResponse(path, filename=name, media_type="application/jsonl", background=BackgroundTask(folder.cleanup))


def _load(visit: Visit) -> dict[str, Any]:
    try:
        entries = visit.store.audit(limit=AUDIT_PAGE)
        return {"able": True, "holds": visit.store.holds(), "audit": entries[::-1]}
    except ConfigError as exc:
        return {"able": False, "why": str(exc), "holds": [], "audit": []}


def _suggest_names(visit: Visit) -> dict[str, list[str]]:
    sessions = [info.session for info in visit.memory.sessions.list(100)]
    return {"user": [visit.scope.user] if visit.scope.user else [], "session": sessions, "source": []}


def _read_target(visit: Visit) -> tuple[str, str]:
    target = visit.value("target") or visit.query("target")
    if target not in TARGETS:
        raise InvalidInput(f"choose one of {', '.join(TARGETS)}.")
    if target == "user":
        if visit.scope.user is None:
            raise InvalidInput("this memory has no user: erase a session or a source of it.")
        return target, visit.scope.user
    return target, visit.require("name")


def _erase(visit: Visit, target: str, name: str, *, dry_run: bool) -> ErasureResult:
    if target == "user":
        return visit.store.erase(user=name, tenant=visit.scope.tenant, dry_run=dry_run)
    if target == "session":
        return visit.memory.erase(session=name, dry_run=dry_run)
    return visit.memory.erase(source=name, dry_run=dry_run)


def _find_receipt(visit: Visit) -> Receipt:
    number = int(visit.number("n") or 0)
    entry = next(iter(visit.store.audit(after=number - 1, limit=1)), None) if number > 0 else None
    if entry is None or entry.n != number or "receipt" not in entry.details:
        raise NotFound(f"entry {number} of the audit log is not a receipt.")
    return Receipt.of(entry)
