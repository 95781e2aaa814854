"""An agent's durable turn goes on where it was cut off: no reply is paid for twice, nothing is said or done twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from agent_kit import Scripted, says, told
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from killing import Calls, Killed

from engrain import AgentWithMemory, EffectNotPerformed, InputChanged, Memory, StepAmbiguous, TaskEnded, tool
from engrain.core.errors import ModelFailed
from engrain.core.model.messages import Message
from engrain.tiers.conversation import ConversationMemory

Open = Callable[..., Memory]
TASK = "Where is parcel 7?"


@pytest.fixture
def memory(open_memory: Open) -> Memory:
    return open_memory(embedder=HashEmbedder())


def rows(memory: Memory, session: str = "s") -> list[Message]:
    return memory.session(session).conversation.last(100)


def look_up(parcel: int) -> str:
    """Say where a parcel is."""
    return f"{parcel} is in Lisbon"


def agent_of(memory: Memory, model: Scripted, *tools: Any) -> AgentWithMemory:
    return AgentWithMemory(memory, model, tools or [look_up], session="s")


def dies(_: Any) -> str:
    raise Killed


def test_a_durable_turn_says_what_a_plain_one_says(open_memory: Open) -> None:
    logs = []
    for user, task_id in (("plain", None), ("durable", "t")):
        memory = open_memory(embedder=HashEmbedder(), user=user)
        model = Scripted(says("I look.", ("look_up", {"parcel": 7})), "In Lisbon.")
        answer = agent_of(memory, model).run(TASK, task_id=task_id)
        assert (answer.text, answer.steps, answer.replayed) == ("In Lisbon.", 2, 0)
        logs.append((told(rows(memory)), [item.text for item in memory.list({"kind": "fact"})]))
    assert logs[0] == logs[1]


def test_a_turn_that_is_done_is_replayed_and_costs_nothing(open_memory: Open) -> None:
    memory = open_memory(embedder=HashEmbedder())
    first = agent_of(memory, Scripted(says("", ("look_up", {"parcel": 7})), "In Lisbon.")).run(TASK, task_id="t")
    before = told(rows(memory))
    items = len(memory.list(limit=1_000))
    memory.close()
    memory, model = open_memory(embedder=HashEmbedder()), Scripted()
    again = agent_of(memory, model).run(TASK, task_id="t")
    assert model.asked == []
    assert (again.text, again.calls, again.steps, again.replayed) == (first.text, first.calls, 2, 2)
    assert again.tokens_in == first.tokens_in == 20
    assert told(rows(memory)) == before
    assert len(memory.list(limit=1_000)) == items
    assert memory.tasks.list()[0].outcome == "In Lisbon."


def test_to_replay_a_turn_that_is_done_disturbs_nothing(memory: Memory) -> None:
    agent_of(memory, Scripted("In Lisbon.")).run(TASK, task_id="t")
    memory.start_session("tuesday")
    memory.working.start("Something else")
    agent_of(memory, Scripted()).run(TASK, task_id="t")
    assert (memory.conversation.session, memory.working.task) == ("tuesday", "Something else")


@pytest.mark.parametrize("point", range(4))
def test_what_is_recorded_is_not_done_again(
    memory: Memory, calls: Calls, point: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off before the first reply, in the tool, before the second reply, and while the answer is kept."""
    replies: list[Any] = [says("I look.", ("look", {"parcel": 7})), "In Lisbon."]
    asked = 0

    def reply(ask: Any) -> Any:
        nonlocal asked
        if (point, asked) in ((0, 0), (2, 1)):
            raise Killed
        asked += 1
        return replies[asked - 1]

    def look(parcel: int) -> str:
        if point == 1 and "killed" not in calls:
            calls.append("killed")
            raise Killed
        calls.append("look")
        return "Lisbon"

    model = Scripted(*[reply] * 6)
    agent = agent_of(memory, model, look)
    if point == 3:
        keep = ConversationMemory.append
        fails = lambda *a, **k: keep(*a, **k) if asked < 2 else dies(0)  # noqa: E731
        monkeypatch.setattr(ConversationMemory, "append", fails)
    with pytest.raises(Killed):
        agent.run(TASK, task_id="t")
    if point == 3:
        monkeypatch.undo()
    point = -1
    answer = agent.run(TASK, task_id="t")
    assert (answer.text, answer.steps, asked) == ("In Lisbon.", 2, 2)
    assert calls.count("look") == 1
    assert told(rows(memory)) == [
        ("user", TASK),
        ("assistant", "I look.<look {'parcel': 7}>"),
        ("tool", "Lisbon"),
        ("assistant", "In Lisbon."),
    ]
    assert memory.tasks.list()[0].status == "done"


