"""The commands that show how a memory stands, and which there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.session import HIDDEN, Session, hidden
from engrain.cli.shown import flat, many, size, table
from engrain.cli.verbs import verb
from engrain.core.scope import Scope

if TYPE_CHECKING:
    from engrain.core.answers import Owned, Status
    from engrain.core.erasure import Hold

MOST = 1_000  # beyond, nobody counts


@verb(
    "status",
    examples=("engrain status", "engrain status --json"),
    prints="How much is in the memory, its store, the embedder, and what is still to do.",
)
def status(cli: Session) -> None:
    """Show how the memory stands."""
    with cli.memory() as memory:
        answer = memory.status()
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
        found = memory.memories()
        away = sum(one.user is not None for one in hidden(memory))
    if not cli.answer_each(found, _owned) and not cli.json:
        click.echo("No memory is shown." if away else "No memory in this store yet.")
    if away:
        told = many(away, "more user is", "more users are")
        click.echo(f"note: {told} hidden under a legal hold. `engrain hold` names them.", err=True)


def _owned(one: Owned) -> list[str]:
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
    rows += _care(answer.background.get("care") or {})
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


def _care(state: dict[str, Any]) -> list[tuple[str, str]]:
    if not state.get("every_minutes"):
        return []
    last = f"last {state['last']:%Y-%m-%d %H:%M} UTC" if state["last"] else "not yet"
    every = "every minute" if state["every_minutes"] == 1 else f"every {state['every_minutes']:g} minutes"
    return [("care", f"{every}, {last}")]


def _whole(store: dict[str, Any]) -> str:
    if store["hidden"]:
        return "hidden from this role by row-level security (the policy upkeep)"
    count = store["scopes"]
    memories = f"{count:,} memor{'y' if count == 1 else 'ies'}"
    return f"{store['open_items']:,} open, {store['items']:,} with history, in {memories}"
