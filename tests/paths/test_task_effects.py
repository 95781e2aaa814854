"""Promises of durable tasks: an effect is never repeated or lost in silence."""

# ruff: noqa: SIM117  (a run is a with-block: what it raises comes from inside)

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from forked import fork_child, wait_for_child
from killing import QUICK, Calls, Killed, dies, killed_in
from memory_kit import Open

from engrain import Compensate, EffectNotPerformed, LeaseLost, Memory, Retry, Run, StepAmbiguous, TaskClaimed

# Of the two effects "mail" of the task "order", started by the user ana when the tests' clock began.
EFFECT_KEYS = ["bc85ce0579c2c7126f1aeaf65dcd5f85", "07b7845aabdc899fa2509516fcc12a21"]


def test_an_effect_has_one_stable_key(memory: Memory, clock: SetClock) -> None:
    keys: list[str] = []

    def send(to: str, *, token: str) -> None:
        keys.append(token)
        if len(keys) == 1:
            raise Killed

    def body(run: Run) -> None:
        run.effect("mail", send, "ana", key_as="token", on_ambiguous="retry")
        run.effect("mail", send, "ana", key_as="token", on_ambiguous="retry")

    killed_in(memory, clock, "order", body)
    with memory.task("order") as run:
        body(run)
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2]
    memory.tasks.prune(0)
    clock.advance()
    memory.tasks.prune(0)
    with memory.task("order") as run:  # another task, although it has the same name
        run.effect("mail", send, "ana", key_as="token")
    assert keys[3] not in keys[:3]


def test_the_key_of_an_effect_stays_the_same_in_every_release(memory: Memory) -> None:
    """A task that is continued after an upgrade must send the key that it sent before."""
    keys: list[str] = []
    with memory.task("order") as run:
        for _ in range(2):
            run.effect("mail", lambda token: keys.append(token), key_as="token")
    assert keys == EFFECT_KEYS


@pytest.mark.parametrize("end", [Killed(), OSError("timed out")])
def test_an_effect_whose_outcome_is_unknown_halts(
    memory: Memory, clock: SetClock, calls: Calls, end: BaseException
) -> None:
    def body(run: Run, end: BaseException | None) -> Any:
        run.step("plan", calls.noting("plan"))
        return run.effect("mail", calls.noting("mail", end), "ana")

    if isinstance(end, Killed):
        killed_in(memory, clock, "order", lambda run: body(run, end))
    else:
        with pytest.raises(StepAmbiguous, match="timed out"), memory.task("order") as run:
            body(run, end)
    for _ in range(2):
        with (
            pytest.raises(StepAmbiguous, match=r"memory.tasks.resolve\('order', 'mail'") as halted,
            memory.task("order") as run,
        ):
            body(run, None)
    assert (halted.value.task, halted.value.step, halted.value.occurrence) == ("order", "mail", 0)
    assert calls == ["plan", "mail"]
    assert memory.tasks.list()[0].status == "parked"
    assert memory.tasks.timeline("order").steps[1].status == "ambiguous"
    memory.tasks.resolve("order", "mail", "done", result={"id": 7}, note="it is in the outbox")
    with memory.task("order") as run:
        assert body(run, None) == {"id": 7}
    assert calls == ["plan", "mail"]
    assert "it is in the outbox" in (memory.tasks.timeline("order").steps[1].error or "")


def test_a_resolved_effect_is_done_again_or_left_out(memory: Memory, clock: SetClock, calls: Calls) -> None:
    for name, outcome, expected in (("a", "failed", ["mail", "mail"]), ("b", "skipped", ["mail"])):
        calls.clear()
        killed_in(memory, clock, name, lambda run: run.effect("mail", calls.noting("mail", Killed())))
        memory.tasks.resolve(name, "mail", outcome)  # type: ignore[arg-type]
        with memory.task(name) as run:
            assert run.effect("mail", calls.noting("mail", 1)) == (1 if outcome == "failed" else None)
        assert calls == expected


@pytest.mark.parametrize(("found", "sent"), [({"id": 1}, 1), (0, 1), (True, 1), (None, 2), (False, 2)])
def test_a_probe_finds_out(memory: Memory, clock: SetClock, calls: Calls, found: Any, sent: int) -> None:
    asked: list[Any] = []

    def probe(to: str, token: str) -> Any:
        asked.append((to, token))
        return found

    def body(run: Run, end: Any) -> Any:
        return run.effect("mail", calls.noting("mail", end), "ana", on_ambiguous=probe, key_as="token")

    killed_in(memory, clock, "order", lambda run: body(run, Killed()))
    with memory.task("order") as run:
        assert body(run, "again") == (found if sent == 1 else "again")
    assert len(calls) == sent
    assert [to for to, _ in asked] == ["ana"]
    assert asked[0][1] == memory.tasks.timeline("order").steps[0].key


