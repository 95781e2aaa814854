"""Sessions begin with what matters and end with a summary."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from examples import for_each

from engrain import Citation, Conflict, InvalidInput, Memory, NotFound, ReadOnlyStore, Source
from engrain.core.model.plans import Add
from engrain.ingest import summaries as recap
from engrain.ingest import write


def talk(memory: Memory, session: str, *texts: str) -> None:
    memory.start_session(session)
    for number, text in enumerate(texts):
        memory.add_message("user" if number % 2 == 0 else "assistant", text)


def test_a_session_opens_with_profile_and_last_summary(memory: Memory) -> None:
    memory.remember("Quito", slot="user.city")
    memory.remember("Always answer in German.", importance=0.9)
    memory.remember("The moon is far away.")
    talk(memory, "a", "We decided to use Postgres 16 for the ledger.", "Noted.", "The green paint needs 2 coats.")
    memory.end_session()
    opening = memory.start_session("b")
    profile = {item.text for item in opening.profile}
    assert {"Quito", "Always answer in German."} <= profile
    assert "The moon is far away." not in profile
    assert opening.summary is not None
    assert "Postgres 16" in opening.summary.text
    assert str(opening).startswith('## What the user always wants\n- "Always answer in German."')
    assert str(opening).count("Always answer in German.") == 1
    assert '## Profile\n- user.city: "Quito"' in str(opening)
    assert "## Last session" in str(opening)


def test_a_session_opens_without_telling_the_same_twice(memory: Memory) -> None:
    memory.start_session("one")
    memory.add_message("user", "I live in Quito.")
    memory.add_message("assistant", "The green paint for the shed needs 2 coats and 6 hours to dry.")
    memory.end_session()
    opened = str(memory.start_session("two"))
    assert opened.count("I live in Quito") == 1
    assert opened.count("needs 2 coats") == 1


def test_a_last_session_that_the_profile_tells_in_full_is_left_out(memory: Memory) -> None:
    talk(memory, "a", "I moved to Quito. From now on answer in Spanish.")
    memory.end_session()
    opened = str(memory.start_session("b"))
    assert opened.count("Quito") == opened.count("answer in Spanish") == 1
    assert "## Last session" not in opened


def test_an_important_episode_is_not_told_in_the_last_session_as_well(memory: Memory) -> None:
    talk(memory, "a", "The nightly import on heron times out.")
    error = memory.episodic.record_error("The import timed out after 30 s.")
    memory.episodic.record_resolution(error, "Its time-out is 120 s now.")
    memory.end_session()
    opened = str(memory.start_session("b"))
    assert opened.count("heron") == opened.count("after 30 s") == opened.count("120 s now") == 1


def test_a_session_opens_without_the_lines_that_no_longer_hold(memory: Memory) -> None:
    talk(memory, "a", "I live in Lima.", "The green paint needs 2 coats.", "I moved to Quito last week.")
    memory.end_session()
    opened = str(memory.start_session("b"))
    assert "2 coats" in opened
    assert "Lima" not in opened


def test_the_block_names_a_session_only_if_it_was_given_a_name(memory: Memory) -> None:
    talk(memory, "a", "The wedding is in Lisbon.")
    memory.end_session()
    assert "summary of session a):" in str(memory.start_session())
    memory.add_message("user", "The green paint needs 2 coats.")
    drawn = memory.end_session()
    assert drawn is not None
    assert drawn.summary is not None
    opened = str(memory.start_session())
    assert f"- in short ({drawn.summary.valid_from:%Y-%m-%d}):" in opened
    assert drawn.session not in opened


def test_the_summary_is_found_by_recall_and_cites_its_messages(memory: Memory) -> None:
    talk(memory, "a", "The invoice of Zorblatt is 4,200 euros.", "You're welcome!", "It is in folder 12.")
    closing = memory.end_session()
    assert closing is not None
    assert closing.summary is not None
    assert "Zorblatt" in str(memory.recall("How much is the invoice of Zorblatt?"))
    why = memory.explain(closing.summary.id)
    assert {item.text for item in why.cites} == {"The invoice of Zorblatt is 4,200 euros.", "It is in folder 12."}


def test_forgetting_a_message_takes_the_summary_and_the_next_start_makes_it_anew(memory: Memory) -> None:
    memory.start_session("a")
    memory.add_message("user", "The wedding is in Lisbon.")
    secret = memory.add_message("user", "The safe opens with marzipan.").id
    memory.end_session()
    memory.forget(secret)
    opening = memory.start_session("b")
    assert opening.summary is not None
    assert "Lisbon" in opening.summary.text
    assert "marzipan" not in opening.summary.text


def test_forgetting_a_fact_takes_the_summary_and_the_next_start_makes_it_anew(memory: Memory) -> None:
    memory.start_session("a")
    memory.add_message("user", "The wedding is in Lisbon. My dog is called Marzipan.")
    memory.end_session()
    (dog,) = [item for item in memory.list({"kind": "fact"}) if "Marzipan" in item.text]
    (old,) = memory.list({"kind": "summary"})
    assert "Marzipan" in old.text
    assert old.id in memory.forget(dog.id).ids
    opening = memory.start_session("b")
    assert opening.summary is not None
    assert "Lisbon" in opening.summary.text
    assert "Marzipan" not in str(opening)
    assert not [item for item in memory.list(history=True) if "Marzipan" in item.text]


def test_a_long_line_that_is_told_in_parts_at_a_later_stage_goes_with_its_message(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recap, "ROLL_BATCH_SIZE", 4)
    memory.start_session("a")
    why = f"The safe in Lisbon opens with marzipan. {'Rome and Genoa agreed to it in March. ' * 6}Porto did too."
    decision = memory.episodic.record_decision("The gold of Zorblatt goes to the safe in Lisbon before April.", why)
    memory.add_messages([{"role": "user", "content": "ok thanks"}] * 6)
    closing = memory.end_session()
    assert closing is not None
    assert closing.summary is not None
    assert "marzipan" in closing.summary.text
    assert closing.summary.id in memory.forget(decision).ids
    assert not [item for item in memory.list(history=True) if "marzipan" in item.text]


def test_no_password_stands_in_a_summary(memory: Memory) -> None:
    memory.start_session("a")
    memory.add_message("user", "The wedding is in Lisbon. My password is hunter2!")
    memory.end_session()
    opening = memory.start_session("b")
    assert opening.summary is not None
    assert opening.summary.text == "user: The wedding is in Lisbon."
    assert any("hunter2" in message.text for message in memory.sessions.messages("a"))


def test_a_summary_leaves_out_pasted_words(memory: Memory) -> None:
    pasted = "I live in Minsk. I decided to quit at Bosch."
    talk(memory, "a", f"I decided to move to Lima. What does this say?\n\n{pasted}", "A farewell.")
    memory.add_message("user", "Trivia card 3. I decided to work at NASA.")
    lines = str(memory.end_session()).splitlines()
    assert "user: I decided to move to Lima." in lines
    assert not any("Minsk" in line or "Bosch" in line for line in lines)
    assert not any(line.startswith("user: ") for line in lines if "NASA" in line)


def test_of_a_long_output_a_summary_tells_little(memory: Memory) -> None:
    memory.start_session("a")
    memory.add_message("user", "The pods in Lisbon look odd.")
    pods = "\n".join(f"pod-{number} Running {number}h" for number in range(400))
    memory.episodic.record_tool_call("kubectl", {"get": "pods"}, f"{pods}\nerror: pod-77 CrashLoopBackOff")
    closing = memory.end_session()
    told = str(closing).split("\n")
    assert told[0] == "user: The pods in Lisbon look odd."
    assert "kubectl: error: pod-77 CrashLoopBackOff" in told
    assert len([line for line in told if line.startswith("kubectl: ")]) == 3
    assert not any("kubectl: kubectl:" in line for line in told)


def test_a_session_opens_with_what_of_the_last_one_no_longer_holds(memory: Memory) -> None:
    memory.start_session("a")
    memory.add_message("user", "The deadline is 15 November.")
    memory.end_session()
    assert "held until" not in str(memory.start_session("b"))
    memory.remember("The deadline is 1 December.", slot="we.deadline")
    assert '"The deadline is 15 November" held until' in str(memory.start_session("c"))
    assert 'now "The deadline is 1 December."' in str(memory.start_session("d"))


def test_the_profile_is_the_users_own(memory: Memory) -> None:
    memory.start_session("a")
    memory.add_message("user", "I prefer dark mode.", speaker="Bob")
    memory.add_message("user", "I prefer light mode.")
    assert [item.slot for item in memory.start_session("b").profile] == ["user.prefers.theme"]


def test_the_profile_tells_what_matters_of_the_user_without_a_slot(memory: Memory) -> None:
    memory.start_session("a")
    for said in ("I'm allergic to peanuts.", "Remember that the rent is due on the 5th.", "I live in Quito."):
        memory.add_message("user", said)
    for n in range(40):
        memory.add_message("user", f"I'm allergic to pollen of kind {n}.", speaker="Bob")
    memory.remember("Peanuts are half price.", importance=0.9, source=Source("shop.html", "web"))
    memory.remember("Always buy peanuts.", source=Source("shop.html", "web"))
    profile = [item.text for item in memory.start_session("b").profile]
    assert profile == ["I live in Quito", "the rent is due on the 5th", "I'm allergic to peanuts"]


def test_to_end_a_session_again_without_a_new_message_writes_nothing(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(memory, "a", "The wedding is in Lisbon.")
    first = memory.end_session()
    memory.start_session("a")
    monkeypatch.setattr(memory.store.services.items, "apply", lambda _: pytest.fail("it was written again"))
    again = memory.end_session()
    assert first is not None
    assert again is not None
    assert again.summary == first.summary


def test_a_session_that_says_nothing_is_read_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.add_messages([{"role": "user", "content": "ok thanks"}] * 20, session="a")
    assert memory.start_session("b").summary is None
    log = memory.store.services.log
    monkeypatch.setattr(log, "read", lambda *_: pytest.fail("it was read again"))
    assert memory.start_session("c").summary is None
    monkeypatch.undo()
    memory.add_message("user", "The wedding is in Lisbon.", session="a")
    opening = memory.start_session("d")
    assert opening.summary is not None
    assert "Lisbon" in opening.summary.text


def test_where_nothing_can_be_written_one_session_follows_another(open_memory: Any) -> None:
    with open_memory() as before:
        before.add_message("user", "The wedding is in Lisbon.", session="a")
    memory = open_memory(settings={"stores": {"read_only": True}})
    memory.start_session("a")
    assert memory.start_session("b").session == "b"
    memory.start_session("a")
    with pytest.raises(ReadOnlyStore):
        memory.end_session()


def test_a_summary_that_never_told_it_stays(memory: Memory) -> None:
    memory.start_session("a")
    dull = memory.add_message("user", f"So what is it that {'they or we or you or ' * 9}somebody would want?").id
    for n in range(24):
        memory.add_message("user", f"We decided that house {n} gets {n + 3} new windows and {n + 7} doors from Lisbon.")
    closing = memory.end_session()
    assert closing is not None
    assert closing.summary is not None
    assert "somebody" not in closing.summary.text
    fact = memory.remember("The user does not know.", source=Source(None, "agent", (Citation(dull, 0, 8),)))
    assert closing.summary.id not in memory.forget(fact).ids
    opening = memory.start_session("b")
    assert opening.summary == closing.summary


def test_the_last_session_is_told_of_though_an_earlier_one_was_summed_up_later(memory: Memory) -> None:
    talk(memory, "a", "My dog is called Rex. The boat is in Genoa.")
    talk(memory, "b", "The wedding is in Lisbon.")
    memory.end_session()
    memory.forget(memory.list({"kind": "fact"})[0].id)
    opening = memory.start_session("c")
    assert opening.summary is not None
    assert opening.summary.slot == "session:b"
    assert {item.slot for item in memory.list({"kind": "summary"})} == {"session:a", "session:b"}


def test_what_is_forgotten_while_a_session_is_summed_up_is_in_no_summary(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(memory, "a", "The safe opens with marzipan.", "The wedding is in Lisbon.")
    secret = memory.conversation.last(5)[0]
    made = write.build_drafts

    def slow(*given: Any) -> Any:
        drafts = made(*given)
        monkeypatch.undo()
        fact = memory.remember("The safe opens.", source=Source(None, "agent", (Citation(str(secret.id), 20, 28),)))
        memory.forget(fact)
        return drafts

    monkeypatch.setattr(write, "build_drafts", slow)
    closing = memory.end_session()
    assert closing is not None
    assert closing.summary is not None
    assert "Lisbon" in closing.summary.text
    assert not [item for item in memory.list(history=True) if "marzipan" in item.text]


def test_a_process_that_dies_right_after_the_summary_is_written_leaves_nothing_forgotten_in_it(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is forgotten between reading and writing: the write itself is refused, so nothing is left to be undone."""
    talk(memory, "a", "The safe opens with marzipan.", "The wedding is in Lisbon.")
    secret = memory.conversation.last(5)[0]
    fact = memory.remember("The safe opens.", source=Source(None, "agent", (Citation(str(secret.id), 20, 28),)))
    items = memory.store.services.items
    apply, seen = items.apply, []

    def dies(plan: Any) -> Any:
        if not any(isinstance(step, Add) and step.draft.kind == "summary" for step in plan.steps):
            return apply(plan)
        seen.append(plan)
        monkeypatch.undo()
        memory.forget(fact)
        try:
            apply(plan)
        finally:
            raise Killed

    monkeypatch.setattr(items, "apply", dies)
    with pytest.raises(Killed):
        memory.end_session()
    assert seen
    assert not [item for item in memory.list(history=True) if "marzipan" in item.text]


