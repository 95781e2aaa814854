"""What the embedded store promises of episodes, outcomes and progress beyond the contracts."""

from __future__ import annotations

import random
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from engrain_conformance.clock import START
from engrain_conformance.drafts import ANA, BEN, add, derived, forget, message
from engrain_conformance.episodes import episode, raw

from engrain.core.errors import NotFound, ReadOnlyStore
from engrain.core.model.items import Citation
from engrain.core.model.plans import Add, Change, Plan, refer_to_step
from engrain.core.model.sessions import Episode, EpisodeDraft
from engrain.stores.sqlite import SqliteStore
from engrain.stores.sqlite.connection import Connection, Row
from engrain.stores.sqlite.syntax import load_statements

HOUR = timedelta(hours=1)


def way(db: Connection, sql: str) -> str:
    names = re.findall(r":(\w+)", sql)
    numbered = [int(one) for one in re.findall(r"\?(\d+)", sql)]
    values = dict.fromkeys(names, "[]") if names else ("[]",) * (max(numbered) if numbered else sql.count("?"))
    return " / ".join(row[3] for row in db.rows(f"explain query plan {sql}", values))


def test_no_statement_reads_a_whole_scope_for_a_few_rows() -> None:
    """Forgetting one of 20,000 items took 5 ms instead of 0.1, because SQLite took the scope's index."""
    store = SqliteStore(":memory:")
    found = load_statements()
    names = (
        "add_trial", "count_trials", "load_trials", "find_item", "load_items", "load_corrected", "load_citations",
        "find_outdated_spans", "find_last_version", "load_vectors", "add_uses", "load_cited", "load_unretracted_item",
        "load_hashes", "add_source", "add_citation", "add_entity", "close_item", "load_repeated", "repeat_item",
        "store_metadata", "change_item", "retract_item", "point_item", "find_versions", "load_dependents",
        "load_cited_spans", "load_citing", "find_changed", "delete_items", "delete_item_entities", "move_citation",
        "load_removable", "store_trust", "count_older_items",
    )  # fmt: skip
    statements = {name: found[name].sql for name in names}
    statements |= {name: one.sql for name, one in found.items() if re.search("^(?!dump).*(episode|raw_text)", name)}
    del statements["load_recent_episodes"]  # whose order is that of the scope

    def check(db: Connection) -> None:
        for name, sql in statements.items():
            for step in way(db, sql).split(" / "):
                assert not re.search(r"\(scope=\?\)|SCAN (episode|item|raw_text|trial)", step), f"{name}: {step}"
        for name in ("load_recent_episodes", "load_recent_session_episodes"):
            assert "TEMP B-TREE" not in way(db, found[name].sql), name

    store.snapshot(check)
    store.close()


def happens(chance: random.Random, store: SqliteStore, known: list[str]) -> None:
    scope, session = chance.choice([ANA, BEN]), chance.choice(["s", "t"])
    one = episode(
        str(chance.randrange(60)),
        chance.randrange(9),
        session=session,
        key=chance.choice([None, None, "k", "l"]),
        expires_at=chance.choice([None, START + chance.randrange(9) * HOUR]),
    )
    luck = chance.randrange(14)
    if luck < 6:
        store.episodes.add(scope, one, raw() if chance.random() < 0.5 else None)
    elif luck < 10:
        steps = (Add(message("Said.", session)), *([Change("nothing", pinned=True)] if luck == 9 else []))
        over = Episode(
            "", session, "turn", "", 0.5, one.happened_at, one.expires_at, item=refer_to_step(0), key=one.key
        )
        with suppress(NotFound):
            outcomes = store.apply(Plan(ANA, steps, episodes=(EpisodeDraft(over), EpisodeDraft(one, raw())))).outcomes
            known.append(outcomes[0].id or "")
    elif luck == 10 and known:
        forget(store, known.pop(chance.randrange(len(known))))
    elif luck == 11 and known:
        (made,) = add(store, derived(f"Made {chance.random()}.", Citation(chance.choice(known), 0, 2)))
        forget(store, made)
    elif luck == 12:
        store.episodes.remove(scope, [str(chance.randrange(60)) for _ in range(3)])
    elif chance.random() < 0.2:
        store.episodes.trim(scope, session, chance.randrange(20))
        store.episodes.expire(START + chance.randrange(3) * HOUR)


def test_the_episodes_of_a_session_are_counted_right_whatever_happens() -> None:
    chance, known, most = random.Random(5), list[str](), 0
    store = SqliteStore(":memory:")

    def count(db: Connection) -> tuple[list[Row], ...]:
        return (
            db.rows("select scope, session, episodes from session where episodes <> 0 order by 1, 2"),
            db.rows("select scope, session, count(*) from episode group by 1, 2 order by 1, 2"),
            db.rows("select count(*) from raw_text where (scope, id) not in (select scope, id from episode)"),
        )

    for _ in range(600):
        happens(chance, store, known)
        counted, there, orphans = store.snapshot(count)
        assert counted == there
        assert orphans == [(0,)]
        most = max(most, sum(n for _, _, n in counted))
    assert most > 40
    assert [one.point for one in store.check() if one.state == "fail"] == []
    store.close()


def test_what_expires_in_masses_goes_in_parts_and_is_counted_whole() -> None:
    store = SqliteStore(":memory:")
    happenings = [
        EpisodeDraft(episode(f"{n}", session=str(n % 4), expires_at=START + HOUR * (n % 5)), raw(hours=n % 3))
        for n in range(3_000)
    ]
    store.apply(Plan(ANA, (), episodes=tuple(happenings)))
    assert store.episodes.expire(START + 3 * HOUR) == 2_400
    assert len(store.episodes.recent(ANA, None, 9_999, START)) == 600
    store.close()


def test_a_member_of_a_shared_commit_that_fails_takes_its_episode_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")

    def write(n: int) -> bool:
        steps = (Add(message(f"m{n}")), *([Change("nothing", pinned=True)] if n % 3 == 0 else []))
        over = Episode("", "s", "turn", "", 0.5, START, None, item=refer_to_step(0), key="k")
        try:
            store.apply(Plan(ANA, steps, episodes=(EpisodeDraft(over),)))
        except NotFound:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        kept = sum(pool.map(write, range(60)))
    (one,) = store.episodes.recent(ANA, "s", 99, START)
    assert (kept, one.count) == (40, 40)
    store.close()


def test_a_read_only_store_shows_episodes_and_takes_none(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.episodes.add(ANA, episode("a"), raw())
    store.close()
    shown = SqliteStore(tmp_path / "store.db", read_only=True)
    assert [one.id for one in shown.episodes.recent(ANA, None, 9, START)] == ["a"]
    assert shown.episodes.raw(ANA, "a", START) == "All of it."
    with pytest.raises(ReadOnlyStore):
        shown.episodes.add(ANA, episode("b"))
    shown.close()