def test_another_question_is_another_task(memory: Memory) -> None:
    with pytest.raises(Killed):
        agent_of(memory, Scripted(dies)).run(TASK, task_id="t")
    model = Scripted()
    with pytest.raises(InputChanged):
        agent_of(memory, model).run("Where is parcel 8?", task_id="t")
    assert model.asked == []
    assert told(rows(memory)) == [("user", TASK)]


def test_a_model_that_failed_is_asked_again_and_only_for_what_is_missing(memory: Memory) -> None:
    model = Scripted(says("", ("look_up", {"parcel": 7})), ModelFailed("no credit"), "In Lisbon.")
    agent = agent_of(memory, model)
    with pytest.raises(ModelFailed):
        agent.run(TASK, task_id="t")
    assert memory.tasks.list()[0].status == "parked"
    answer = agent.run(TASK, task_id="t")
    assert (answer.text, answer.replayed, len(model.asked)) == ("In Lisbon.", 1, 3)
    assert [one.role for one in model.asked[2].messages] == ["user", "assistant", "tool"]


def test_a_cancelled_task_stays_so(memory: Memory) -> None:
    with pytest.raises(Killed):
        agent_of(memory, Scripted(dies)).run(TASK, task_id="t")
    memory.tasks.cancel("t")
    with pytest.raises(TaskEnded):
        agent_of(memory, Scripted()).run(TASK, task_id="t")


def test_a_tool_that_failed_is_not_called_again(memory: Memory, calls: Calls) -> None:
    def look(parcel: int) -> str:
        calls.append("look")
        raise ConnectionError("down")

    agent = agent_of(memory, Scripted(says("", ("look", {"parcel": 7}), ("nobody", {})), dies), look)
    with pytest.raises(Killed):
        agent.run(TASK, task_id="t")
    answer = agent_of(memory, Scripted("I cannot."), look).run(TASK, task_id="t")
    assert answer.text == "I cannot."
    assert [(one.result, one.failed) for one in answer.calls] == [
        ("ConnectionError: down", True),
        ("There is no tool 'nobody'. Known: look.", True),
    ]
    assert calls == ["look"]


def test_an_effect_that_was_cut_off_halts_and_is_resolved(memory: Memory, calls: Calls) -> None:
    @tool(effect=True)
    def mail(to: str) -> str:
        """Send a mail."""
        calls.append(to)
        raise TimeoutError("no answer")

    model = Scripted(says("", ("mail", {"to": "ana"})), "Sent.")
    agent = agent_of(memory, model, mail)
    with pytest.raises(StepAmbiguous, match=r"memory\.tasks\.resolve\('t', 'mail\[1\.1\]', \"done\"\)") as halted:
        agent.run("Mail Ana.", task_id="t")
    assert memory.tasks.list()[0].status == "parked"
    with pytest.raises(StepAmbiguous):
        agent.run("Mail Ana.", task_id="t")
    memory.tasks.resolve("t", halted.value.step, "done", result="seen in the outbox")
    answer = agent.run("Mail Ana.", task_id="t")
    assert (answer.text, answer.calls[0].result, answer.calls[0].failed) == ("Sent.", "seen in the outbox", False)
    assert calls == ["ana"]
    assert len(model.asked) == 2


@pytest.mark.parametrize(("outcome", "times", "result"), [("failed", 2, "sent"), ("skipped", 1, "")])
def test_an_effect_is_done_again_or_left_out_at_a_persons_word(
    memory: Memory, calls: Calls, outcome: Any, times: int, result: str
) -> None:
    @tool(effect=True)
    def mail(to: str) -> str:
        calls.append(to)
        if len(calls) == 1:
            raise TimeoutError("no answer")
        return "sent"

    agent = agent_of(memory, Scripted(says("", ("mail", {"to": "ana"})), "Well."), mail)
    with pytest.raises(StepAmbiguous):
        agent.run("Mail Ana.", task_id="t")
    memory.tasks.resolve("t", "mail[1.1]", outcome)
    assert agent.run("Mail Ana.", task_id="t").calls[0].result == result
    assert len(calls) == times


def test_an_effect_that_certainly_did_not_happen_is_a_failed_result(memory: Memory, calls: Calls) -> None:
    @tool(effect=True)
    def mail(to: str) -> str:
        calls.append(to)
        raise EffectNotPerformed("the line was busy")

    agent = agent_of(memory, Scripted(says("", ("mail", {"to": "ana"})), dies), mail)
    with pytest.raises(Killed):
        agent.run("Mail Ana.", task_id="t")
    answer = agent_of(memory, Scripted("Not sent."), mail).run("Mail Ana.", task_id="t")
    assert (answer.text, answer.calls[0].failed) == ("Not sent.", True)
    assert calls == ["ana"]