def test_the_summary_of_a_very_long_session_tells_of_its_beginning_too(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recap, "ROLL_BATCH_SIZE", 40)
    long_session(memory, 120)


@pytest.mark.slow
def test_the_summary_of_3000_messages_tells_of_its_beginning_too(open_memory) -> None:  # type: ignore[no-untyped-def]
    long_session(open_memory(embedder=HashEmbedder()), 3_000)


def long_session(memory: Memory, count: int) -> None:
    memory.start_session("a")
    said = [{"role": "user", "content": f"Please sort file {n} of Lima into box {n % 7}."} for n in range(count)]
    said[5] = {"role": "user", "content": "We decided that aunt Olga pays for the boat."}
    said[count - 3] = {"role": "user", "content": "We agreed on Genoa for the winter."}
    for start in range(0, count, 500):
        memory.add_messages(said[start : start + 500])
    closing = memory.end_session()
    assert closing is not None
    assert closing.summary is not None
    assert "Olga pays for the boat" in closing.summary.text
    assert "Genoa" in closing.summary.text
    decided = [item.id for item in memory.explain(closing.summary.id).cites if "Olga" in item.text]
    assert closing.summary.id in memory.forget(decided[0]).ids
    assert not [item for item in memory.list({"kind": "summary"}, history=True) if "Olga" in item.text]
    opening = memory.start_session("b")
    assert opening.summary is not None
    assert "Genoa" in opening.summary.text


