"""The command that searches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.session import Session, given_text
from engrain.cli.shown import faint, item_lines
from engrain.cli.verbs import verb
from engrain.cli.where import parsed_where, where_option

if TYPE_CHECKING:
    from engrain.core.recalled import Recall


@verb(
    "recall",
    examples=(
        'engrain recall "Which language should the example use?"',
        'engrain recall "Where does Ana live?" --as-of 2025-12-24 --explain',
        'engrain recall "open orders" -n 20 --where "source = shop" --prompt',
    ),
    prints="The hits, best first, each with its id; then what was left out. Nothing, if nothing is relevant.",
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
    with cli.memory(embeds=question) as memory:
        found = memory.recall(question, where=filters, **given)
    cli.answer(found, lambda: [str(found)] if prompt else _report(found, explain))


def _report(found: Recall, explain: bool) -> Iterator[str]:
    for hit in found.hits:
        yield from item_lines(hit.item)
    if not found.hits:
        yield faint("Nothing relevant is remembered.")
