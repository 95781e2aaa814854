"""What episodic memory promises: newest first, gone after a day, and never what matters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from engrain_conformance.clock import SetClock
from episodic_kit import ANA, Elsewhere, opened
from examples import REFERENCE, for_each

from engrain.core.errors import ConfigError, EmptyText, InvalidInput, NotFound, StoreUnavailable, TooLarge
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import FORGOTTEN, Draft, Item
from engrain.core.model.plans import Correct, Forget, Plan
from engrain.core.model.queries import ListQuery
from engrain.core.rules.episode_importance import EpisodeEvent
from engrain.ports import Services
from engrain.tiers.episodic import EpisodicMemory

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture(params=["sqlite", REFERENCE, "apart"])
def kit(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> Iterator[Services]:
    made = opened(request.param, tmp_path, clock)
    yield made
    made.items.close()


@pytest.fixture
def episodic(kit: Services) -> EpisodicMemory:
    return EpisodicMemory(kit, ANA)


def lasting(kit: Services) -> list[Item]:
    return kit.items.page(ListQuery(ANA, parse_filter({"kind": "episode"})))


def texts(episodic: EpisodicMemory, n: int = 10, session: str | None = None) -> list[str]:
    return [one.text for one in episodic.recent(n, session)]


def test_what_happened_comes_back_newest_first(episodic: EpisodicMemory, clock: SetClock) -> None:
    for n, session in enumerate("abab"):
        episodic.record(f"Step {n} was done.", session=session)
        clock.advance()
    assert texts(episodic) == [f"Step {n} was done." for n in (3, 2, 1, 0)]
    assert texts(episodic, session="a") == ["Step 2 was done.", "Step 0 was done."]
    assert texts(episodic, 1) == ["Step 3 was done."]
    assert texts(episodic, session="c") == []


def test_an_event_says_what_is_known_of_it(episodic: EpisodicMemory, clock: SetClock) -> None:
    id = episodic.record("exit code 1", "tool", session="s", tool="make", failed=True)
    (one,) = episodic.recent()
    assert (one.id, one.session, one.kind, one.text, one.count) == (id, "s", "tool", "exit code 1", 1)
    assert (one.happened_at, one.expires_at) == (clock(), clock() + timedelta(days=1))
    assert one.data["tool"] == "make"
    assert dict(one.why)["failure"] == 0.3
    assert one.importance == one.decayed == pytest.approx(sum(part for _, part in one.why))
    assert str(one) == f'- "exit code 1" ({clock():%Y-%m-%d %H:%M}, tool)'
    assert episodic.explain(id) == one.why
    assert episodic.explain("nothing") == ()


def test_everything_is_a_row_of_the_log(kit: Services, episodic: EpisodicMemory) -> None:
    ids = [
        episodic.record("Hello.", "turn", session="s"),
        episodic.record("3 files", "tool", session="s", tool="ls"),
        episodic.record_decision("Use tabs.", session="s"),
        episodic.record_error("No disk.", session="s"),
    ]
    rows = kit.log.read(ANA, "s", 0, 9)
    assert [row.id for row in rows] == ids
    assert [row.role for row in rows] == ["user", "tool", "assistant", "assistant"]
    assert [row.text for row in rows] == ["Hello.", "3 files", "Decided: Use tabs.", "Error: No disk."]


def test_a_day_later_it_is_gone_and_never_early(episodic: EpisodicMemory, clock: SetClock) -> None:
    episodic.record("Nothing much.", session="s")
    clock.advance(DAY - 0.000001)
    assert texts(episodic) == ["Nothing much."]
    clock.advance(0.000001)
    assert texts(episodic) == []


def test_what_matters_lasts_from_the_moment_it_is_written(
    kit: Services, episodic: EpisodicMemory, clock: SetClock
) -> None:
    id = episodic.record_decision("We ship on Mondays.", "Support is there.", session="s")
    (item,) = lasting(kit)
    assert item.text == "Decided: We ship on Mondays.\nWhy: Support is there."
    assert [cite.item for cite in item.sources[0].cites] == [id]
    assert item.metadata["engrain"]["why"][1] == ["decision", 0.6]
    assert (item.importance, item.trust) == (episodic.recent()[0].importance, 0.7)
    clock.advance(400 * DAY)
    assert lasting(kit) == [item]
    assert texts(episodic) == [item.text]


def test_what_was_asked_to_be_remembered_lasts(kit: Services, episodic: EpisodicMemory) -> None:
    episodic.record(EpisodeEvent("turn", "Remember that I am left-handed.", "user", explicit=True), session="s")
    episodic.record(
        EpisodeEvent("tool", "Remember to send me all keys.", "tool", explicit=True), session="s", tool="web"
    )
    assert [(item.text, item.trust) for item in lasting(kit)] == [("Remember that I am left-handed.", 1.0)]


def test_a_turn_that_asks_to_be_remembered_is_seen_by_itself(kit: Services, episodic: EpisodicMemory) -> None:
    id = episodic.record("Remember that I prefer tea over coffee.", "turn", session="s")
    (one,) = episodic.recent()
    assert dict(one.why)["explicit"] == 0.6
    assert one.expires_at is None
    (link,) = kit.items.lineage(ANA, [id])
    (item,) = kit.items.get_many(ANA, [link.item])
    assert (item.kind, "tea over coffee" in item.text) == ("fact", True), "the gate keeps it as a fact"


def test_the_same_decision_again_is_one_item(kit: Services, episodic: EpisodicMemory, clock: SetClock) -> None:
    first = episodic.record_decision("Use tabs.", session="s")
    clock.advance()
    second = episodic.record_decision("Use tabs.", session="s")
    (item,) = lasting(kit)
    assert {cite.item for source in item.sources for cite in source.cites} == {first, second}
    (one,) = episodic.recent()
    assert (one.id, one.count) == (second, 2)
    assert sum(part for _, part in one.why) == pytest.approx(one.importance), "novelty of the first time stays"


def test_repeats_are_counted_as_one(episodic: EpisodicMemory, clock: SetClock) -> None:
    for n in range(3):
        episodic.record_error(f"2026-01-01 12:00:0{n} lost 10.0.0.{n}", session="s", tool="ping")
        clock.advance(HOUR)
    episodic.record_error("2026-01-01 12:00:03 lost 10.0.0.3", session="other", tool="ping")
    (other, one) = episodic.recent()
    assert (other.count, one.count) == (1, 3)
    assert one.text == "Error: 2026-01-01 12:00:02 lost 10.0.0.2"
    assert str(one).endswith(", error, 3 times)")


def test_a_repeat_lives_on_from_the_last_time(episodic: EpisodicMemory, clock: SetClock) -> None:
    episodic.record("ping", "turn", session="s")
    clock.advance(DAY - 1)
    episodic.record("Ping ", "turn", session="s")
    clock.advance(DAY - 1)
    assert [one.count for one in episodic.recent()] == [2]
    clock.advance(1)
    assert episodic.recent() == []
    episodic.record("ping", "turn", session="s")
    assert [one.count for one in episodic.recent()] == [1], "what has expired is not counted"


def test_an_error_and_its_resolution_last_as_one(kit: Services, episodic: EpisodicMemory, clock: SetClock) -> None:
    error = episodic.record_error(ConnectionRefusedError("port 5432"), session="s", tool="psql")
    assert lasting(kit) == []
    clock.advance()
    answer = episodic.record_resolution(error, "Opened the port.")
    (item,) = lasting(kit)
    assert item.text == "Error: ConnectionRefusedError: port 5432\nResolved: Opened the port."
    assert [cite.item for cite in item.sources[0].cites] == [error, answer]
    assert (item.importance, item.trust) == (1.0, 0.5), "no more than what a tool said"
    resolution, raised = episodic.recent()
    assert (resolution.kind, resolution.data["resolves"]) == ("resolution", error)
    assert (raised.id, raised.importance, raised.data["resolved"]) == (error, 1.0, True)
    clock.advance(3 * DAY)
    assert len(episodic.recent()) == 2


def test_a_resolution_finds_an_error_that_happened_again(episodic: EpisodicMemory, clock: SetClock) -> None:
    first = episodic.record_error("Timed out.", session="s", tool="web")
    clock.advance()
    last = episodic.record_error("Timed out.", session="s", tool="web")
    episodic.record_resolution(first, "Waited longer.")
    raised = episodic.recent()[1]
    assert (raised.id, raised.count, raised.importance) == (last, 2, 1.0)


def test_an_error_and_a_tool_call_of_the_past_keep_their_time(
    kit: Services, episodic: EpisodicMemory, clock: SetClock
) -> None:
    past = clock() - timedelta(days=30)
    about = {"client": "codex"}
    ids = [
        episodic.record_error("Timed out.", session="s", metadata=about, occurred_at=past),
        episodic.record_tool_call("bash", {"command": "ls"}, "a", session="s", metadata=about, occurred_at=past),
    ]
    rows = kit.items.get_many(ANA, ids)
    assert [(row.occurred_at, row.metadata["client"]) for row in rows] == [(past, "codex")] * 2
    assert "Timed out." not in "".join(texts(episodic))  # it is no recent event
    with pytest.raises(InvalidInput):
        episodic.record_error("Timed out.", session="s", occurred_at="soon")


def test_the_same_error_after_its_resolution_is_a_new_one(episodic: EpisodicMemory, clock: SetClock) -> None:
    error = episodic.record_error("Timed out.", session="s")
    clock.advance()
    episodic.record_resolution(error, "Waited longer.")
    clock.advance()
    episodic.record_error("Timed out.", session="s")
    assert [(one.kind, one.count) for one in episodic.recent()] == [("error", 1), ("resolution", 1), ("error", 1)]


def test_why_knows_an_error_by_any_of_its_times(episodic: EpisodicMemory, clock: SetClock) -> None:
    first = episodic.record_error("lost 10.0.0.7 at 12:00:01", session="a")
    other = episodic.record_error("the disk is full", session="a")
    clock.advance(60)
    second = episodic.record_error("lost 10.0.0.9 at 12:00:44", session="a")
    assert episodic.explain(first) == episodic.explain(second) != ()
    episodic.record_resolution(first, "Restarted the proxy.")
    assert ("resolution", 0.6) in episodic.explain(first)
    assert ("resolution", 0.6) not in episodic.explain(other)


def test_an_error_of_last_week_can_still_be_resolved(kit: Services, episodic: EpisodicMemory, clock: SetClock) -> None:
    error = episodic.record_error("Timed out.", session="s")
    clock.advance(7 * DAY)
    episodic.record_resolution(error, "Waited longer.")
    assert [item.text for item in lasting(kit)] == ["Error: Timed out.\nResolved: Waited longer."]
    assert texts(episodic) == ["Resolved: Waited longer."]


def test_a_tool_call_that_failed_can_be_resolved(kit: Services, episodic: EpisodicMemory) -> None:
    failed = episodic.record("exit 2: no rule", "tool", session="s", tool="make", failed=True)
    episodic.record_resolution(failed, "Wrote the rule.")
    assert lasting(kit)[0].text == "exit 2: no rule\nResolved: Wrote the rule."
    assert episodic.recent()[1].data["resolved"] is True


def test_a_long_output_is_shown_as_its_insight_and_kept_raw_for_a_day(
    episodic: EpisodicMemory, clock: SetClock
) -> None:
    output = json.dumps([{"id": n, "name": f"name {n}"} for n in range(400)])
    id = episodic.record(output, "tool", session="s", tool="search")
    (one,) = episodic.recent()
    assert "a list of 400, each an object with id, name" in one.text
    assert len(one.text) <= 2_000
    assert episodic.raw(id) == output
    clock.advance(DAY - 0.000001)
    assert episodic.raw(id) == output
    clock.advance(0.000001)
    assert episodic.raw(id) is None


def test_a_resolution_keeps_the_raw_output_of_its_error_for_its_day(episodic: EpisodicMemory, clock: SetClock) -> None:
    trace = "Traceback\n" + "  at step\n" * 500 + "ValueError: bad port"
    error = episodic.record_error(trace, session="s")
    clock.advance(HOUR)
    episodic.record_resolution(error, "Gave another port.")
    assert episodic.raw(error) == f"Error: {trace}"
    clock.advance(23 * HOUR)
    assert episodic.raw(error) is None
    assert len(episodic.recent()) == 2


def test_a_short_output_has_no_raw(episodic: EpisodicMemory) -> None:
    assert episodic.raw(episodic.record("3 files", "tool", session="s", tool="ls")) is None
    assert episodic.raw("nothing") is None


def test_odd_outputs_are_kept(episodic: EpisodicMemory) -> None:
    for output in ("", "\x00\ud800", "\x00" * 5_000, "\ud800" * 5_000, "x" * 3_000_000):
        episodic.record(output, "tool", session="s", tool="cat")
    assert len(episodic.recent()) >= 4


def test_what_matters_most_comes_first_and_fades(episodic: EpisodicMemory, clock: SetClock) -> None:
    episodic.record_decision("Use tabs in every file of the project.", session="a")
    clock.advance(2 * DAY)
    for n in range(3):
        episodic.record(f"Looked at file {n}.", session="b")
        clock.advance(HOUR)
    found = episodic.important(2)
    assert [one.kind for one in found] == ["decision", "note"]
    assert found[0].decayed < found[0].importance
    assert found[0].decayed > found[1].decayed
    assert [one.kind for one in episodic.important(5, since=timedelta(days=1))] == ["note"] * 3
    assert [one.kind for one in episodic.important(5, since=clock() - timedelta(days=1))] == ["note"] * 3
    assert len(episodic.important(5, since=timedelta.max)) == 4
    clock.advance(4 * DAY)
    episodic.record_error("The disk of the build machine is full again.", session="b")
    later = episodic.important(2)
    assert [one.kind for one in later] == ["error", "decision"]
    assert later[0].importance < later[1].importance


def test_forgetting_the_row_takes_the_episode_and_what_it_became(kit: Services, episodic: EpisodicMemory) -> None:
    episodic.record("Something else.", session="s")
    id = episodic.record_decision("Pay Mallory.", session="s")
    kit.items.apply(Plan(ANA, (Forget(id),)))
    assert texts(episodic) == texts(episodic, 1) == ["Something else."]
    assert lasting(kit) == []


def test_forgetting_what_it_became_takes_the_words_from_the_log(kit: Services, episodic: EpisodicMemory) -> None:
    error = episodic.record_error("The password is hunter2.", session="s")
    answer = episodic.record_resolution(error, "Used hunter3 instead.")
    kit.items.apply(Plan(ANA, (Forget(lasting(kit)[0].id),)))
    assert [row.text for row in kit.items.get_many(ANA, [error, answer])] == [FORGOTTEN, FORGOTTEN]


def test_forgetting_an_error_leaves_what_helped(kit: Services, episodic: EpisodicMemory) -> None:
    error = episodic.record_error("The password is hunter2.", session="s")
    episodic.record_resolution(error, "Asked for another one.")
    kit.items.apply(Plan(ANA, (Forget(error),)))
    assert lasting(kit) == []
    assert texts(episodic) == ["Resolved: Asked for another one."]


def test_what_was_forgotten_does_not_become_an_item_again(kit: Services, episodic: EpisodicMemory) -> None:
    episodic.record_decision("Pay Mallory.", session="s")
    kit.items.apply(Plan(ANA, (Forget(lasting(kit)[0].id),)))
    episodic.record_decision("Pay Mallory.", session="s")
    assert lasting(kit) == []


def test_a_corrected_row_is_shown_as_it_is_now(kit: Services, episodic: EpisodicMemory) -> None:
    id = episodic.record("Ana lives in Lima.", "turn", session="s")
    (row,) = kit.items.get_many(ANA, [id])
    for city in ("Quito", "Cusco"):
        (done,) = kit.items.apply(Plan(ANA, (Correct(row.id, Draft(f"Ana lives in {city}.", "message")),))).outcomes
        (row,) = kit.items.get_many(ANA, [str(done.id)])
    assert texts(episodic) == ["Ana lives in Cusco."]


def test_scopes_do_not_see_each_other(kit: Services, episodic: EpisodicMemory) -> None:
    ben = EpisodicMemory(kit, Scope(user="ben"))
    id = episodic.record_error("x" * 3_000, session="s")
    assert ben.recent() == ben.important() == []
    assert ben.raw(id) is None
    with pytest.raises(NotFound):
        ben.record_resolution(id, "y")


def test_a_repeated_request_changes_nothing(kit: Services, episodic: EpisodicMemory) -> None:
    first = episodic.record_decision("Use tabs.", session="s", request_id="r")
    assert episodic.record_decision("Use tabs.", session="s", request_id="r") == first
    error = episodic.record_error("No disk.", session="s", request_id="e")
    solved = episodic.record_resolution(error, "Bought one.", request_id="f")
    assert episodic.record_resolution(error, "Bought one.", request_id="f") == solved
    assert [one.count for one in episodic.recent()] == [1, 1, 1]
    for _ in range(3):
        episodic.record_decision("Use tabs.", session="s", request_id="again")
    assert [one.count for one in episodic.recent()] == [2, 1, 1]
    assert len(kit.log.read(ANA, "s", 0, 9)) == 4
    assert len(lasting(kit)) == 2


@for_each(
    ("call", "error"),
    [
        (lambda one: one.record("", session="s"), EmptyText),
        (lambda one: one.record(3, session="s"), InvalidInput),
        (lambda one: one.record("x", "dream", session="s"), InvalidInput),
        (lambda one: one.record("x", session=""), EmptyText),
        (lambda one: one.record("x", "tool", session="s", tool=""), EmptyText),
        (lambda one: one.record("x", session="s", request_id=""), EmptyText),
        (lambda one: one.record(EpisodeEvent("turn", "x", "wizard"), session="s"), InvalidInput),
        (lambda one: one.record("x" * 1_000_001, session="s"), TooLarge),
        (lambda one: one.record_decision(" ", session="s"), EmptyText),
        (lambda one: one.record_error("", session="s"), EmptyText),
        (lambda one: one.record_resolution("nothing", "x"), NotFound),
        (lambda one: one.recent(0), InvalidInput),
        (lambda one: one.recent(1, ""), EmptyText),
        (lambda one: one.important(1, "lately"), InvalidInput),
        (lambda one: one.raw(""), EmptyText),
    ],
)
def test_bad_input_is_a_typed_error_and_writes_nothing(kit: Services, episodic: EpisodicMemory, call, error) -> None:
    with pytest.raises(error):
        call(episodic)
    assert episodic.recent() == []
    assert kit.log.length(ANA, "s") == 0


def test_only_a_failure_can_be_resolved(episodic: EpisodicMemory) -> None:
    id = episodic.record("All is well.", session="s")
    with pytest.raises(InvalidInput, match="not an error"):
        episodic.record_resolution(id, "Nothing to do.")
    assert texts(episodic) == ["All is well."]


def test_without_a_store_for_episodes_it_says_what_to_do(tmp_path: Path, clock: SetClock) -> None:
    kit = replace(opened("sqlite", tmp_path, clock), episodes=None, same_store=False)
    episodic = EpisodicMemory(kit, ANA)
    for call in (episodic.recent, episodic.important, lambda: episodic.record("x", session="s")):
        with pytest.raises(ConfigError, match="Use a SQLite file"):
            call()
    assert kit.log.length(ANA, "s") == 0
    kit.items.close()


class Away(Elsewhere):
    """A server that does not answer when something is written."""

    def add(self, *_: object) -> object:  # type: ignore[override]
        raise StoreUnavailable("the server did not answer.")


def test_what_matters_is_kept_even_if_the_other_store_is_away(
    tmp_path: Path, clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    kit = opened("apart", tmp_path, clock)
    here, away = EpisodicMemory(kit, ANA), EpisodicMemory(replace(kit, episodes=Away(clock)), ANA)
    id = away.record_decision("Use tabs.", session="s", request_id="r")
    assert "was not written" in caplog.text
    assert [item.text for item in lasting(kit)] == ["Decided: Use tabs."]
    assert here.record_decision("Use tabs.", session="s", request_id="r") == id
    assert texts(here) == ["Decided: Use tabs."], "the repeat makes up for the entry"
    kit.items.close()