def test_a_session_that_is_gone_on_with_costs_what_is_new_in_it(open_memory) -> None:  # type: ignore[no-untyped-def]
    memory = open_memory(embedder=HashEmbedder())
    for n in range(40):
        memory.start_session("a")
        memory.add_message("user", f"The crate of row {n} goes to harbour {n + 100}.")
        memory.end_session()
    items = memory.store.services.items
    versions = items.history(memory.scope, "session:a")
    assert len(versions) == 40
    assert max(len(source.cites) for one in versions for source in one.sources) < 35
    shown = items.slot(memory.scope, "session:a", None)
    assert shown is not None
    assert "harbour 139" in shown.text
    cited = [f"user: {one.text}" for one in memory.explain(shown.id).cites]
    assert sorted(cited) == sorted(shown.text.split("\n")), "it cites what it tells, and nothing else"


def test_small_talk_after_the_end_changes_no_summary_and_is_read_once(memory: Memory) -> None:
    talk(memory, "a", "The wedding is in Lisbon.")
    first = memory.end_session()
    talk(memory, "a", "Thank you so much!", "You're welcome!")
    second = memory.end_session()
    assert first is not None
    assert second is not None
    assert first.summary is not None
    assert second.summary is not None
    assert (second.summary.id, second.summary.text) == (first.summary.id, first.summary.text)
    assert second.summary.metadata["upto"] == 3


