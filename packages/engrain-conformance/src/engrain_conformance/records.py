"""Tests of the Records port: opaque bodies by key."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from engrain.core.errors import BeingErased, Conflict, NotFound, OnHold
from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.model.items import Citation
from engrain.core.model.plans import Forget, Plan
from engrain.core.model.records import (
    ATTACHMENTS,
    MAX_BODY,
    RecordDraft,
    RecordKey,
    RecordScan,
    RecordWrite,
    ScanOrder,
    hash_body,
)
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, BEN, add, derived, message
from engrain_conformance.reference import ReferenceStore
from engrain_conformance.suite import Suite

USER = Subject(ANA, "user", ANA.user or "")
HOUR = timedelta(hours=1)


def put(records: Any, *keys: RecordKey, body: bytes = b"x", scope: Scope = ANA, **options: Any) -> None:
    records.write(scope, RecordWrite("s", [RecordDraft(key, body, **options) for key in keys]))


def bodies(records: Any, *keys: RecordKey, scope: Scope = ANA) -> list[bytes]:
    return [record.body for record in records.read(scope, "s", list(keys))]


def names(records: Any, prefix: RecordKey = (), **options: Any) -> list[str]:
    return ["/".join(one.key) for one in records.scan(ANA, RecordScan("s", prefix, **{"limit": 99, **options}))]


class RecordsSuite(Suite):
    def test_a_body_comes_back_byte_for_byte(self, records: Any, clock: SetClock) -> None:
        body = bytes(range(256)) * 3
        put(records, ("a", "b"), body=body, expires_at=START + HOUR)
        (found,) = records.read(ANA, "s", [("a", "b")])
        assert (found.key, found.body, found.hash) == (("a", "b"), body, hash_body(body))
        assert (found.written_at, found.expires_at) == (clock(), START + HOUR)

    def test_the_largest_body_is_kept(self, records: Any) -> None:
        body = random.Random(1).randbytes(1_000) * (MAX_BODY // 1_000)
        put(records, ("large",), body=body)
        assert bodies(records, ("large",)) == [body]

    def test_reading_keeps_the_order_of_the_keys_and_leaves_out_missing_ones(self, records: Any) -> None:
        records.write(ANA, RecordWrite("s", [RecordDraft((name,), name.encode()) for name in "abc"]))
        assert bodies(records, ("c",), ("?",), ("a",)) == [b"c", b"a"]
        assert records.read(ANA, "s", []) == []

    def test_scopes_and_spaces_are_apart(self, records: Any) -> None:
        put(records, ("a",))
        assert bodies(records, ("a",), scope=BEN) == records.read(ANA, "other", [("a",)]) == []
        assert records.scan(BEN, RecordScan("s", limit=9)) == records.scan(ANA, RecordScan("other", limit=9)) == []
        assert records.drop(BEN, "s") == records.drop(ANA, "other") == 0
        assert records.keys(ANA, RecordScan("s", limit=9)) == [("a",)]

    def test_a_put_replaces_the_body(self, records: Any) -> None:
        put(records, ("a",), body=b"1", expires_at=START + HOUR)
        put(records, ("a",), body=b"2")
        (found,) = records.read(ANA, "s", [("a",)])
        assert (found.body, found.expires_at) == (b"2", None)

    def test_with_keep_an_existing_body_stays(self, records: Any) -> None:
        put(records, ("a",), body=b"1")
        put(records, ("a",), ("b",), body=b"2", keep=True)
        assert bodies(records, ("a",), ("b",)) == [b"1", b"2"]

    def test_keys_order_part_by_part_and_by_code_point(self, records: Any) -> None:
        keys = [
            ("a",),
            ("a", ""),
            ("a", "", "z"),
            ("a", "\x02"),
            ("a", "b"),
            ("a b",),
            ("aa",),
            ("b", "ü"),
            ("b", "日本"),
        ]
        put(records, *reversed(keys))
        assert [one.key for one in records.scan(ANA, RecordScan("s", limit=99))] == keys
        assert records.keys(ANA, RecordScan("s", limit=99)) == keys
        assert records.keys(ANA, RecordScan("s", limit=2, after=keys[3])) == keys[4:6]
        assert [one.key for one in records.scan(ANA, RecordScan("s", limit=99, order="descending"))] == keys[::-1]

    def test_a_prefix_takes_whole_parts(self, records: Any) -> None:
        put(records, ("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("a", "bc"))
        assert names(records, ("a",)) == ["a", "a/b", "a/b/c", "a/bc"]
        assert names(records, ("a", "b")) == ["a/b", "a/b/c"]
        assert records.keys(ANA, RecordScan("s", ("a", "b"), limit=1)) == [("a", "b")]
        assert names(records, ("?",)) == []

    def test_newest_is_the_order_of_writing(self, records: Any) -> None:
        put(records, ("b",), ("a",))
        put(records, ("c",))
        put(records, ("b",), body=b"again")
        assert names(records, order="newest") == ["b", "c", "a"]
        put(records, ("a",), keep=True)
        assert names(records, order="newest", limit=2) == ["b", "c"]

    @pytest.mark.parametrize("order", ["ascending", "descending", "newest"])
    def test_a_scan_goes_on_behind_a_key(self, records: Any, order: ScanOrder) -> None:
        put(records, *[(part, "x") for part in "dbeac"], ("c",), ("c", ""), ("?",))
        whole = records.scan(ANA, RecordScan("s", limit=99, order=order))
        paged, after = [], None
        while page := records.scan(ANA, RecordScan("s", limit=3, order=order, after=after)):
            paged += page
            after = page[-1].key
        assert paged == whole
        assert len(paged) == 8

    def test_the_newest_cannot_go_on_from_a_record_that_is_gone(self, records: Any) -> None:
        put(records, ("a",), ("b",))
        records.drop(ANA, "s", ("b",))
        with pytest.raises(NotFound):
            records.scan(ANA, RecordScan("s", limit=9, order="newest", after=("b",)))
        assert names(records, after=("aa",)) == []

    def test_dropping_takes_everything_under_the_prefix(self, records: Any) -> None:
        put(records, ("a",), ("a", "b"), ("ab",), ("c",))
        assert records.drop(ANA, "s", ("a",)) == 2
        assert names(records) == ["ab", "c"]
        assert records.drop(ANA, "s") == 2
        assert records.drop(ANA, "s") == 0

    def test_one_write_drops_before_it_puts(self, records: Any) -> None:
        put(records, ("a", "1"), ("a", "2"), ("b",))
        records.write(ANA, RecordWrite("s", [RecordDraft(("a", "2"), b"new")], [("a",), ("?",)]))
        assert names(records) == ["a/2", "b"]
        assert bodies(records, ("a", "2")) == [b"new"]

    def test_a_write_expects_what_was_read(self, records: Any) -> None:
        put(records, ("a",), body=b"1")
        expected = [(("a",), hash_body(b"1")), (("b",), None)]
        records.write(ANA, RecordWrite("s", [RecordDraft(("a",), b"2"), RecordDraft(("b",), b"2")], [], expected))
        assert bodies(records, ("a",), ("b",)) == [b"2", b"2"]

    @pytest.mark.parametrize("expected", [(("a",), None), (("a",), hash_body(b"?")), (("b",), hash_body(b"1"))])
    def test_nothing_changes_if_something_else_is_there(self, records: Any, expected: Any) -> None:
        put(records, ("a",), body=b"1")
        with pytest.raises(Conflict):
            records.write(ANA, RecordWrite("s", [RecordDraft(("c",), b"2")], [("a",)], [expected]))
        assert names(records) == ["a"]

    def test_of_many_who_expect_the_same_one_succeeds(self, records: Any, another: Callable[[], Any]) -> None:
        put(records, ("n",), body=b"0")

        def add_one(place: int) -> bool:
            port = stores[place % 2].records
            (found,) = port.read(ANA, "s", [("n",)])
            draft = RecordDraft(("n",), str(int(found.body) + 1).encode())
            try:
                port.write(ANA, RecordWrite("s", [draft], [], [(("n",), found.hash)]))
            except Conflict:
                return False
            return True

        stores = (another(), another())
        with ThreadPoolExecutor(4) as pool:
            won = sum(pool.map(add_one, range(40)))
        assert bodies(records, ("n",)) == [str(won).encode()]
        assert won >= 1

    def test_an_expired_record_does_not_exist(self, records: Any, clock: SetClock) -> None:
        put(records, ("a",), ("b",), expires_at=START + HOUR)
        clock.advance(3_600)
        assert bodies(records, ("a",)) == records.keys(ANA, RecordScan("s", limit=9)) == names(records) == []
        assert names(records, order="newest") == names(records, order="descending") == []
        assert records.find(ANA.tenant, "s", ("a",)) == []
        put(records, ("a",), body=b"kept", keep=True)
        records.write(ANA, RecordWrite("s", [RecordDraft(("b",), b"new")], [], [(("b",), None)]))
        assert bodies(records, ("a",), ("b",)) == [b"kept", b"new"]

    def test_expiring_removes_what_is_over_in_every_scope(self, records: Any) -> None:
        put(records, ("a",), ("b",), expires_at=START + HOUR)
        put(records, ("c",), expires_at=START + 2 * HOUR)
        put(records, ("d",))
        put(records, ("a",), scope=BEN, expires_at=START + HOUR)
        assert records.expired(ANA, START) == []
        over = [("s", (name,), START + HOUR) for name in "ab"]
        assert records.expired(ANA, START + HOUR) == over
        assert records.expire(START + HOUR) == 3
        assert (records.count(ANA), records.count(BEN), records.count()) == (2, 0, 2)

    def test_finding_names_the_scopes_of_a_tenant(self, records: Any) -> None:
        other = Scope("firm", "a", "ana")
        for scope in (ANA, BEN, other):
            put(records, ("thread", "1"), scope=scope)
        put(records, ("thread", "2"))
        assert set(records.find(ANA.tenant, "s", ("thread", "1"))) == {ANA, BEN}
        assert records.find(ANA.tenant, "s", ("thread", "2")) == [ANA]
        assert records.find("firm", "s", ("thread",)) == [other]
        assert records.find(ANA.tenant, "s", ("thr",)) == records.find("?", "s", ("thread",)) == []

    def test_the_status_counts_records(self, store: Any, records: Any) -> None:
        put(records, ("a",), ("b",))
        put(records, ("a",), scope=BEN)
        assert store.status().records == records.count() == 3

    def test_a_hold_keeps_records(self, store: Any, records: Any) -> None:
        put(records, ("a",), ("b",), expires_at=START + HOUR)
        store.erasing.hold(USER, "case-7")
        with pytest.raises(OnHold):
            records.drop(ANA, "s", ("a",))
        with pytest.raises(OnHold):
            records.write(ANA, RecordWrite("s", [RecordDraft(("c",), b"1")], [("a",)]))
        assert records.drop(ANA, "s", ("?",)) == 0
        put(records, ("c",))
        assert records.expired(ANA, START + HOUR) == []
        assert records.expire(START + HOUR) == 0
        assert names(records) == ["a", "b", "c"]
        assert store.erasing.release(USER)
        assert records.expire(START + HOUR) == 2

    def test_erasing_the_user_takes_the_records(self, store: Any, records: Any) -> None:
        put(records, ("a",), ("b",))
        put(records, ("a",), scope=BEN)
        erasing = store.erasing
        assert sum(count for kind, count in erasing.measure(USER).counts.items() if kind.startswith("record")) == 2
        erasing.begin("e", USER)
        with pytest.raises(BeingErased):
            put(records, ("c",))
        with pytest.raises(BeingErased):
            records.drop(ANA, "s")
        assert names(records) == []
        assert records.find(ANA.tenant, "s", ("a",)) == [BEN]
        erasing.delete_rows("e")
        erased = erasing.anonymize("e")
        assert not any(erasing.count_remaining(erased).values())
        erasing.complete("e", {"receipt": "e"})
        put(records, ("new",))
        assert not any(erasing.count_remaining(erased).values())
        assert (names(records), records.count()) == (["new"], 2)

    @pytest.mark.parametrize("cut", [False, True], ids=["forgotten", "all words cut"])
    def test_attachments_go_with_their_message(self, store: Any, records: Any, cut: bool) -> None:
        first, second = add(store, message("A picture."), message("Another picture."))
        drafts = [RecordDraft((id, name), b"x") for id in (first, second) for name in "ab"]
        records.write(ANA, RecordWrite(ATTACHMENTS, drafts))
        records.write(ANA, RecordWrite("s", [RecordDraft((first,), b"x")]))
        target = add(store, derived("She has a picture.", Citation(first, 0, 10)))[0] if cut else first
        store.apply(Plan(ANA, (Forget(target),)))
        assert records.keys(ANA, RecordScan(ATTACHMENTS)) == [(second, "a"), (second, "b")]
        assert bodies(records, (first,)) == [b"x"]
        store.erasing.begin("e", Subject(ANA, "session", "monday"))
        store.erasing.delete_rows("e")
        assert records.keys(ANA, RecordScan(ATTACHMENTS)) == []

    def test_another_process_reads_what_was_written(self, records: Any, another: Callable[[], Any]) -> None:
        put(records, ("a",))
        assert bodies(another().records, ("a",)) == [b"x"]

    @pytest.mark.parametrize("seed", range(3))
    def test_random_calls_do_what_they_do_to_the_reference(self, records: Any, clock: SetClock, seed: int) -> None:
        chance, model = random.Random(seed), ReferenceStore(clock=clock).records
        for _ in range(120):
            keys = [tuple(chance.choices(["", "a", "b", "ab", "ü"], k=chance.randint(1, 3))) for _ in range(3)]
            ends = chance.choice([None, None, clock() + HOUR])
            drafts = [RecordDraft(key, chance.randbytes(3), chance.random() < 0.3, ends) for key in dict.fromkeys(keys)]
            drops = keys[:1] if chance.random() < 0.3 else []
            order = chance.choice(["ascending", "descending", "newest"])
            for port in (records, model):
                port.write(ANA, RecordWrite("s", drafts, drops))
            clock.advance(chance.choice([0, 60, 1_800]))
            asked: Any = {"limit": chance.randint(1, 20), "order": order}
            prefix = keys[1][: chance.randint(0, 2)]
            scan = RecordScan("s", prefix, **asked)
            assert records.scan(ANA, scan) == model.scan(ANA, scan)
            assert records.read(ANA, "s", keys) == model.read(ANA, "s", keys)
            if chance.random() < 0.1:
                assert records.expire(clock()) == model.expire(clock())
