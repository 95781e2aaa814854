"""What care for a memory promises: only what is over goes, and a dry run tells it beforehand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from episodic_kit import ANA, opened
from examples import REFERENCE

from engrain import Memory
from engrain.cli.main import root
from engrain.core.errors import EmbedderFailed, OutcomeUnknown
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Draft, Item, Note, Source
from engrain.core.model.plans import Add, Change, Correct, Forget, Plan
from engrain.core.model.queries import ListQuery
from engrain.core.model.results import MaintenanceReport
from engrain.core.model.retention import check_policies
from engrain.core.model.sessions import Episode
from engrain.core.model.tasks import Claim, TaskEnd
from engrain.maintenance import episodes
from engrain.maintenance import remove_unused as consolidating
from engrain.maintenance.maintain import maintain
from engrain.maintenance.passes import MaintenanceContext, RunHooks
from engrain.maintenance.remove_unused import consolidate, plan_consolidation
from engrain.ports import Services
from engrain.tiers.episodic import EpisodicMemory
from engrain.tiers.semantic import Relations, SemanticMemory

HOUR = 3600.0
DAY = 24 * HOUR
BEN = Scope(user="ben")
PASSES = ("promoted", "expired", "trimmed", "tidied", "consolidated", "embedded", "dropped", "pruned")
NOTHING = dict.fromkeys(PASSES, 0)


@pytest.fixture(params=["sqlite", REFERENCE, "apart"])
def kit(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> Iterator[Services]:
    made = opened(request.param, tmp_path, clock)
    yield made
    made.items.close()


@pytest.fixture
def episodic(kit: Services) -> EpisodicMemory:
    return EpisodicMemory(kit, ANA)


@pytest.fixture
def semantic(kit: Services) -> SemanticMemory:
    return SemanticMemory(kit, ANA)


def both(kit: Services) -> MaintenanceReport:
    """A real round, after a dry one that said the same and changed nothing."""
    book = kit.episodes
    assert book is not None
    before = book.recent(ANA, None, 9_999, datetime.min.replace(tzinfo=UTC))
    planned = maintain(kit, ANA, dry_run=True)
    assert book.recent(ANA, None, 9_999, datetime.min.replace(tzinfo=UTC)) == before
    done = maintain(kit, ANA)
    assert (done.counts, done.each, done.problems) == (planned.counts, planned.each, ())
    assert [line.replace("would remove", "removed") for line in planned.lines if "remove" in line] == [
        line for line in done.lines if "remove" in line
    ]
    return done


def test_a_memory_with_nothing_to_do_is_left_as_it_is(kit: Services, episodic: EpisodicMemory) -> None:
    assert both(kit).counts == NOTHING
    episodic.record("Hello.", session="s")
    assert both(kit).counts == NOTHING
    assert len(episodic.recent()) == 1


def test_what_has_expired_goes_and_nothing_early(kit: Services, episodic: EpisodicMemory, clock: SetClock) -> None:
    old = episodic.record("x" * 3_000, "tool", session="s", tool="cat")
    episodic.record_decision("Use tabs.", session="s")
    EpisodicMemory(kit, BEN).record("Of Ben.", session="s")
    clock.advance(HOUR)
    episodic.record("Later.", session="s")
    clock.advance(23 * HOUR - 0.000001)
    assert both(kit).counts == NOTHING
    clock.advance(0.000001)
    assert both(kit).counts == NOTHING | {"expired": 1}
    assert both(kit).counts == NOTHING
    assert [one.text for one in episodic.recent()] == ["Later.", "Decided: Use tabs."]
    clock.now -= timedelta(hours=20)  # a moment at which they would still be shown
    assert episodic.raw(old) is None
    assert len(episodic.recent()) == 2
    assert len(EpisodicMemory(kit, BEN).recent()) == 1, "of nobody else"
    clock.now += timedelta(hours=20)
    maintain(kit, ANA, BEN)
    clock.now -= timedelta(hours=20)
    assert EpisodicMemory(kit, BEN).recent() == [], "of every memory that has its turn"


def test_sessions_are_trimmed_to_the_limit(
    kit: Services, episodic: EpisodicMemory, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(7):
        episodic.record(f"Step {n}.", session="ab"[n % 2])
        clock.advance()
    limited = {"episodic": replace(episodes.TIERS["episodic"], max_items=3)}
    monkeypatch.setattr(episodes, "TIERS", limited)
    assert both(kit).counts == NOTHING | {"trimmed": 1}
    assert [one.text for one in episodic.recent(9, "a")] == ["Step 6.", "Step 4.", "Step 2."]
    assert len(episodic.recent(9, "b")) == 3


def test_what_has_expired_does_not_count_against_the_limit(
    kit: Services, episodic: EpisodicMemory, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodic.record_decision("Use tabs.", session="s")
    for n in range(3):
        episodic.record(f"Step {n}.", session="s")
    monkeypatch.setattr(episodes, "TIERS", {"episodic": replace(episodes.TIERS["episodic"], max_items=2)})
    clock.advance(2 * DAY)
    assert both(kit).counts == NOTHING | {"expired": 3}
    assert [one.kind for one in episodic.recent()] == ["decision"]


def test_entries_whose_words_were_forgotten_go(kit: Services, episodic: EpisodicMemory) -> None:
    id = episodic.record("secret " * 900, "tool", session="s", tool="cat")
    episodic.record("Other.", session="s")
    kit.items.apply(Plan(ANA, (Forget(id),)))
    assert both(kit).counts == NOTHING | {"tidied": 0 if kit.same_store else 1}
    assert episodic.raw(id) is None
    assert [one.text for one in episodic.recent()] == ["Other."]


def test_tasks_that_ended_a_week_ago_go_and_no_others(kit: Services, clock: SetClock) -> None:
    journal = kit.journal
    assert journal is not None
    for name in ("done", "failed", "running"):
        lease = journal.claim(Claim(ANA, name, "w", 30.0))
        if name != "running":
            journal.end(lease, TaskEnd(name))  # type: ignore[arg-type]
    clock.advance(7 * DAY)
    assert both(kit).counts == NOTHING
    clock.advance(0.000001)
    assert both(kit).counts == NOTHING | {"pruned": 2}
    assert journal.task(ANA, "running") is not None
    assert journal.task(ANA, "done") is None


def test_a_deployment_without_episodes_or_tasks_is_cared_for_too(kit: Services) -> None:
    bare = replace(kit, episodes=None, journal=None, same_store=False)
    assert maintain(bare, ANA).counts == NOTHING


def test_every_pass_says_what_it_did(kit: Services, episodic: EpisodicMemory, clock: SetClock) -> None:
    episodic.record("Hello.", session="s")
    clock.advance(DAY)
    planned = maintain(kit, ANA, dry_run=True)
    assert len(planned.lines) == len(planned.counts) == len(PASSES)
    assert planned.lines[1].startswith("would remove 1 episode whose time is over")
    (one,) = planned.each
    assert str(one) == f'remove {one.id} "Hello.": its time was over {clock():%Y-%m-%d %H:%M}'
    assert maintain(kit, ANA).lines[1].startswith("removed 1 episode")
    assert [planned.counts[name] for name in ("expired", "trimmed", "pruned")] == [1, 0, 0]


# Consolidating


def old(semantic: SemanticMemory, clock: SetClock, **values: object) -> str:
    id = semantic.remember(Note(f"Fact {clock()}.", **{"importance": 0.2, **values}))  # type: ignore[arg-type]
    clock.advance(8 * DAY)
    return id


def standing(kit: Services) -> list[Item]:
    return kit.items.page(ListQuery(ANA, history=True))


def consolidated(kit: Services) -> list[str]:
    """What a real run removed, after a dry one that said the same and removed nothing."""
    before = standing(kit)
    planned = consolidate(kit, ANA, dry_run=True)
    assert standing(kit) == before
    done = consolidate(kit, ANA, dry_run=False)
    assert done.items == planned.items
    gone = [one.item.id for one in done.items]
    assert sorted(item.id for item in standing(kit)) == sorted({item.id for item in before} - set(gone))
    assert not consolidate(kit, ANA, dry_run=True)
    return gone


def test_what_matters_little_and_is_not_used_goes(kit: Services, semantic: SemanticMemory, clock: SetClock) -> None:
    faint = old(semantic, clock)
    once = old(semantic, clock)
    kit.items.touch(ANA, [once])
    (planned,) = [one for one in consolidate(kit, ANA, dry_run=True).items if one.item.id == once]
    assert planned.reason == "importance 0.2, used 1 time, 8 days old"
    assert once in str(planned)
    assert sorted(consolidated(kit)) == sorted([faint, once])


def test_relations_go_as_well(kit: Services, semantic: SemanticMemory, clock: SetClock) -> None:
    id = Relations(kit, ANA).add("Ana", "likes", "tea", importance=0.1)
    clock.advance(8 * DAY)
    assert consolidated(kit) == [id]


def test_the_log_that_a_fact_came_from_stays(kit: Services, semantic: SemanticMemory, clock: SetClock) -> None:
    row = EpisodicMemory(kit, ANA).record("Ana wore a red hat today.", "turn", session="s")
    source = Source(cites=(Citation(row, 0, 9),))
    fact = semantic.remember(Note("Ana wore a red hat.", 0.1, source=source, derived=True))
    clock.advance(8 * DAY)
    assert consolidated(kit) == [fact]
    assert kit.items.get_many(ANA, [row])[0].text == "Ana wore a red hat today."


Keeping = Callable[[Services, SemanticMemory, SetClock], object]
KEPT: dict[str, Keeping] = {
    "important": lambda kit, semantic, clock: old(semantic, clock, importance=0.3),
    "young": lambda kit, semantic, clock: (old(semantic, clock), clock.advance(-8 * DAY + 7 * DAY - 1)),
    "used twice": lambda kit, semantic, clock: [kit.items.touch(ANA, [id]) for id in [old(semantic, clock)] * 2],
    "pinned": lambda kit, semantic, clock: kit.items.apply(Plan(ANA, (Change(old(semantic, clock), pinned=True),))),
    "a slot's value": lambda kit, semantic, clock: old(semantic, clock, slot="user.city"),
    "a slot's history": lambda kit, semantic, clock: [old(semantic, clock, slot="user.city") for _ in range(2)],
    "cited": lambda kit, semantic, clock: semantic.remember(
        Note("It follows.", 0.9, source=Source(cites=(Citation(old(semantic, clock)),)))
    ),
    "cited before it was corrected": lambda kit, semantic, clock: cited_and_corrected(kit, semantic, clock),
    "a message": lambda kit, semantic, clock: (EpisodicMemory(kit, ANA).record("Hi.", session="s"), old_time(clock)),
}


def cited_and_corrected(kit: Services, semantic: SemanticMemory, clock: SetClock) -> None:
    wrong = semantic.remember(Note("The hat is red.", 0.1))
    rests = semantic.remember(Note("It follows.", 0.9, source=Source(cites=(Citation(wrong),))))
    kit.items.apply(Plan(ANA, (Correct(wrong, Draft("The hat is blue.", importance=0.1)), Change(rests, pinned=True))))
    clock.advance(8 * DAY)


def old_time(clock: SetClock) -> None:
    clock.advance(8 * DAY)


@pytest.mark.parametrize("what", KEPT)
def test_what_must_stay_stays(kit: Services, semantic: SemanticMemory, clock: SetClock, what: str) -> None:
    KEPT[what](kit, semantic, clock)
    assert consolidated(kit) == []


@pytest.mark.parametrize("how", ["pinned", "cited"])
def test_what_is_pinned_or_cited_after_the_last_look_stays(
    kit: Services, semantic: SemanticMemory, clock: SetClock, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    id, other = old(semantic, clock), old(semantic, clock)
    look, looks = consolidating._find_uncited, []

    def meanwhile(care: MaintenanceContext, ids: Sequence[str]) -> set[str]:
        uncited = look(care, ids)
        looks.append(uncited)
        if len(looks) == 2:
            change = Change(id, pinned=True)
            cite = Add(Draft("It follows.", importance=0.9, source=Source(cites=(Citation(id),))))
            kit.items.apply(Plan(ANA, (change if how == "pinned" else cite,)))
        return uncited

    monkeypatch.setattr(consolidating, "_find_uncited", meanwhile)
    assert [one.item.id for one in consolidate(kit, ANA, dry_run=False).items] == [other]
    assert looks == [{id, other}] * 2
    assert len(standing(kit)) == (1 if how == "pinned" else 2)


def test_other_memories_are_left_alone(kit: Services, clock: SetClock) -> None:
    old(SemanticMemory(kit, BEN), clock)
    assert consolidated(kit) == []
    assert kit.items.count(ListQuery(BEN)) == 1


def test_many_go_page_by_page(
    kit: Services, semantic: SemanticMemory, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engrain.maintenance.remove_unused.PAGE_SIZE", 100)
    semantic.remember_many([Note(f"Small fact {n}.", 0.1) for n in range(303)], None, None)
    clock.advance(8 * DAY)
    assert len(consolidated(kit)) == 303


def test_what_the_agent_learnt_is_the_agents_word(semantic: SemanticMemory) -> None:
    item = semantic.get(semantic.learn("The build needs 4 GB.", 0.7))
    assert item is not None
    assert (item.text, item.importance, item.trust, item.source) == ("The build needs 4 GB.", 0.7, 0.7, "conversation")
    web = semantic.get(semantic.learn("Port 80 is open.", source="scan"))
    assert web is not None
    assert (web.importance, web.source) == (0.5, "scan")


# The face and the command


def test_the_command_says_beforehand_what_it_then_does(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    clock = SetClock(datetime.now(UTC) - timedelta(days=2))
    with Memory(store, user="ana", clock=clock, embedder=HashEmbedder(), background=False) as memory:
        memory.episodic.record("Hello.", session="s")
        memory.episodic.record_decision("Use tabs.", session="s")

    def run(*args: str) -> str:
        result = CliRunner().invoke(root, ["--store", str(store), "--user", "ana", "maintain", *args])
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    assert run("--dry-run") == run("--dry-run")
    assert "would remove 1 episode whose time is over" in run("--dry-run")
    assert '"Hello.": its time was over' in run("--dry-run", "--each")
    planned, done = json.loads(run("--dry-run", "--json")), json.loads(run("--json"))
    assert planned["counts"] == done["counts"] == NOTHING | {"expired": 1}
    assert (planned["dry_run"], done["dry_run"]) == (True, False)
    assert json.loads(run("--json"))["counts"] == NOTHING


def test_the_files_are_brought_in_step(tmp_path: Path, clock: SetClock) -> None:
    folder = tmp_path / "notes"
    rules = {"mirror": str(folder)}
    with Memory(
        tmp_path / "a.db",
        user="ana",
        clock=clock,
        embedder=HashEmbedder(),
        background=False,
        settings={"lifecycle": rules},
    ) as memory:
        memory.remember("Ana prefers Python.", importance=0.8)
        memory.remember("Ana wore a hat.", importance=0.1)
        assert memory.store.maintain(memory.scope, dry_run=True).counts["mirrored"] == 1
        assert not folder.exists()
        assert memory.store.maintain(memory.scope).counts["mirrored"] == 1
        assert "Ana wore a hat." in (folder / "MEMORY.md").read_text()
        assert memory.store.maintain(memory.scope).counts["mirrored"] == 0
        clock.advance(8 * DAY)
        planned = memory.store.maintain(memory.scope, dry_run=True)
        assert (planned.counts["consolidated"], planned.counts["mirrored"]) == (1, 1), "it is seen beforehand"
        assert memory.store.maintain(memory.scope).each == planned.each
        page = (folder / "MEMORY.md").read_text()
        assert ("Ana prefers Python." in page, "Ana wore a hat." in page) == (True, False)
        assert memory.store.maintain(memory.scope).each == ()


def test_important_episodes_that_came_another_way_last(
    kit: Services, episodic: EpisodicMemory, clock: SetClock
) -> None:
    book = kit.episodes
    assert book is not None
    ends = clock() + timedelta(hours=1)
    for number, importance in enumerate((0.69, 0.7)):
        book.add(ANA, Episode(f"e{number}", "s", "note", f"Note {number}.", importance, clock(), ends))
    clock.advance(2 * HOUR)
    assert both(kit).counts == NOTHING | {"promoted": 1, "expired": 1}
    assert [(one.text, one.expires_at) for one in episodic.recent()] == [("Note 1.", None)]
    (kept,) = [item for item in standing(kit) if item.kind == "episode"]
    assert (kept.text, kept.importance) == ("Note 1.", 0.7)
    assert both(kit).counts == NOTHING


def test_a_small_thing_goes_with_what_it_corrected(kit: Services, semantic: SemanticMemory, clock: SetClock) -> None:
    wrong = semantic.remember(Note("The hat is red.", 0.1))
    right = Draft("The hat is blue.", importance=0.1, source=Source(cites=(Citation(wrong),)))
    kit.items.apply(Plan(ANA, (Correct(wrong, right),)))
    clock.advance(8 * DAY)
    (gone,) = consolidate(kit, ANA, dry_run=False).items
    assert gone.item.text == "The hat is blue."
    assert standing(kit) == []


def test_a_chain_of_small_things_goes_at_once(kit: Services, semantic: SemanticMemory, clock: SetClock) -> None:
    base = semantic.remember(Note("Ana wore a hat.", 0.1))
    middle = semantic.remember(Note("So it was cold.", 0.1, source=Source(cites=(Citation(base),))))
    top = semantic.remember(Note("So it was winter.", 0.1, source=Source(cites=(Citation(middle),))))
    clock.advance(8 * DAY)
    assert sorted(consolidated(kit)) == sorted([base, middle, top])


def test_one_pass_that_fails_keeps_no_other_from_being_done(
    kit: Services, episodic: EpisodicMemory, clock: SetClock
) -> None:
    class Broken(HashEmbedder):
        def embed(self, texts: object, kind: object) -> NoReturn:
            raise EmbedderFailed("no answer")

    episodic.record("Hello.", session="s")
    clock.advance(DAY)
    done = maintain(replace(kit, embedder=Broken("another")), ANA, reembed=True)
    assert done.counts["expired"] == 1
    assert done.counts["embedded"] == 0
    assert done.problems == ("embedded: no answer",)


def test_the_rules_are_settings(kit: Services, semantic: SemanticMemory, clock: SetClock) -> None:
    semantic.remember(Note("Ana wore a hat.", 0.5))
    clock.advance(2 * DAY)
    for rules, count in [
        ({}, 0),
        ({"consolidate_below": 0.6}, 0),
        ({"consolidate_below": 0.6, "consolidate_days": 1}, 1),
    ]:
        care = replace(kit, policies=check_policies(rules))
        assert maintain(care, ANA, dry_run=True).counts["consolidated"] == count


def test_tasks_are_kept_as_long_as_the_settings_say(tmp_path: Path, clock: SetClock) -> None:
    rules = {"task_days": 30}
    store = tmp_path / "a.db"
    options = {"user": "ana", "clock": clock, "embedder": HashEmbedder(), "background": False}
    options["settings"] = {"lifecycle": rules}
    with Memory(store, **options) as memory:  # type: ignore[arg-type]
        with memory.task("first") as run:
            run.step("one", lambda: 1)
        clock.advance(29 * DAY)
    with Memory(store, **options) as memory:  # type: ignore[arg-type]
        with memory.task("second") as run:
            run.step("one", lambda: 1)
        assert memory.store.maintain(memory.scope).counts["pruned"] == 0
        assert len(memory.tasks.list()) == 2
        clock.advance(2 * DAY)
        assert memory.store.maintain(memory.scope).counts["pruned"] == 1


# A clock that is wrong

YEARS = 20 * 365 * DAY


def test_one_wrong_reading_of_the_clock_removes_nothing(
    kit: Services, episodic: EpisodicMemory, semantic: SemanticMemory, clock: SetClock
) -> None:
    episodic.record("Hello.", session="s")
    semantic.remember(Note("A trifle.", 0.1))
    assert kit.journal is not None
    kit.journal.end(kit.journal.claim(Claim(ANA, "t", "w")), TaskEnd("done"))
    maintain(kit, ANA)
    clock.advance(YEARS)
    SemanticMemory(kit, ANA).remember(Note("Written by a wrong clock.", 0.9))
    wrong = both_with_trouble(kit)
    assert wrong.counts == NOTHING
    assert "--trust-clock" in wrong.problems[0]
    clock.advance(-YEARS)
    assert both(kit).counts == NOTHING
    clock.advance(2 * DAY)
    assert both(kit).counts == NOTHING | {"expired": 1}


def both_with_trouble(kit: Services) -> MaintenanceReport:
    planned, done = maintain(kit, ANA, dry_run=True), maintain(kit, ANA)
    assert (done.counts, done.each, done.problems) == (planned.counts, planned.each, planned.problems)
    return done


def test_a_clock_that_goes_on_saying_so_is_believed(kit: Services, episodic: EpisodicMemory, clock: SetClock) -> None:
    episodic.record("Hello.", session="s")
    maintain(kit, ANA)
    clock.advance(YEARS)
    assert both_with_trouble(kit).counts["expired"] == 0
    clock.advance(DAY - 1)
    assert both_with_trouble(kit).counts["expired"] == 0
    clock.advance(1)
    assert both(kit).counts["expired"] == 1


def test_somebody_may_say_that_the_clock_is_right(kit: Services, episodic: EpisodicMemory, clock: SetClock) -> None:
    episodic.record("Hello.", session="s")
    maintain(kit, ANA)
    clock.advance(YEARS)
    assert maintain(kit, ANA, dry_run=True, trust_clock=True).counts["expired"] == 1
    assert both_with_trouble(kit).counts["expired"] == 0, "a dry run has left no word"
    assert maintain(kit, ANA, trust_clock=True).counts["expired"] == 1
    assert both(kit).counts == NOTHING


def test_a_memory_that_was_never_cared_for_goes_by_what_was_written_last(
    kit: Services, semantic: SemanticMemory, clock: SetClock
) -> None:
    semantic.remember(Note("A trifle.", 0.1))
    clock.advance(YEARS)
    semantic.remember(Note("By the same wrong clock.", 0.9))
    assert both_with_trouble(kit).counts == NOTHING
    assert not consolidate(kit, ANA, dry_run=False)
    clock.advance(100 * DAY - YEARS)
    assert both(kit).counts == NOTHING | {"consolidated": 1}


def test_a_memory_in_use_is_believed_though_nobody_has_cared_for_it_for_long(
    kit: Services, episodic: EpisodicMemory, semantic: SemanticMemory, clock: SetClock
) -> None:
    maintain(kit, ANA)
    episodic.record("Hello.", session="s")
    for month in range(12):
        clock.advance(30 * DAY)
        semantic.remember(Note(f"Of month {month}.", 0.9))
    clock.advance(2 * DAY)
    assert both(kit).counts["expired"] == 1


# While others write


def test_what_is_used_before_it_goes_stays_with_what_it_rests_on(
    kit: Services, semantic: SemanticMemory, clock: SetClock
) -> None:
    base = semantic.remember(Note("A trifle.", 0.1))
    note = Note("So a trifle.", 0.1, source=Source(cites=(Citation(base),)), derived=True)
    above = str(semantic.remember_many([note], None, None)[0].id)
    clock.advance(8 * DAY)
    faint = plan_consolidation(MaintenanceContext(kit, ANA, clock()))
    assert {one.id for one in faint.actions} == {base, above}
    for _ in range(2):
        kit.items.touch(ANA, [above])
    faint.act(lambda _: None)
    assert {item.id for item in kit.items.page(ListQuery(ANA))} == {base, above}


def test_of_two_that_let_go_of_the_same_each_tells_its_own(
    kit: Services, semantic: SemanticMemory, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = semantic.remember(Note("Trifle 0.", 0.1))
    note = Note("So a trifle.", 0.1, source=Source(cites=(Citation(base),)), derived=True)
    semantic.remember_many([note, *(Note(f"Trifle {n}.", 0.1) for n in range(1, 4))], None, None)
    clock.advance(8 * DAY)
    looked_again, told = consolidating._reload_items, []

    def meanwhile(care: MaintenanceContext, ids: Sequence[str]) -> list[Item]:
        """Another round lets go of two of them, right after this one has looked."""
        found = list(looked_again(care, ids))
        monkeypatch.undo()
        told.append(consolidating._remove_items(care, list(ids)[:2], lambda _: None))
        return found

    monkeypatch.setattr(consolidating, "_reload_items", meanwhile)
    done = maintain(kit, ANA)
    assert (len(told[0]), done.counts["consolidated"]) == (2, 3)
    assert told[0].isdisjoint(one.id for one in done.each)


def test_many_that_go_are_told_as_they_go(
    kit: Services, semantic: SemanticMemory, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidating, "FORGET_BATCH", 2)
    semantic.remember_many([Note(f"Trifle {n}.", 0.1) for n in range(5)], None, None)
    clock.advance(8 * DAY)
    told: list[int] = []
    maintain(kit, ANA, hooks=RunHooks(told.append))
    assert told[-4:-1] == [2, 2, 1]


def test_a_round_that_turns_the_balance_of_two_models_leaves_nothing_for_the_next(
    kit: Services, episodic: EpisodicMemory, clock: SetClock
) -> None:
    """What it adds has vectors of the present model, what it removes had some of the other."""
    assert kit.episodes is not None
    SemanticMemory(kit, ANA).remember(Note("Of the model before."))
    now = clock()
    kit.episodes.add(ANA, Episode("e", "s", "note", "It matters.", 0.9, now, now + timedelta(days=1)))
    present = replace(kit, embedder=HashEmbedder("another"))
    planned = maintain(present, ANA, dry_run=True)
    done = maintain(present, ANA)
    assert done.each == planned.each
    assert maintain(present, ANA).each == ()


def test_an_interrupt_that_broke_off_a_write_stops_the_round(kit: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise OutcomeUnknown("broken off", interrupt=KeyboardInterrupt())

    monkeypatch.setattr(f"{maintain.__module__}.plan_consolidation", interrupted)
    with pytest.raises(KeyboardInterrupt):
        maintain(kit, ANA)
    monkeypatch.undo()
    monkeypatch.setattr(kit.items, "purge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        maintain(kit, ANA)


def test_the_answer_to_a_request_is_known_for_so_many_days(tmp_path: Path) -> None:
    clock = SetClock()
    with Memory(tmp_path / "store.db", user="ana", embedder=HashEmbedder(), clock=clock) as memory:
        first = memory.remember("Tea.", occurred_at=clock(), request_id="r")
        clock.advance(29 * 86_400)
        memory.store.maintain()
        assert memory.remember("Tea.", occurred_at=clock.now - timedelta(days=29), request_id="r") == first
        clock.advance(2 * 86_400)
        memory.store.maintain()
        assert memory.remember("Rain.", request_id="r") != first