def test_a_summary_that_is_made_late_has_the_days_of_the_session(open_memory, clock: SetClock) -> None:  # type: ignore[no-untyped-def]
    first = open_memory()
    day = clock()
    talk(first, "a", "The wedding is in Lisbon.")
    clock.advance(86_400)
    first.add_message("user", "The green paint needs 2 coats.")
    first.close()
    clock.advance(5 * 86_400)
    shown = str(open_memory().start_session("b"))
    later = day + timedelta(days=1)
    assert f"({day:%Y-%m-%d} to {later:%Y-%m-%d}, summary of session a)" in shown
    assert f'\n  "user, {later:%Y-%m-%d}: The green paint needs 2 coats."' in shown
    assert '\n  "user: The wedding is in Lisbon."' in shown


class Killed(BaseException):
    """As if the process had died here."""


def test_forgetting_a_summary_leaves_what_was_said(memory: Memory) -> None:
    talk(memory, "a", "The wedding is in Lisbon.")
    closing = memory.end_session()
    assert closing is not None
    assert closing.summary is not None
    memory.forget(closing.summary.id)
    memory.start_session("a")
    assert [one.text for one in memory.conversation.last(5)] == ["The wedding is in Lisbon."]


def test_a_session_whose_process_died_gets_its_summary_at_the_next_start(open_memory, clock: SetClock) -> None:  # type: ignore[no-untyped-def]
    first = open_memory()
    talk(first, "a", "The wedding is in Lisbon.")
    first.close()
    opening = open_memory().start_session("b")
    assert opening.summary is not None
    assert "Lisbon" in opening.summary.text