def test_a_probe_that_fails_leaves_the_effect_ambiguous(memory: Memory, clock: SetClock, calls: Calls) -> None:
    killed_in(memory, clock, "order", lambda run: run.effect("mail", calls.noting("mail", Killed())))
    with pytest.raises(StepAmbiguous, match="mailbox is down"), memory.task("order") as run:
        run.effect("mail", calls.noting("mail"), on_ambiguous=calls.noting("probe", OSError("mailbox is down")))
    assert calls == ["mail", "probe"]


def test_an_effect_is_undone_and_done_afresh_or_left_out(memory: Memory, clock: SetClock, calls: Calls) -> None:
    keys: list[str] = []

    def charge(*, token: str) -> str:
        calls.append("charge")
        keys.append(token)
        if len(keys) % 2:
            raise Killed
        return "paid"

    for name, then, expected in (("a", "retry", "paid"), ("b", "skip", None)):
        calls.clear()
        keys.clear()
        policy = Compensate(calls.noting("refund"), then)  # type: ignore[arg-type]

        def body(run: Run, policy: Compensate = policy) -> Any:
            return run.effect("charge", charge, on_ambiguous=policy, key_as="token")

        killed_in(memory, clock, name, body)
        with memory.task(name) as run:
            assert body(run) == expected
        assert calls == (["charge", "refund", "charge"] if then == "retry" else ["charge", "refund"])
        assert len(set(keys)) == len(keys)


def test_what_was_undone_and_given_up_is_done_under_a_new_key_when_the_task_goes_on(memory: Memory) -> None:
    """A receiver that remembers the old key would take it for done, and it was undone."""
    done: list[str] = []
    undone: list[str] = []

    def charge(*, token: str) -> str:
        done.append(token)
        if len(done) < 3:
            raise TimeoutError("no answer")
        return "paid"

    def body(run: Run) -> Any:
        policy = Compensate(lambda *, token: undone.append(token))
        return run.effect("charge", charge, on_ambiguous=policy, key_as="token", retries=Retry(1, first=0))

    with pytest.raises(TimeoutError), memory.task("order") as run:
        body(run)
    assert undone == done
    with memory.task("order") as run:
        assert body(run) == "paid"
    assert done[2] not in undone


def test_an_effect_that_says_it_did_not_happen_is_tried_again(memory: Memory, calls: Calls) -> None:
    answers: list[Any] = [EffectNotPerformed("refused"), EffectNotPerformed("refused"), "sent"]

    def send() -> Any:
        calls.append("mail")
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(EffectNotPerformed), memory.task("order") as run:
        run.effect("mail", send)
    with memory.task("order") as run:
        assert run.effect("mail", send, retries=QUICK) == "sent"
    assert len(calls) == 3


def test_an_effect_broken_off_inside_a_run_is_not_taken_for_done(memory: Memory, calls: Calls) -> None:
    with pytest.raises(StepAmbiguous, match="broken off"), memory.task("order") as run:
        with pytest.raises(KeyboardInterrupt):
            run.effect("mail", calls.noting("mail", KeyboardInterrupt()))
    assert memory.tasks.list()[0].status == "parked"


def test_an_effect_whose_report_was_caught_is_not_taken_for_done(memory: Memory, calls: Calls) -> None:
    def body(run: Run) -> None:
        with suppress(Exception):  # as a broad handler in an agent's loop would
            run.effect("mail", calls.noting("mail", OSError("timed out")))
        run.step("after", calls.noting("after"))

    for _ in range(2):
        with pytest.raises(StepAmbiguous, match="timed out"), memory.task("order") as run:
            body(run)
    assert memory.tasks.list()[0].status == "parked"
    memory.tasks.resolve("order", "mail", "skipped")
    with memory.task("order") as run:
        body(run)
    assert calls == ["mail", "after"]


