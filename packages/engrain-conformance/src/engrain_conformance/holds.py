"""Tests of legal holds: nothing is removed until the last reason is released."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from engrain.core.errors import Conflict, InvalidInput, OnHold
from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.model.tasks import Claim, TaskEnd
from engrain.ports.erasure import AuditLog, Erasing
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, BEN, add, fact, forget
from engrain_conformance.erasure import USER, add_episode, list_texts, run_erasure
from engrain_conformance.suite import Suite


class HoldSuite(Suite):
    def test_a_hold_refuses_and_hides(self, store: Any, erasing: Erasing) -> None:
        (id,) = add(store, fact("Ana lives in Lima."))
        held = erasing.hold(USER, "case-7")
        assert erasing.hold(USER, "case-7") == held
        with pytest.raises(OnHold):
            forget(store, id)
        with pytest.raises(OnHold):
            erasing.begin("e0", Subject(ANA, "id", id))
        assert list_texts(store) == {"Ana lives in Lima."}
        with pytest.raises(OnHold):
            erasing.begin("e1", USER)
        assert [hold.hidden for hold in erasing.holds()] == [True]
        assert list_texts(store) == set()
        assert store.get_many(ANA, [id]) == []
        with pytest.raises(OnHold):
            add(store, fact("Nothing comes in."))
        add(store, fact("Ben goes on."), scope=BEN)
        assert erasing.release(USER)
        assert not erasing.release(USER)
        assert list_texts(store) == {"Ana lives in Lima."}
        assert run_erasure(erasing, USER)["item"] == 1

    @pytest.mark.parametrize("by", ["user", "id"])
    def test_a_hold_that_comes_before_anything_went_ends_the_erasure(
        self, store: Any, erasing: Erasing, audit: AuditLog, by: str
    ) -> None:
        (id,) = add(store, fact("Ana lives in Lima."))
        if erasing.begin("e1", USER if by == "user" else Subject(ANA, "id", id)).stage != "blocked":
            pytest.skip("this store takes the rows as it begins")
        erasing.hold(USER, "case-7")
        with pytest.raises(OnHold, match="case-7"):
            erasing.delete_rows("e1")
        assert erasing.running() == []
        assert [hold.hidden for hold in erasing.holds()] == [by == "user"]
        assert [entry.what for entry in audit.entries(0, 9)] == ["hold", "erase_refused"]
        erasing.release(USER)
        assert list_texts(store) == {"Ana lives in Lima."}

    def test_the_end_of_another_erasure_shows_nothing_that_is_hidden(self, store: Any, erasing: Erasing) -> None:
        gone, _ = add(store, fact("Ana lives in Lima."), fact("Ana drinks tea."))
        erasing.begin("e1", Subject(ANA, "id", gone))
        erasing.delete_rows("e1")
        erasing.hold(USER, "case-7")
        with pytest.raises(OnHold):
            erasing.begin("e2", USER)
        assert erasing.anonymize("e1").stage == "anonymized"
        assert list_texts(store) == set()

    def test_a_hold_lasts_until_its_last_reason_is_released(
        self, store: Any, erasing: Erasing, audit: AuditLog
    ) -> None:
        add(store, fact("Ana lives in Lima."))
        first = erasing.hold(USER, "case-7")
        both = erasing.hold(USER, "case-8")
        assert (both.reasons, both.at) == (("case-7", "case-8"), first.at)
        assert erasing.hold(USER, "case-7") == both
        with pytest.raises(InvalidInput, match="code word such as case-7"):
            erasing.hold(USER, "case 9")
        with pytest.raises(OnHold):
            erasing.begin("e0", USER)
        with pytest.raises(Conflict, match="case-7, case-8"):
            erasing.release(USER)
        assert not erasing.release(USER, "case-9")
        assert erasing.release(USER, "case-7")
        assert [(hold.reasons, hold.hidden) for hold in erasing.holds()] == [(("case-8",), True)]
        assert list_texts(store) == set()
        assert erasing.release(USER)
        assert erasing.holds() == []
        assert list_texts(store) == {"Ana lives in Lima."}
        told = [(entry.what, entry.details) for entry in audit.entries(0, 9)]
        assert told == [
            ("hold", {"reason": "case-7"}),
            ("hold", {"reason": "case-8"}),
            ("erase_refused", {"by": "user", "reasons": ["case-7", "case-8"]}),
            ("release", {"reason": "case-7"}),
            ("release", {"reason": "case-8"}),
        ]
        assert audit.verify()

    def test_several_reasons_are_released_all_or_none(self, store: Any, erasing: Erasing, audit: AuditLog) -> None:
        add(store, fact("Ana lives in Lima."))
        for reason in ("case-7", "case-8", "case-9"):
            erasing.hold(USER, reason)
        with pytest.raises(OnHold):
            erasing.begin("e0", USER)
        written = len(audit.entries(0, 9))
        assert not erasing.release(USER, ["case-7", "case-6"])
        assert not erasing.release(USER, [])
        assert [hold.reasons for hold in erasing.holds()] == [("case-7", "case-8", "case-9")]
        assert len(audit.entries(0, 9)) == written
        assert erasing.release(USER, ["case-9", "case-7"])
        assert [(hold.reasons, hold.hidden) for hold in erasing.holds()] == [(("case-8",), True)]
        erasing.hold(USER, "case-7")
        assert erasing.release(USER, ("case-7", "case-8"))
        assert erasing.holds() == []
        assert list_texts(store) == {"Ana lives in Lima."}
        told = [entry.details["reason"] for entry in audit.entries(0, 99) if entry.what == "release"]
        assert told == ["case-7", "case-9", "case-8", "case-7"]
        assert audit.verify()

    def test_a_refusal_names_the_command_that_releases(self, store: Any, erasing: Erasing) -> None:
        (id,) = add(store, fact("Ana lives in Lima."))
        erasing.hold(USER, "case-7")
        erasing.hold(USER, "case-8")
        command = "--user ana --release --reason case-7 --reason case-8$"
        for refused in (lambda: forget(store, id), lambda: erasing.begin("e0", Subject(ANA, "id", id))):
            with pytest.raises(OnHold, match=command):
                refused()
        with pytest.raises(OnHold, match=command):
            erasing.begin("e1", USER)

    def test_the_users_of_a_store_are_known_also_while_they_are_hidden(self, store: Any, erasing: Erasing) -> None:
        assert erasing.users() == []
        add(store, fact("Ana lives in Lima."))
        add(store, fact("Ana drives."), scope=Scope(ANA.tenant, "another", ANA.user))
        add(store, fact("Of nobody."), scope=Scope("acme"))
        erasing.hold(USER, "case-7")
        with pytest.raises(OnHold):
            erasing.begin("e1", USER)
        assert [user.parts() for user in erasing.users()] == [USER.parts()]
        erasing.release(USER)
        run_erasure(erasing, USER)
        assert erasing.users() == []

    def test_a_refusal_says_what_is_hidden_and_is_recorded(self, store: Any, erasing: Erasing, audit: AuditLog) -> None:
        (id,) = add(store, fact("Ana lives in Lima."))
        erasing.hold(USER, "case-7")
        one = Subject(ANA, "id", id)
        with pytest.raises(OnHold) as part:
            erasing.begin("e0", one)
        with pytest.raises(OnHold) as whole:
            erasing.begin("e1", USER)
        assert "shown to nobody" not in str(part.value)
        assert "shown to nobody" in str(whole.value)
        _, *refused = audit.entries(0, 9)
        assert [entry.what for entry in refused] == ["erase_refused", "erase_refused"]
        assert [entry.subject for entry in refused] == [erasing.hash_subject(one), erasing.hash_subject(USER)]
        assert audit.verify()

    def test_nothing_of_a_held_user_goes_by_itself(self, store: Any, erasing: Erasing, clock: SetClock) -> None:
        for scope in (ANA, BEN):
            add_episode(store, scope, "old", raw=True)
            done = store.journal.claim(Claim(scope, "task", "worker", 30))
            store.journal.end(done, TaskEnd("done", "fine"))
        erasing.hold(USER, "case-7")
        for scope in (ANA, BEN):
            add_episode(store, scope, "new")  # would be joined with the other
        later = clock.advance(30 * 86_400)
        assert (store.episodes.expire(later), store.journal.prune(later)) == (1, 1)
        assert store.episodes.trim(ANA, "monday", 1) == 0
        assert [episode.id for episode in store.episodes.recent(ANA, None, 9, START)] == ["old", "new"]
        assert store.episodes.raw(ANA, "old", START) == "At length."
        assert store.journal.task(ANA, "task")
        assert store.episodes.recent(BEN, None, 9, START) == []
        assert store.journal.task(BEN, "task") is None
        for refused in (
            lambda: store.episodes.remove(ANA, ["old"]),
            lambda: store.journal.remove(ANA, "task"),
            lambda: erasing.begin("e1", Subject(ANA, "session", "monday")),
        ):
            with pytest.raises(OnHold):
                refused()
        erasing.release(USER)
        assert (store.episodes.expire(later), store.journal.prune(later)) == (2, 1)

    def test_what_is_hidden_is_kept_whole(self, store: Any, erasing: Erasing, clock: SetClock) -> None:
        add_episode(store, ANA, "old", raw=True)
        store.journal.claim(Claim(ANA, "task", "worker", 30, deadline=START + timedelta(hours=1)))
        erasing.hold(USER, "case-7")
        with pytest.raises(OnHold):
            erasing.begin("e1", USER)
        later = clock.advance(30 * 86_400)
        assert (store.episodes.expire(later), store.journal.expire(later), store.journal.prune(later)) == (0, [], 0)
        erasing.release(USER)
        assert [episode.id for episode in store.episodes.recent(ANA, None, 9, START)] == ["old"]
        assert store.episodes.raw(ANA, "old", START) == "At length."
        assert store.journal.task(ANA, "task").status == "running"