def test_going_on_with_a_session_replaces_its_summary(memory: Memory) -> None:
    talk(memory, "a", "The wedding is in Lisbon.")
    memory.end_session()
    memory.start_session("a")
    memory.add_message("user", "The band is called Heron.")
    memory.end_session()
    summaries = memory.list({"kind": "summary"})
    assert len(summaries) == 1
    assert "Heron" in summaries[0].text


def test_starting_another_session_ends_the_one_before(memory: Memory) -> None:
    talk(memory, "a", "The wedding is in Lisbon.")
    talk(memory, "b", "Hello.")
    assert [item.slot for item in memory.list({"kind": "summary"})] == ["session:a"]


def test_ending_twice_or_without_a_session_changes_nothing(memory: Memory) -> None:
    assert memory.end_session() is None
    memory.start_session("a")
    closing = memory.end_session()
    assert closing is not None
    assert closing.summary is None
    assert memory.end_session() is None


def test_a_message_without_a_session_begins_one(memory: Memory) -> None:
    memory.add_message("user", "Hello there.")
    assert [one.text for one in memory.conversation.last(5)] == ["Hello there."]


def test_a_task_that_succeeds_becomes_knowledge_and_counts_for_its_procedure(memory: Memory) -> None:
    memory.procedural.learn("deploy", ["test", "push"])
    memory.working.start("Deploy release 4.2", procedure="deploy")
    memory.working.step("the tests come first", "run tests", {"passed": 12})
    assert "run tests" in str(memory.recall("What have we done?"))
    kept = memory.working.finish(True, "release 4.2 is out")
    assert kept is not None
    item = memory.get(kept)
    assert item is not None
    assert item.text == "Successfully completed: Deploy release 4.2. Outcome: release 4.2 is out"
    found = memory.procedural.get("deploy")
    assert found is not None
    assert (found.tally.successes, found.tally.failures) == (1, 0)
    assert memory.working.task == ""


