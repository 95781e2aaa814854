"""Commands that read: recall, prompt, list, get, explain, slot, slots, about, sessions, episodes, procedures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import memory_command, parse_where, where_option
from engrain.cli.context import CommandContext, complete_id, read_text
from engrain.cli.output import bold, dim, escape, format_day, format_details, format_item, terminal_width, wrap
from engrain.core.errors import NotFound
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.core.model.items import Item
    from engrain.core.model.messages import Message
    from engrain.core.model.procedures import Procedure
    from engrain.core.model.recall import Hit, Recall
    from engrain.core.model.sessions import Event, SessionInfo
    from engrain.memory import Memory


AS_OF = click.option("--as-of", metavar="TIME", help="What was valid at that time, ISO 8601.")
PAGE_SIZE = 1_000
COLUMN_WIDTH = 8
SCORE_TITLE = "added to the score"


@memory_command(
    "recall",
    examples=(
        'engrain recall "Which language should the example use?"',
        'engrain recall "Where does Ana live?" --as-of 2025-12-24 --explain',
        'engrain recall "open orders" -n 20 --where "source = shop" --prompt',
    ),
    prints="The hits, best first, each with its relevance and id; then what was omitted, and why.",
)
@click.argument("query")
@click.option("-n", type=int, default=5, show_default=True, help="Maximum number of hits.")
@click.option("--budget", type=int, metavar="TOKENS", help="Maximum number of tokens in all hits together.")
@AS_OF
@click.option("--min-relevance", type=float, help="From 0 to 1; 0 returns everything. Default: set by the embedder.")
@where_option
@click.option("--min-importance", type=float, default=0.0, help="Only items of at least this importance, 0 to 1.")
@click.option("--effort", type=click.Choice(["quick", "thorough"]), default="quick", show_default=True,
              help="thorough: compare the best hits word by word, and ask the reranker if one is set.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Show how the score of each hit is made up.")
@click.option("--prompt", is_flag=True, help="Print the text block for a model's prompt.")
def recall(
    cli: CommandContext, query: str, where: tuple[str, ...], explain: bool, prompt: bool, **options: Any
) -> None:
    """Find items that help with a question, by meaning and by words.

    With "-" as QUERY the question is read from stdin.
    """
    question, filters = read_text(query, "query"), parse_where(where)
    with cli.read_memory(embed_first=question) as memory:
        found = memory.recall(question, where=filters, **options)
    block = [str(found)] if str(found) else []
    cli.print_result(found, lambda: block if prompt else _format_recall(found, explain))


@memory_command(
    "prompt",
    examples=(
        'engrain prompt "Plan a dinner for my friends" --user ana',
        'engrain prompt "Which language should I use?" --budget 500 > prompt.txt',
    ),
    prints="The request, then the user's wishes, what is known of the user, work in progress and what was found.",
)
@click.argument("request")
@click.option("--budget", type=int, metavar="TOKENS", help="Maximum number of tokens in all.")
def prompt(cli: CommandContext, request: str, budget: int | None) -> None:
    """Print all that a model should know for a request.

    With "-" as REQUEST it is read from stdin.
    """
    wanted = read_text(request, "request")
    with cli.read_memory(embed_first=wanted) as memory:
        text = memory.prompt(wanted, budget=budget, history=False)
    cli.print_result({"text": text}, lambda: [text])


@memory_command(
    "list",
    examples=(
        "engrain list --limit 20",
        "engrain list --where 'importance >= 0.8' --where 'metadata.project = apollo'",
        "engrain list --history --where 'slot = user.city'",
    ),
    prints="Each item's text, and below it its id and dates. With --json, JSON Lines: one item a line.",
)
@where_option
@click.option("--history", is_flag=True, help="Include replaced and corrected versions.")
@AS_OF
@click.option("--limit", "-n", type=int, default=100, show_default=True, help="Maximum number of items; 0 for all.")
@click.option("--full", is_flag=True, help="Do not shorten long texts.")
def list_items(
    cli: CommandContext, where: tuple[str, ...], history: bool, as_of: str | None, limit: int, full: bool
) -> None:
    """List items, newest first."""
    filters = parse_where(where)
    with cli.read_memory() as memory:
        items = _list_pages(memory, limit, where=filters, history=history, as_of=as_of)
        count = cli.print_each(items, lambda item: format_item(item, full=full, see="--full or --json"))
    if not count and not cli.json:
        click.echo(dim("Nothing matches." if where else "Nothing is remembered here yet."), err=True)


@memory_command(
    "get",
    examples=("engrain get cr2pvv0vpt", "engrain get cr2pvv0vpt --json"),
    prints="The whole text, and below it its id and dates.",
)
@click.argument("id")
def get(cli: CommandContext, id: str) -> None:
    """Show one item in full. The beginning of its id is enough if no other item shares it."""
    with cli.read_memory() as memory:
        item = memory.get(complete_id(memory, id))
    if item is None:
        raise NotFound(f"there is no item {id!r} in this memory. `engrain list` shows what there is.")
    cli.print_result(item, lambda: format_item(item, full=True))


@memory_command(
    "explain",
    examples=("engrain explain cr2pvv0vpt", "engrain explain cr2pvv0vpt --json"),
    prints="Its source, the items it is based on, its trust, its other versions, how often it was used.",
)
@click.argument("id")
def explain(cli: CommandContext, id: str) -> None:
    """Show where an item came from, and its later versions."""
    with cli.read_memory() as memory:
        answer = memory.explain(complete_id(memory, id))
    cli.print_result(answer, lambda: escape(str(answer)).split("\n"))


@memory_command(
    "slot",
    examples=("engrain slot user.city", "engrain slot user.city --as-of 2025-12-24"),
    prints="The value, and below it its id and dates. Exit code 1 if the slot is empty.",
)
@click.argument("name")
@AS_OF
def slot(cli: CommandContext, name: str, as_of: str | None) -> None:
    """Show the value of a slot. A slot, such as user.city, has one value at a time."""
    with cli.read_memory() as memory:
        item = memory.slots.get(name, as_of=as_of)
    if item is None:
        when = f" as of {as_of}" if as_of else ""
        raise NotFound(f"the slot {name!r} is empty{when}. `engrain slots` lists those with a value.")
    cli.print_result(item, lambda: format_item(item, full=True))


@memory_command(
    "slots",
    examples=("engrain slots", "engrain slots user.", "engrain slots user. --as-of 2025-12-24 --json"),
    prints="The value of each slot, sorted by name. With --json, a list of items.",
)
@click.argument("prefix", default="")
@AS_OF
def slots(cli: CommandContext, prefix: str, as_of: str | None) -> None:
    """List the slots that have a value and whose name starts with PREFIX."""
    with cli.read_memory() as memory:
        items = memory.slots.list(prefix, as_of=as_of)
    cli.print_all(items, format_item, dim("No slot has a value."))


@memory_command(
    "about",
    examples=("engrain about Ana", 'engrain about "Order 42" --json'),
    prints="The relations of the entity, newest first. With --json, a list of items.",
)
@click.argument("entity")
@AS_OF
def about(cli: CommandContext, entity: str, as_of: str | None) -> None:
    """List the relations of an entity, as subject or as object."""
    with cli.read_memory() as memory:
        items = memory.relations.about(entity, as_of=as_of)
    cli.print_all(items, format_item, dim(escape(f"No relation of {entity!r} is known.")))


def _list_pages(memory: Memory, limit: int, **query: Any) -> Iterator[Item]:
    remaining, after = limit, None
    while True:
        size = min(remaining, PAGE_SIZE) if limit else PAGE_SIZE
        page = memory.list(**query, limit=size, after=after)
        yield from page
        remaining -= len(page)
        if len(page) < size or (limit and remaining <= 0):
            return
        after = page[-1].id


def _format_recall(found: Recall, explain: bool) -> Iterator[str]:
    for number, hit in enumerate(found.hits, 1):
        yield from _format_hit(hit, f"#{number}".ljust(4) if explain else "")
    if not found.hits:
        too_long = any(omitted.reason == "budget" for omitted in found.omitted)
        yield "No hit fits into the budget." if too_long else "Nothing relevant is remembered."
    for omitted in found.omitted:
        yield from map(dim, wrap(f"Omitted: {omitted}."))
    for degraded in found.degraded:
        yield from wrap(f"Answered {degraded}")
    if explain:
        yield from _format_scores(found.hits)


def _format_hit(hit: Hit, number: str) -> Iterator[str]:
    indent = " " * len(f"{number}{hit.relevance:.2f}  ")
    first, *more = wrap(hit.text, indent)
    yield f"{number}{click.style(f'{hit.relevance:.2f}', fg='cyan')}  {first.lstrip()}"
    yield from more
    found_by = f" · found by {' and '.join(hit.found_by)}" if number and hit.found_by else ""
    yield from map(dim, wrap(format_details(hit.item) + found_by, indent))
    for old in hit.outdated:
        now = f"; now: {old.now}" if old.now else ""
        yield from wrap(f'"{old.text}" was valid until {format_day(old.until)}{now}', indent)


def _format_scores(hits: Sequence[Hit]) -> Iterator[str]:
    """A row for each part of the ranking, the heaviest first; a column for each hit."""
    parts = {name for hit in hits for name in hit.score_parts}
    rows = sorted(parts, key=lambda name: (-max(abs(hit.score_parts.get(name, 0)) for hit in hits), name))
    left = max(len(name) for name in (*rows, SCORE_TITLE))
    per_table = max(1, (terminal_width() - left) // COLUMN_WIDTH)
    for start in range(0, len(hits), per_table):
        some = hits[start : start + per_table]
        yield ""
        yield bold(SCORE_TITLE.ljust(left) + _cells(f"#{n}" for n in range(start + 1, start + len(some) + 1)))
        for name in rows:
            yield name.ljust(left) + _cells(
                f"{hit.score_parts[name]:+.2f}" if name in hit.score_parts else "·" for hit in some
            )
        yield bold("score".ljust(left) + _cells(f"{hit.score:.2f}" for hit in some))
        yield "relevance".ljust(left) + _cells(f"{hit.relevance:.2f}" for hit in some)


def _cells(values: Iterable[str]) -> str:
    return "".join(value.rjust(COLUMN_WIDTH) for value in values)


@memory_command(
    "sessions",
    examples=("engrain sessions", "engrain sessions monday", "engrain sessions monday --json"),
    prints="The sessions, newest first, each with its summary; or the messages of SESSION.",
)
@click.argument("session", required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number.")
def sessions(cli: CommandContext, session: str | None, limit: int) -> None:
    """List sessions, or show the messages of one."""
    with cli.read_memory() as memory:
        if session is None:
            cli.print_all(memory.sessions.list(limit), _format_session, "No session yet.")
            return
        if not any(info.session == session for info in memory.sessions.list(10_000)):
            raise NotFound(f"there is no session {session!r}. `engrain sessions` lists them.")
        messages = memory.sessions.messages(session, limit)
    cli.print_all(messages, _format_message)


@memory_command(
    "episodes",
    examples=("engrain episodes", "engrain episodes --session monday", "engrain episodes --important"),
    prints="Recent events, newest first, each with its importance and the reasons for it.",
)
@click.option("--session", help="Only this session.")
@click.option(
    "--important", is_flag=True, help="The most important events of the last seven days, most important first."
)
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number.")
def episodes(cli: CommandContext, session: str | None, important: bool, limit: int) -> None:
    """List recent events."""
    if session and important:
        raise click.UsageError("--important covers all sessions: omit --session.")
    with cli.read_memory() as memory:
        found = memory.episodic.important(limit) if important else memory.episodic.recent(limit, session)
    cli.print_all(found, _format_event, "No recent event.")


@memory_command(
    "procedures",
    examples=("engrain procedures", "engrain procedures deploy", 'engrain procedures --goal "get a release out"'),
    prints="Each procedure and how often it worked; or every version of NAME; or procedures for a goal, best first.",
)
@click.argument("name", required=False)
@click.option("--goal", help="Find procedures for this goal.")
def procedures(cli: CommandContext, name: str | None, goal: str | None) -> None:
    """List procedures and how often each worked."""
    if name and goal:
        raise click.UsageError("Give a name or --goal, not both.")
    with cli.read_memory(embed_first=goal or "") as memory:
        if name and not memory.procedural.versions(name):
            raise NotFound(f"there is no procedure {name!r}. `engrain procedures` lists them.")
        if goal:
            found = memory.procedural.find(goal)
        elif name:
            found = memory.procedural.versions(name)
        else:
            found = [known for each in memory.procedural.names() if (known := memory.procedural.get(each))]
    cli.print_all(found, _format_procedure, "No procedure yet.")


def _format_session(info: SessionInfo) -> Iterator[str]:
    last = f"{info.last_at:%Y-%m-%d %H:%M}" if info.last_at else ""
    messages = count_noun(info.messages, "message")
    yield f"{bold(escape(info.session))}  {dim(f'{messages}, last {last}')}"
    yield from wrap(info.summary or "no summary yet", "  ")


def _format_message(message: Message) -> Iterator[str]:
    yield bold(escape(message.speaker or message.role))
    yield from wrap(message.text, "  ")


def _format_event(event: Event) -> Iterator[str]:
    times = f", {event.count} times" if event.count > 1 else ""
    reasons = ", ".join(name for name, _ in event.why)
    when, importance = f"{event.happened_at:%Y-%m-%d %H:%M}", f"{event.importance:.2f}: {reasons}"
    yield f"{dim(when)}  {bold(event.kind)}{times}  {dim(importance)}"
    yield from wrap(event.text, "  ")


def _format_procedure(procedure: Procedure) -> Iterator[str]:
    tally = procedure.tally
    tried = tally.successes + tally.failures
    record = f"worked {tally.successes} of {tried} times, at least {procedure.rate:.0%}" if tried else "not tried yet"
    version = f"version {procedure.version}{'' if procedure.current else ', replaced'}, {record}"
    yield f"{bold(escape(procedure.name))}  {dim(version)}"
    if procedure.when:
        yield from wrap(f"when {procedure.when}", "  ")
    for number, step in enumerate(procedure.steps, 1):
        yield from wrap(f"{number}. {step}", "  ")
