"""Procedural memory beside a simple list of versions: whatever is learnt, tried or forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path

from engrain_conformance.clock import SetClock
from engrain_conformance.reference import ReferenceStore
from episodic_kit import ANA, opened
from examples import up_to
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engrain.core.model.plans import Forget, Plan
from engrain.core.model.procedures import estimate_success_rate
from engrain.tiers.procedural import ProceduralMemory

NAMES = ("deploy the service", "water the plants")
STEPS = (("run the tests",), ("run the tests", "push the tag"), ("pour slowly",))


@dataclass
class Version:
    id: str
    number: int
    steps: tuple[str, ...]
    current: bool = True
    trials: dict[str, bool] = field(default_factory=dict)

    @property
    def tally(self) -> tuple[int, int]:
        worked = sum(self.trials.values())
        return worked, len(self.trials) - worked


class Skills(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = SetClock()
        kit = opened("reference", Path(), self.clock)
        assert isinstance(kit.items, ReferenceStore)
        self.kit = changed(kit, outcomes=kit.items.outcomes)
        self.skills = ProceduralMemory(self.kit, ANA)
        self.known: dict[str, list[Version]] = {name: [] for name in NAMES}

    @property
    def all(self) -> list[Version]:
        return [one for versions in self.known.values() for one in versions]

    @rule(name=st.sampled_from(NAMES), steps=st.sampled_from(STEPS))
    def learn(self, name: str, steps: tuple[str, ...]) -> None:
        self.clock.advance()
        id = self.skills.learn(name, list(steps))
        versions = self.known[name]
        now = next((one for one in versions if one.current), None)
        if now and now.steps == steps:
            assert id == now.id, "the same again is no new version"
            return
        assert id not in [one.id for one in self.all]
        if now:
            now.current = False
        versions.append(Version(id, versions[-1].number + 1 if versions else 1, steps))

    @precondition(lambda self: self.all)
    @rule(data=st.data(), task=st.sampled_from("abcdef"), success=st.booleans())
    def use(self, data: st.DataObject, task: str, success: bool) -> None:
        self.clock.advance()
        one = data.draw(st.sampled_from(self.all))
        assert self.skills.count_trial(one.id, task, success) == (task not in one.trials), "a task counts once"
        one.trials.setdefault(task, success)

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.all))
        self.kit.items.apply(Plan(ANA, (Forget(gone.id),)))
        self.known = {name: [one for one in some if one is not gone] for name, some in self.known.items()}

    @invariant()
    def the_versions_stand_with_their_records(self) -> None:
        for name, versions in self.known.items():
            found = self.skills.versions(name)
            assert [(one.id, one.version, one.steps, one.current) for one in found] == [
                (one.id, one.number, one.steps, one.current) for one in versions
            ]
            assert [(one.tally.successes, one.tally.failures) for one in found] == [one.tally for one in versions]

    @invariant()
    def the_present_one_is_found_by_name_and_number(self) -> None:
        held = {name: [one for one in versions if one.current] for name, versions in self.known.items()}
        assert self.skills.names() == [name for name in NAMES if held[name]]
        for name, versions in self.known.items():
            now = self.skills.get(name)
            assert [now.id if now else None] == ([one.id for one in held[name]] or [None])
            if now:
                told = {trial.task: trial.success for trial in self.skills.trials(name)}
                assert told == held[name][0].trials
            for one in versions:
                found = self.skills.get(name, one.number)
                assert found is not None
                assert found.id == one.id

    @invariant()
    def the_best_is_the_one_that_did_better(self) -> None:
        for name, versions in self.known.items():
            best = self.skills.best(name)
            wanted = max(versions, key=lambda one: (estimate_success_rate(*one.tally), one.number), default=None)
            assert (best and best.id) == (wanted and wanted.id)


TestSkills = Skills.TestCase
TestSkills.settings = settings(max_examples=up_to(25), stateful_step_count=20, deadline=None)
