"""Relations between entities, as a graph and as a table."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.responses import JSONResponse, Response

from engrain import Item
from engrain.ui.page_request import Visit
from engrain.ui.text import show_plain

MAX_RELATIONS = 400  # a graph of more is a ball of wool


def show_relations(visit: Visit) -> Response:
    entity = visit.query("entity")
    items, more = _load(visit, entity)
    template = "_relations.html" if visit.by_htmx else "relations.html"
    values: dict[str, Any] = {"items": items, "more": more, "entity": entity, "as_of": visit.time("as_of"),
                              "most": MAX_RELATIONS}  # fmt: skip
    if not visit.by_htmx:
        return visit.page(template, **values)
    answer = visit.fragment(template, **values)
    answer.headers["hx-replace-url"] = visit.link("relations", entity=entity, as_of=visit.query("as_of"))
    return answer


def send_graph(visit: Visit) -> Response:
    """Nodes with their number of relations, and links between them."""
    items, _ = _load(visit, "")
    links = [
        {"id": item.id, "source": relation.subject, "target": relation.object, "label": show_plain(relation.relation)}
        for item in items
        if (relation := item.relation)
    ]
    degrees = Counter(end for link in links for end in (link["source"], link["target"]))
    nodes = [{"id": name, "label": show_plain(name), "degree": degree} for name, degree in degrees.items()]
    return JSONResponse({"nodes": nodes, "links": links})


def _load(visit: Visit, entity: str) -> tuple[list[Item], bool]:
    relations, as_of = visit.memory.relations, visit.time("as_of")
    most = MAX_RELATIONS + 1
    found = relations.about(entity, as_of=as_of) if entity else relations.list(as_of=as_of, limit=most)
    return found[:MAX_RELATIONS], len(found) > MAX_RELATIONS
