"""The command that searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import parsed_where, verb, where_option
from engrain.cli.context import Session, given_text
from engrain.cli.output import day, faint, particulars, strong, width, wrapped

if TYPE_CHECKING:
    from engrain.core.model.recall import Hit, Recall

COLUMN = 8
HEADER = "added to the score"


@verb(
    "recall",
    examples=(
        'engrain recall "Which language should the example use?"',
        'engrain recall "Where does Ana live?" --as-of 2025-12-24 --explain',
        'engrain recall "open orders" -n 20 --where "source = shop" --prompt',
    ),
    prints="The hits, best first, each with its relevance and id; then what was left out, and why.",
)
@click.argument("query")
@click.option("-n", type=int, default=5, show_default=True, help="At most so many hits.")
@click.option("--budget", type=int, metavar="TOKENS", help="At most so many tokens in all.")
@click.option("--as-of", metavar="TIME", help="What held at that time, ISO 8601.")
@click.option("--min-relevance", type=float, help="From 0 to 1; default: the embedder's own floor; 0: none.")
@where_option
@click.option("--min-importance", type=float, default=0.0, help="Only items at least so important.")
@click.option("--explain", is_flag=True, help="What each arm of the search gave to each hit.")
@click.option("--prompt", is_flag=True, help="The block as it goes into a model's prompt.")
def recall(cli: Session, query: str, where: tuple[str, ...], explain: bool, prompt: bool, **given: Any) -> None:
    """Find what matters for a question, by meaning and by words.

    QUERY is the argument; with "-" it is read from stdin.
    """
    question, filters = given_text(query, "query"), parsed_where(where)
    with cli.looking(embeds=question) as memory:
        found = memory.recall(question, where=filters, **given)
    cli.answer(found, lambda: _block(found) if prompt else _report(found, explain))


def _block(found: Recall) -> Iterator[str]:
    if found.hits:
        yield str(found)


def _report(found: Recall, explain: bool) -> Iterator[str]:
    for number, hit in enumerate(found.hits, 1):
        yield from _hit_lines(hit, f"#{number}".ljust(4) if explain else "")
    if not found.hits:
        short = any(cut.reason == "budget" for cut in found.omitted)
        yield "Nothing fits into the budget." if short else "Nothing relevant is remembered."
    for cut in found.omitted:
        yield from map(faint, wrapped(f"Left out: {cut}."))
    for one in found.without:
        yield from wrapped(f"Answered {one}")
    if explain:
        yield from explained(found.hits)


def _hit_lines(hit: Hit, mark: str) -> Iterator[str]:
    lead = f"{mark}{hit.relevance:.2f}  "
    first, *more = wrapped(hit.text, " " * len(lead))
    yield f"{mark}{click.style(f'{hit.relevance:.2f}', fg='cyan')}  {first.lstrip()}"
    yield from more
    found_by = f" · found by {' and '.join(hit.found_by)}" if mark and hit.found_by else ""
    yield from map(faint, wrapped(particulars(hit.item) + found_by, " " * len(lead)))
    for old in hit.outlived:
        now = f"; now: {old.now}" if old.now else ""
        yield from wrapped(f'"{old.text}" held until {day(old.until)}{now}', " " * len(lead))


def explained(hits: Sequence[Hit]) -> Iterator[str]:
    """What each part of the ranking added: a row for each, the weightiest first, a column for each hit."""
    parts = {name for hit in hits for name in hit.arms}
    rows = sorted(parts, key=lambda name: (-max(abs(hit.arms.get(name, 0)) for hit in hits), name))
    left = max(len(name) for name in (*rows, HEADER))
    fitting = max(1, (width() - left) // COLUMN)
    for start in range(0, len(hits), fitting):
        some = hits[start : start + fitting]
        yield ""
        yield strong(HEADER.ljust(left) + _cells(f"#{n}" for n in range(start + 1, start + len(some) + 1)))
        for name in rows:
            yield name.ljust(left) + _cells(f"{hit.arms[name]:+.2f}" if name in hit.arms else "·" for hit in some)
        yield strong("score".ljust(left) + _cells(f"{hit.score:.2f}" for hit in some))
        yield "relevance".ljust(left) + _cells(f"{hit.relevance:.2f}" for hit in some)


def _cells(values: Iterable[str]) -> str:
    return "".join(value.rjust(COLUMN) for value in values)