def test_working_memory_travels_with_the_task(open_memory: Open) -> None:
    memory = open_memory(embedder=HashEmbedder())

    def look(parcel: int) -> str:
        memory.working.set_variable("colour", "blue")
        return "Lisbon"

    with pytest.raises(Killed):
        agent_of(memory, Scripted(says("I look.", ("look", {"parcel": 7})), dies), look).run(TASK, task_id="t")
    assert not memory.working.task
    memory.close()
    memory = open_memory(embedder=HashEmbedder())
    seen: list[Any] = []

    def looks(_: Any) -> str:
        working = memory.working
        seen.append((working.task, working.scratchpad, working.results, working.get_variable("colour")))
        return "Done."

    agent_of(memory, Scripted(looks), look).run(TASK, task_id="t")
    assert seen == [(TASK, ("I look.",), {'look {"parcel": 7}': "Lisbon"}, "blue")]
    assert not memory.working.task


def test_what_was_recalled_is_not_in_the_journal(memory: Memory) -> None:
    memory.remember("The harbour office opens at nine.")
    model = Scripted(says("", ("recall", {"question": "harbour office"})), dies)
    agent = AgentWithMemory(memory, model, memory_tools=True, session="s")
    with pytest.raises(Killed):
        agent.run("When does it open?", task_id="t")
    assert "opens at nine" in model.asked[1].messages[-1].text
    model.lines = ["At nine."]
    agent.run("When does it open?", task_id="t")
    assert "opens at nine" in model.asked[2].messages[-1].text, "looked up anew"
    timeline = memory.tasks.timeline("t")
    assert not [step for step in timeline.steps if "opens at nine" in (step.result or "")]
    assert "opens at nine" not in json.dumps(told(rows(memory)))


def test_what_a_model_remembered_is_kept_once_in_all_lives(memory: Memory) -> None:
    model = Scripted(says("", ("remember", {"text": "The ferry leaves at ten."})), dies)
    agent = AgentWithMemory(memory, model, memory_tools=True, session="s")
    with pytest.raises(Killed):
        agent.run("When does it leave?", task_id="t")
    (before,) = memory.list({"kind": "fact"})
    model.lines = ["At ten."]
    agent.run("When does it leave?", task_id="t")
    (after,) = [item for item in memory.list({"kind": "fact"}) if "ferry" in item.text]
    assert (after.id, after.sources) == (before.id, before.sources)
    assert after.sources[0].cites[0].item == next(one.id for one in rows(memory) if one.calls)


def test_an_answer_that_was_overtaken_is_given_anew_in_every_life(open_memory: Open) -> None:
    mine, other = open_memory(embedder=HashEmbedder()), open_memory(embedder=HashEmbedder())

    def interrupted(_: Any) -> str:
        other.add_message("user", "I mean parcel 8.", session="s")
        return "7 is in Lisbon."

    agent = agent_of(mine, Scripted(interrupted, dies))
    with pytest.raises(Killed):
        agent.run(TASK, task_id="t")
    model = Scripted("8 is in Porto.")
    answer = agent_of(mine, model).run(TASK, task_id="t")
    assert (answer.text, answer.steps, answer.replayed, len(model.asked)) == ("8 is in Porto.", 2, 1, 1)
    again = agent_of(mine, Scripted()).run(TASK, task_id="t")
    assert (again.text, again.steps) == ("8 is in Porto.", 2)
    assert [one.text for one in rows(mine)] == [TASK, "I mean parcel 8.", "8 is in Porto."]


def test_it_goes_on_in_the_session_in_which_it_began(open_memory: Open) -> None:
    memory = open_memory(embedder=HashEmbedder())
    memory.start_session("monday")
    with pytest.raises(Killed):
        AgentWithMemory(memory, Scripted(dies)).run(TASK, task_id="t")
    memory.close()
    memory = open_memory(embedder=HashEmbedder())
    memory.start_session("tuesday")
    assert AgentWithMemory(memory, Scripted("In Lisbon.")).run(TASK, task_id="t").session == "monday"
    assert [one.text for one in rows(memory, "monday")] == [TASK, "In Lisbon."]
    assert rows(memory, "tuesday") == []


def test_a_task_of_the_same_name_later_is_another_one(memory: Memory, clock: SetClock) -> None:
    agent = agent_of(memory, Scripted("One.", "Two."))
    agent.run(TASK, task_id="daily")
    clock.advance(60)
    assert memory.tasks.prune(0) == 1
    assert agent.run(TASK, task_id="daily").text == "Two."
    assert [one.text for one in rows(memory)] == [TASK, "One.", TASK, "Two."]
