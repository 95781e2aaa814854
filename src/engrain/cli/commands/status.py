"""The commands that show how a memory stands, and which there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import verb
from engrain.cli.context import HIDDEN, Session, check_known, hidden
from engrain.cli.output import flat, many, progress, safe, size, table
from engrain.core.identity import Scope

if TYPE_CHECKING:
    from engrain.core.model.erasure import Hold
    from engrain.core.model.results import MaintenanceAction, MaintenanceReport, MemoryInfo, Status


MOST = 1_000  # beyond, nobody counts


@verb(
    "status",
    examples=("engrain status", "engrain status --json"),
    prints="How much is in the memory, its store, the embedder, and what is still to do.",
)
def status(cli: Session) -> None:
    """Show how the memory stands."""
    with cli.memory() as memory:
        answer = memory.store.status(memory.scope)
    cli.answer(answer, lambda: table(_rows(answer)))


@verb(
    "memories",
    examples=("engrain memories", "engrain memories --json"),
    prints="A line for each memory of the store: its user, agent and tenant, and how many items it holds now.",
)
def memories(cli: Session) -> None:
    """List the memories of the store, whoever's they are.

    A store may hold many, each with walls around it. This is for those who run it: whom to care for, whom to export or
    to erase, and how exactly their names are written.
    """
    with cli.memory() as memory:
        found = memory.store.memories()
        away = sum(one.user is not None for one in hidden(memory))
    if not cli.answer_each(found, _owned) and not cli.json:
        click.echo("No memory is shown." if away else "No memory in this store yet.")
    if away:
        told = many(away, "more user is", "more users are")
        click.echo(f"note: {told} hidden under a legal hold. `engrain hold` names them.", err=True)


def _owned(one: MemoryInfo) -> list[str]:
    return [f"{Scope(one.tenant, one.agent, one.user)}: {many(one.items, 'item')}"]


def _rows(answer: Status) -> list[tuple[str, str]]:
    store, embedder = dict(answer.store), dict(answer.embedder)
    rows = [
        ("memory", f"{answer.scope}: {many(answer.items, 'item')}"),
        ("in it", ", ".join(_held(answer.holds))),
        ("store", f"{store.pop('backend')} {store.pop('location')}"),
        ("whole store", _whole(store)),
        ("on disk", size(store.pop("bytes"))),
        ("schema", str(store.pop("schema"))),
        ("embedder", f"{embedder.get('name')}, {embedder.get('dimension')} dimensions"),
        ("to embed", "unknown" if answer.store["hidden"] else f"{store.pop('unembedded'):,}"),
        *_changing(answer.background.get("changing")),
        ("bytes to remove", "pending: a reader holds them" if store.pop("purge_pending") else "none"),
    ]
    rows += [("legal hold", _hold(answer.hold))] if answer.hold else []
    rows += [("not yet erased", _unfinished(one)) for one in answer.background.get("erasures") or ()]
    rows += _vector_server(answer.background.get("vectors") or {}, answer.store["hidden"])
    rows += _maintenance(answer.background.get("maintenance") or {})
    rows += [("not answering", str(why)) for why in (answer.background.get("away") or {}).values()]
    details = store.pop("details", {})
    return rows + [(name.replace("_", " "), value) for name, value in flat(details)]


def _unfinished(erasure: Mapping[str, Any]) -> str:
    return f"{erasure['by']}, asked for {erasure['since']:%Y-%m-%d %H:%M} UTC. Complete it: engrain erase --resume"


def _hold(hold: Hold) -> str:
    told = f"since {hold.at:%Y-%m-%d}, for {hold.reason}"
    return f"{told}; {HIDDEN}" if hold.hidden else told


def _changing(state: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    return [("changing to", f"{state['to']}: {state['embedded']:,} of {state['of']:,}")] if state else []


def _held(counts: Mapping[str, int | None]) -> Iterator[str]:
    for name, count in counts.items():
        if count is None:
            yield f"{name} unknown"
        else:
            yield many(count, name.removesuffix("s"), f"or more {name}" if count >= MOST else name)


def _vector_server(state: dict[str, Any], hidden: bool) -> list[tuple[str, str]]:
    if not state:
        return []
    behind = state["error"] or ("every change" if state["behind"] == 0 else f"{state['behind']:,} changes to come")
    if hidden and not state["error"]:
        behind = "how far behind is unknown"
    return [("vectors in", f"{state['server']}: {behind}")]


def _maintenance(state: dict[str, Any]) -> list[tuple[str, str]]:
    if not state.get("every_minutes"):
        return []
    last = f"last {state['last']:%Y-%m-%d %H:%M} UTC" if state["last"] else "not yet"
    every = "every minute" if state["every_minutes"] == 1 else f"every {state['every_minutes']:g} minutes"
    return [("maintenance", f"{every}, {last}")]


def _whole(store: dict[str, Any]) -> str:
    if store["hidden"]:
        return "hidden from this role by row-level security (the policy upkeep)"
    count = store["scopes"]
    memories = f"{count:,} memor{'y' if count == 1 else 'ies'}"
    return f"{store['open_items']:,} open, {store['items']:,} with history, in {memories}"


@verb(
    "maintain",
    examples=(
        "engrain maintain --dry-run --each",
        "engrain maintain",
        "engrain --user ana maintain",
        "engrain --store engrain.toml maintain --reembed",
        "engrain maintain --json",
    ),
    prints="A line for each pass that has something to do: how much it did, or with --dry-run would do. With --each, "
    "every pass, and every thing, whose it is and why.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@click.option("--each", is_flag=True, help="Name every item, episode and task, with the reason.")
@click.option("--reembed", is_flag=True, help="Give everything vectors of the present model, and drop those of others.")
@click.option("--trust-clock", is_flag=True, help="The clock is right, although it has gone on by half a year.")
@click.option("--everyone", is_flag=True, help="Every memory of the store, though a user, agent or tenant is set.")
def maintain(cli: Session, dry_run: bool, each: bool, reembed: bool, trust_clock: bool, everyone: bool) -> None:
    """Keep what matters and remove what is over, as the table [lifecycle] of the settings says.

    In every memory of the store; if a user, an agent or a tenant is named, in that one memory.

    Episodes that matter last, those whose time is over go; knowledge that matters little and was rarely used goes;
    items without vectors get some; tasks that ended a week ago go; with a folder for them, backups are taken. A dry run
    says exactly what a real one then does. docs/how-to/maintain.md has every pass and every setting.
    """
    with cli.memory() as memory, progress("Caring", None, cli.json) as told:
        everyone = everyone or not (cli.user or cli.agent or cli.tenant)
        if not everyone:
            check_known(memory)
        scope = None if everyone else memory.scope
        wanted = {"dry_run": dry_run, "reembed": reembed, "trust_clock": trust_clock}
        done = memory.store.maintain(scope, **wanted, progress=told)
    cli.answer(done, lambda: _lines(done, each))
    if done.trouble:
        click.get_current_context().exit(1)


def _lines(done: MaintenanceReport, each: bool) -> Iterator[str]:
    where = f" in {many(done.memories, 'memory', 'memories')}" if done.memories > 1 else ""
    busy = [line for line, count in zip(done.lines, done.counts.values(), strict=True) if count or each]
    if busy and where:
        yield f"Care{where}:"
    yield from busy
    if each:
        yield from (safe(f"  {_whose(one)}{one}") for one in done.each)
    if not done.each and not done.trouble and not each:
        yield f"Nothing to do{where}."
    yield from (safe(f"not done: {one}") for one in done.trouble)


def _whose(one: MaintenanceAction) -> str:
    return f"{one.scope}: " if one.scope else ""