def test_a_task_that_fails_becomes_an_episode_and_counts_too(memory: Memory) -> None:
    memory.procedural.learn("deploy", ["test", "push"])
    memory.working.start("Deploy release 4.3", procedure="deploy")
    memory.working.finish(False, "the tests were red")
    found = memory.procedural.get("deploy")
    assert found is not None
    assert (found.tally.successes, found.tally.failures) == (0, 1)
    assert "the tests were red" in memory.episodic.recent(1)[0].text


def test_a_step_without_a_task_is_refused(memory: Memory) -> None:
    with pytest.raises(Conflict, match="call start first"):
        memory.working.step("think", "act", "see")
    with pytest.raises(Conflict, match="call start first"):
        memory.working.finish(True)
    with pytest.raises(NotFound, match="Known: none"):
        memory.working.start("Deploy", procedure="deploy")


def test_the_prompt_has_task_knowledge_and_history(memory: Memory) -> None:
    memory.remember("The deploy key is in the blue folder.")
    memory.add_message("user", "Please deploy it today.")
    memory.working.start("Find the deploy key")
    prompt = memory.prompt("Find the deploy key")
    assert prompt.startswith("Current task: Find the deploy key\n")
    assert "blue folder" in prompt
    assert "Please deploy it today." in prompt
    assert "Please deploy it today." not in bare(memory.prompt("Find the key", history=False))


def test_the_prompt_tells_nothing_twice(memory: Memory) -> None:
    memory.start_session("s")
    memory.working.start("Find the deploy key")
    memory.add_message("user", "Where is the deploy key of heron?")
    memory.add_message("assistant", "The deploy key of heron is in the blue folder.")
    for budget in (None, 300):
        prompt = memory.prompt("Find the deploy key of heron", budget=budget)
        assert prompt.count("Where is the deploy key of heron?") == 1
        assert prompt.count("in the blue folder") == 1
        assert "## Current session" in prompt


def test_the_prompt_tells_which_tool_was_called(memory: Memory) -> None:
    memory.episodic.record_tool_call("look_up", {"parcel": 7}, "It is in Lisbon.")
    assert 'assistant: "look_up {\\"parcel\\":7}"' in memory.prompt("Where is it?")


def bare(prompt: str) -> str:
    """Without what happened last, which recall shows in any case."""
    head, _, rest = prompt.partition("## Recent context")
    return head + rest.partition("\n\n")[2]


def test_why_says_what_makes_an_episode_important(memory: Memory) -> None:
    memory.episodic.record_decision("The import runs at 03:00.", "the backup is over by then")
    (episode,) = memory.list({"kind": "episode"})
    assert "important for: happened +0.10, decision +0.60" in str(memory.explain(episode.id))


def test_working_memory_takes_only_its_share_of_a_recall(memory: Memory) -> None:
    memory.remember("The deploy key is in the blue folder.")
    memory.working.start("Find the deploy key")
    for number in range(200):
        memory.working.step("I look on", f"open drawer {number} " + "x" * 2_000, "nothing but paper " * 20)
    found = memory.recall("Where is the deploy key?", budget=300)
    assert found.tokens <= 300
    assert "blue folder" in str(found)
    assert str(found).startswith("## Current session\n")
    assert memory.recall("Where is the deploy key?").tokens < 2_500


