"""Doctor: the checks of the store, their results and fixes, and one round of maintenance."""

from __future__ import annotations

from starlette.responses import Response

from engrain.core.model.results import GROUPS, summarize_checks
from engrain.ui.page_request import Visit

MAX_ACTIONS = 200


def show_doctor(visit: Visit) -> Response:
    return visit.page("doctor.html", status=visit.store.status(visit.scope))


def show_checks(visit: Visit) -> Response:
    whole_store = visit.query("of") == "store"
    found = visit.store.doctor(None if whole_store else visit.scope)
    order = {"fail": 0, "warn": 1, "unknown": 2}
    attention = sorted((check for check in found if check.state in order), key=lambda check: order[check.state])
    groups = [(group, [check for check in found if check.group == group and check.state == "pass"]) for group in GROUPS]
    return visit.fragment("_checks.html", groups=groups, attention=attention, summary=summarize_checks(found))


def maintain(visit: Visit) -> Response:
    """Do a round of maintenance, or only say what it would do."""
    dry_run = visit.value("dry_run") == "1"
    report = visit.store.maintain(visit.scope, dry_run=dry_run)
    return visit.fragment("_maintained.html", report=report, actions=report.each[:MAX_ACTIONS])
