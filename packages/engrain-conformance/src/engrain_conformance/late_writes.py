"""Tests of writes that arrive after their subject was erased."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from engrain.core.clock import from_micros
from engrain.core.errors import BeingErased
from engrain.core.identity import Scope
from engrain.core.model.erasure import ErasedSubject, Erasure, Subject
from engrain.core.model.items import Draft, Source
from engrain.core.model.plans import Add, Forget, Plan
from engrain.core.model.queries import ListQuery
from engrain.core.model.rows import erased_to_row
from engrain.core.model.sessions import EpisodeDraft
from engrain.ports.erasure import Erasing
from engrain_conformance.drafts import ANA, BEN, add, append_messages, fact, forget, message
from engrain_conformance.episodes import episode
from engrain_conformance.suite import Suite

USER = Subject(Scope(ANA.tenant, None, ANA.user), "user", ANA.user or "")
OTHER_AGENT = Scope(ANA.tenant, "another agent", ANA.user)
_STAGES: tuple[Callable[[Erasing], Any], ...] = (
    lambda erasing: erasing.delete_rows("e1"),
    lambda erasing: erasing.anonymize("e1"),
    lambda erasing: erasing.complete("e1", {"receipt": "e1"}),
)


def _write(store: Any, draft: Draft, began: int, scope: Scope = ANA) -> None:
    store.apply(Plan(scope, (Add(draft),), began=began))


def _refused(store: Any, draft: Draft, began: int, scope: Scope = ANA) -> bool:
    with pytest.raises(BeingErased):
        _write(store, draft, began, scope)
    return not store.page(ListQuery(scope, limit=10))


def _still_there(erasing: Erasing, subject: Subject) -> Mapping[str, int]:
    """By the second look that is taken long after."""
    done = erasing.erased(subject)
    assert done is not None
    return erasing.count_remaining(Erasure(done.receipt, done.subject_hash, done.by, "anonymized", done.at))


class LateWriteSuite(Suite):
    def test_who_was_erased_in_another_store_may_write_to_a_copy_of_it(self, store: Any, erasing: Erasing) -> None:
        at = from_micros(store.current_time()) + timedelta(hours=1)
        store.restore([erased_to_row(ErasedSubject(erasing.hash_subject(USER), "user", at, "e1"))])
        _write(store, fact("Back again."), store.current_time())
        assert [item.text for item in store.page(ListQuery(ANA, limit=10))] == ["Back again."]

    @pytest.mark.parametrize("scope", [ANA, OTHER_AGENT])
    def test_a_write_that_began_before_its_user_was_erased_never_comes_in(
        self, store: Any, erasing: Erasing, scope: Scope
    ) -> None:
        _write(store, fact("From before."), store.current_time())
        began = store.current_time()
        erasing.begin("e1", USER)
        assert _refused(store, fact("Late."), began, scope)
        for stage in _STAGES:
            stage(erasing)
            assert _refused(store, fact("Late."), began, scope)
        assert store.scopes() == []
        _write(store, fact("New."), store.current_time(), scope)
        with pytest.raises(BeingErased):
            _write(store, fact("Late."), began, scope)
        assert [item.text for item in store.page(ListQuery(scope, limit=10))] == ["New."]

    def test_a_user_who_comes_back_while_the_proof_is_made_is_kept(self, store: Any, erasing: Erasing) -> None:
        _write(store, fact("From before."), store.current_time())
        erasing.begin("e1", USER)
        for stage in _STAGES[:2]:
            stage(erasing)
        began = store.current_time()
        _STAGES[2](erasing)
        _write(store, fact("New."), began)
        assert [item.text for item in store.page(ListQuery(ANA, limit=10))] == ["New."]

    def test_a_write_of_anybody_else_goes_on(self, store: Any, erasing: Erasing) -> None:
        _write(store, fact("From before."), store.current_time())
        began = store.current_time()
        erasing.begin("e1", USER)
        for stage in _STAGES:
            stage(erasing)
        _write(store, fact("Ben's."), began, BEN)
        assert [item.text for item in store.page(ListQuery(BEN, limit=10))] == ["Ben's."]

    @pytest.mark.parametrize(
        ("subject", "late", "free"),
        [
            (Subject(ANA, "session", "monday"), message("Late."), message("Free.", session="tuesday")),
            (
                Subject(ANA, "source", "https://bad"),
                fact("Late.", source=Source("https://bad", "web")),
                fact("Free.", source=Source("https://good", "web")),
            ),
        ],
    )
    def test_so_it_is_with_a_session_and_a_source(
        self, store: Any, erasing: Erasing, subject: Subject, late: Draft, free: Draft
    ) -> None:
        began = store.current_time()
        erasing.begin("e1", subject)
        for stage in _STAGES:
            stage(erasing)
            assert _refused(store, late, began)
        _write(store, free, began)
        _write(store, late, store.current_time())
        assert {item.text for item in store.page(ListQuery(ANA, limit=10))} == {free.text, late.text}

    def test_what_happened_in_an_erased_session_is_too_late_as_well(self, store: Any, erasing: Erasing) -> None:
        began = store.current_time()
        erasing.begin("e1", Subject(ANA, "session", "monday"))
        for stage in _STAGES:
            stage(erasing)
        with pytest.raises(BeingErased):
            store.apply(Plan(ANA, (), episodes=(EpisodeDraft(episode("a", session="monday")),), began=began))

    @pytest.mark.parametrize(
        ("subject", "said"),
        [
            (Subject(ANA, "session", "monday"), message("It snowed.")),
            (Subject(ANA, "source", "https://bad"), fact("Better.", source=Source("https://bad", "web"))),
        ],
    )
    def test_what_is_said_of_a_part_before_its_erasure_ends_is_new(
        self, store: Any, erasing: Erasing, subject: Subject, said: Draft
    ) -> None:
        _write(store, said, store.current_time())
        erasing.begin("e1", subject)
        for stage in _STAGES[:2]:
            stage(erasing)
        began = store.current_time()
        _write(store, said, began)
        _STAGES[2](erasing)
        done = erasing.erased(subject)
        assert done is not None
        assert done.at < store.page(ListQuery(ANA, limit=1))[0].recorded_at
        assert not any(_still_there(erasing, subject).values())
        _write(store, said, began)

    def test_a_session_that_began_anew_and_was_forgotten_is_no_trace_of_the_erased_one(
        self, store: Any, erasing: Erasing
    ) -> None:
        monday = Subject(ANA, "session", "monday")
        append_messages(store, ANA, "monday", [message("It rained.")], None)
        erasing.begin("e1", monday)
        for stage in _STAGES:
            stage(erasing)
        append_messages(store, ANA, "monday", [message("It snowed.")], None)
        store.advance(ANA, "monday", "extract", 1)
        forget(store, store.last(ANA, "monday", 1)[0].id)
        assert not any(_still_there(erasing, monday).values())

    def test_the_notes_of_a_run_go_with_the_names(self, store: Any, erasing: Erasing) -> None:
        _write(store, fact("From before."), store.current_time())
        erasing.begin("e1", USER, {"folders": ["/home/ana"]})
        erasing.delete_rows("e1")
        assert erasing.anonymize("e1", {"files": 2}).notes == {"files": 2}
        erasing.save_progress("e1", {"folders": ["/home/ana"]}, b"")
        assert [erasure.notes for erasure in erasing.running()] == [{"files": 2}]

    def test_what_went_is_known_by_its_id(self, store: Any, erasing: Erasing) -> None:
        forgotten, erased = add(store, fact("Forgotten."), fact("Erased."))
        (kept,) = add(store, fact("Ben's."), scope=BEN)
        forget(store, forgotten)
        assert store.removed() == [forgotten]
        erasing.begin("e1", USER)
        for stage in _STAGES:
            stage(erasing)
        assert set(store.removed()) == {forgotten, erased}
        assert store.get_many(BEN, [kept])

    def test_what_was_restored_is_not_gone(self, store: Any) -> None:
        again, gone = add(store, fact("Comes back."), fact("Stays out."))
        (row,) = [row for row in store.dump("item", None, 9) if row.key[0] == again]
        store.apply(Plan(ANA, (Forget(again), Forget(gone))))
        store.restore([row])
        assert store.removed() == [gone]
