"""Write docs/reference/http.md from the route table: python tools/http_page.py [--check]."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from engrain.core.http_routes import GROUPS, NOT_SERVED, SAME_AS, Route
from engrain.server.problems import STATUS_OF_ERROR, TITLES
from engrain.server.verbs import ServedVerb

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "http.md"
INTRODUCTION = """\
# HTTP API

`engrain serve` answers these requests. [Serve a memory over HTTP](../how-to/serve-http.md) shows how to start it and
has examples. `GET /openapi.json` describes every value in OpenAPI 3.1. `tools/http_page.py` makes this page from
the route table.

- A key in `Authorization: Bearer engrain_…` names the memory. `Engrain-Tenant`, `Engrain-Agent` and `Engrain-User` name
  the parts that the key lets its holder choose. Characters other than ASCII are percent-encoded.
- `Engrain-View` names a view. A view has a default session and a working memory, as a `Memory` object has in Python.
  Requests without it share one view. Views live in the server's memory, up to 32 for each memory.
- Values are in the query of `GET` and `DELETE`, else in a JSON object in the body. Unknown names are refused.
- `Idempotency-Key` is the `request_id` of a write. Routes with a ¹ take it, and other writes refuse it.
- Times are ISO 8601 texts, durations are seconds. The answer is a JSON object; `204` has none.
- Names in a path are percent-encoded, also a slash (`%2F`).
"""
PAGES = (
    ("GET /healthz", "the server runs; needs no key"),
    ("GET /readyz", "the store answers and the server is not stopping; needs no key"),
    ("GET /metrics", "counters in the text format of Prometheus; needs the right `operate`"),
    ("GET /openapi.json", "the OpenAPI document; needs no key"),
)


def main() -> int:
    text = "\n".join(page()) + "\n"
    if "--check" in sys.argv:
        stale = not PAGE.exists() or PAGE.read_text() != text
        if stale:
            print("docs/reference/http.md is stale. Run: python tools/http_page.py", file=sys.stderr)  # noqa: T201
        return int(stale)
    PAGE.write_text(text)
    return 0


def page() -> Iterator[str]:
    yield INTRODUCTION
    for title, routes in GROUPS.items():
        yield from (f"## {title}", "", "| request | right | Python | values | answer |", "|---|---|---|---|---|")
        yield from map(describe_route, routes)
        yield ""
    yield from ("## The server itself", "", "| request | answer |", "|---|---|")
    yield from (f"| `{request}` | {answer} |" for request, answer in PAGES)
    yield from (
        "",
        "## Errors",
        "",
        "An error is a problem document (RFC 9457, `application/problem+json`) with `type`, ",
    )
    yield "`title`, `status`, `detail` and, if a verb raised it, `error`: the name of the Python class."
    yield from ("", "| status | meaning | Python |", "|---|---|---|")
    yield from describe_statuses()
    yield from ("", "## Verbs without a route of their own", "", "| Python | |", "|---|---|")
    yield from (f"| `{verb}` | as `{same}` |" for verb, same in SAME_AS.items())
    yield from (f"| `{verb}` | not served: {reason} |" for verb, reason in NOT_SERVED.items())


def describe_route(route: Route) -> str:
    verb = ServedVerb(route)
    values = [
        f"`{name}`" if one.default is inspect.Parameter.empty else f"`{name}`?" for name, one in verb.parameters.items()
    ]
    mark = " ¹" if verb.takes_request_id else ""
    cells = (
        f"`{route.method} {route.path}`{mark}",
        route.right,
        f"`{route.verb}`",
        " ".join(values),
        describe_answer(verb),
    )
    return f"| {' | '.join(cells)} |"


def describe_answer(verb: ServedVerb) -> str:
    if verb.route.verb == "server.events":
        return "a stream"
    if verb.route.verb == "export":
        return "the file"
    if verb.route.answer:
        return f"`{verb.route.answer}`"
    found = verb.returns
    if found is None:
        return "204"
    kinds = [one for one in get_args(found) if one is not type(None)] or [found]
    return str(kinds[0].__name__)


def describe_statuses() -> Iterator[str]:
    for status, title in TITLES.items():
        classes = [f"`{kind.__name__}`" for kind, found in STATUS_OF_ERROR.items() if found == status]
        yield f"| {status} | {title} | {', '.join(classes)} |"


if __name__ == "__main__":
    sys.exit(main())