def test_a_report_may_be_caught_and_settled_at_once(memory: Memory, calls: Calls) -> None:
    with memory.task("order") as run:
        try:
            run.effect("mail", calls.noting("mail", OSError("timed out")))
        except StepAmbiguous as halted:
            memory.tasks.resolve("order", halted.step, "skipped")
    assert memory.tasks.list()[0].status == "done"


@pytest.mark.parametrize(("word", "sent"), [("done", 1), ("skipped", 1), ("failed", 2)])
@pytest.mark.parametrize("policy", ["probe", "undo"])
def test_a_word_that_comes_while_the_worker_finds_out_counts(
    memory: Memory, clock: SetClock, calls: Calls, policy: str, word: Any, sent: int
) -> None:
    def meanwhile() -> None:
        memory.tasks.resolve("order", "mail", word, result="seen" if word == "done" else None)

    on_ambiguous: Any = meanwhile if policy == "probe" else Compensate(meanwhile)
    with pytest.raises(StepAmbiguous), memory.task("order") as run:
        run.effect("mail", calls.noting("mail", OSError("timed out")))
    with memory.task("order") as run:
        found = run.effect("mail", calls.noting("mail", "sent"), on_ambiguous=on_ambiguous)
    assert found == {"done": "seen", "skipped": None, "failed": "sent"}[word]
    assert len(calls) == sent


def test_nobody_speaks_for_an_effect_that_is_under_way(memory: Memory, calls: Calls) -> None:
    def send() -> str:
        with pytest.raises(TaskClaimed, match="'mail' is under way"):
            memory.tasks.resolve("order", "mail", "failed")
        return "sent"

    with memory.task("order") as run:
        assert run.effect("mail", send) == "sent"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells when a process began")
def test_the_effect_of_a_dead_worker_is_settled_at_once(open_memory: Open) -> None:
    def work() -> None:
        with open_memory().task("order") as run:
            run.effect("mail", os._exit, 0)

    assert wait_for_child(fork_child(work)) == 0
    memory = open_memory()
    assert memory.tasks.resolve("order", "mail", "done", result=7).status == "done"
    assert [one.status for one in memory.tasks.recover(lambda run: run.effect("mail", dies, 0))] == ["done"]


def test_an_effect_that_did_not_happen_has_a_new_key_for_other_arguments(memory: Memory) -> None:
    keys: list[str] = []

    def charge(amount: int, *, token: str) -> None:
        keys.append(token)
        if len(keys) < 3:
            raise EffectNotPerformed("refused")

    for amount in (10, 10):
        with pytest.raises(EffectNotPerformed), memory.task("order") as run:
            run.effect("charge", charge, amount, key_as="token")
    with memory.task("order") as run:
        run.effect("charge", charge, 20, key_as="token")
    assert keys[0] == keys[1] != keys[2]


def test_a_worker_that_was_replaced_does_not_undo_what_its_successor_did(
    memory: Memory, clock: SetClock, calls: Calls
) -> None:
    def body(run: Run, end: Any) -> Any:
        return run.effect("charge", calls.noting("charge", end), on_ambiguous=Compensate(calls.noting("refund")))

    def replaced() -> None:
        clock.advance(31)
        with memory.task("order") as other:
            body(other, "paid")
        # The first worker has been stopped so long that it must look before it acts.
        slow.execution._step_journal.holder._until = 0.0  # type: ignore[union-attr]
        raise OSError("timed out")

    with pytest.raises(LeaseLost), memory.task("order") as slow:
        slow.effect("charge", replaced, on_ambiguous=Compensate(calls.noting("late refund")))
    assert calls == ["refund", "charge"]


@pytest.mark.parametrize("policy", ["halt", "retry"])
def test_an_effect_that_was_never_entered_did_not_happen(memory: Memory, calls: Calls, policy: Any) -> None:
    def send(to: str, subject: str) -> str:
        calls.append("mail")
        return str(len(to, subject)) if subject == "odd" else "sent"  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="subject"), memory.task("order") as run:
        run.effect("mail", send, "ana", on_ambiguous=policy)
    assert [one.status for one in memory.tasks.timeline("order").steps] == ["failed"]
    with memory.task("order") as run:
        assert run.effect("mail", send, "ana", "hello", on_ambiguous=policy) == "sent"
        with pytest.raises(StepAmbiguous):  # the same error from inside tells nothing
            run.effect("mail", send, "ana", "odd", on_ambiguous=policy)
        memory.tasks.resolve("order", "mail", "skipped", occurrence=1)
    assert calls == ["mail", "mail"]