def test_the_prompt_tells_the_conversation_in_words_and_within_the_budget(memory: Memory) -> None:
    memory.start_session("s")
    for number in range(30):
        memory.add_message("user", f"Please look at file {number} and say what is in it.")
    prompt = memory.prompt("Look at file 7")
    assert "## Conversation so far" in prompt
    assert '- user: "Please look at file 29 and say what is in it."' in prompt
    assert "Message(" not in prompt
    short = memory.prompt("Look at file 7", budget=150)
    assert memory.store.services.count_tokens(short) <= 150
    assert "file 29" in short


def test_an_outcome_counts_for_no_other_task(memory: Memory) -> None:
    memory.procedural.learn("deploy", ["push"])
    memory.working.start("Deploy it", procedure="deploy")
    memory.working.start("Water the plants")
    memory.working.finish(False, "no water")
    found = memory.procedural.get("deploy")
    assert found is not None
    assert found.tally.failures == 0


@pytest.mark.parametrize("success", ["no", None, 1])
def test_success_is_a_yes_or_a_no(memory: Memory, success: object) -> None:
    memory.working.start("Water the plants")
    with pytest.raises(InvalidInput, match="success"):
        memory.working.finish(success)  # type: ignore[arg-type]
    assert memory.working.task == "Water the plants"


def test_the_same_action_twice_has_two_results(memory: Memory) -> None:
    memory.working.start("Test it")
    memory.working.step("", "run tests", {"passed": 1})
    memory.working.step("", "run tests", {"passed": 12})
    assert memory.working.results == {"run tests": {"passed": 1}, "run tests (2)": {"passed": 12}}


def test_different_tool_calls_are_different_episodes(memory: Memory) -> None:
    memory.episodic.record_tool_call("search", {"q": "cats"}, "three cats")
    memory.episodic.record_tool_call("delete_file", {"p": "old.txt"}, "gone")
    memory.episodic.record_tool_call("mail", {"to": "bob"}, "sent")
    assert [(event.kind, event.text, event.count) for event in memory.episodic.recent(9)] == [
        ("tool", "sent", 1),
        ("turn", 'mail {"to":"bob"}', 1),
        ("tool", "gone", 1),
        ("turn", 'delete_file {"p":"old.txt"}', 1),
        ("tool", "three cats", 1),
        ("turn", 'search {"q":"cats"}', 1),
    ]


@for_each("error", [None, 5, b"x"])
def test_an_error_is_a_text_or_an_exception(memory: Memory, error: object) -> None:
    with pytest.raises(InvalidInput):
        memory.episodic.record_error(error)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        memory.episodic.record_tool_call("t", 5, "r")  # type: ignore[arg-type]


def test_a_session_begins_where_nothing_can_be_written(open_memory, store: str) -> None:  # type: ignore[no-untyped-def]
    first = open_memory()
    talk(first, "a", "The wedding is in Lisbon.")
    first.close()
    reader = open_memory(settings={"stores": {"read_only": True}})
    assert reader.start_session("b").summary is None


def test_threads_that_speak_first_speak_in_one_session(memory: Memory) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: memory.add_message("user", f"Hello {n}."), range(8)))
    assert len(memory.sessions.list()) == 1


def test_a_summary_in_a_transcript_brings_nothing_forgotten_back(memory: Memory) -> None:
    memory.start_session("s")
    secret = memory.add_message("user", "We decided that the code word is zebrafish.").id
    for number in range(45):
        memory.add_message("user", f"Sort file {number} by date.")
    given = memory.conversation.export()
    assert "zebrafish" in memory.conversation.summary
    memory.forget(secret)
    memory.conversation.load(given)
    assert "zebrafish" not in memory.conversation.summary
    assert "zebrafish" not in str(memory.conversation.window())
