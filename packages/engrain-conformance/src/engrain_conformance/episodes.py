"""Tests of the Episodes port: newest first, removed in time and never early."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, RawOutput
from engrain.ports.sessions import Episodes
from engrain_conformance.clock import START
from engrain_conformance.drafts import ANA, BEN, HOSTILE, hostile_scopes
from engrain_conformance.suite import Suite

HOUR = timedelta(hours=1)


def episode(id: str, hours: float = 0, **values: Any) -> Episode:
    given = {"session": "s", "kind": "turn", "text": f"What {id} was.", "importance": 0.5, "expires_at": None, **values}
    return Episode(id, happened_at=START + hours * HOUR, **given)


def raw(text: str = "All of it.", hours: float = 9) -> RawOutput:
    return RawOutput(text, START + hours * HOUR)


def ids(found: list[Episode]) -> list[str]:
    return [one.id for one in found]


class EpisodesSuite(Suite):
    def test_an_episode_comes_back_as_it_was(self, episodes: Episodes) -> None:
        one = Episode(
            id='it\'s "1"',
            session="日本 s",
            kind="tool call",
            text="Ran 'ls' 😀\nand saw it.",
            importance=0.123456789,
            happened_at=START + timedelta(microseconds=1),
            expires_at=START + timedelta(days=1, microseconds=7),
            count=3,
            data={"a": [1, {"b": None}], "ü": "x", "f": 0.1, "t": True},
            key="it's 'ls'",
        )
        assert episodes.add(ANA, one) == one
        assert episodes.recent(ANA, None, 9, START) == episodes.recent(ANA, "日本 s", 9, START) == [one]
        bare = episode("bare", hours=-1)
        episodes.add(ANA, bare)
        assert episodes.recent(ANA, "s", 9, START) == [bare]

    def test_the_newest_come_first(self, episodes: Episodes) -> None:
        for id, hours in (("b", 2), ("a", 3), ("d", 1), ("c", 1), ("e", -900)):
            episodes.add(ANA, episode(id, hours))
        assert ids(episodes.recent(ANA, None, 9, START)) == ["a", "b", "d", "c", "e"]
        assert ids(episodes.recent(ANA, "s", 2, START)) == ["a", "b"]
        assert episodes.recent(ANA, "s", 0, START) == []

    def test_a_session_shows_its_own(self, episodes: Episodes) -> None:
        for n in range(6):
            episodes.add(ANA, episode(str(n), n, session="st"[n % 2]))
        assert ids(episodes.recent(ANA, "s", 9, START)) == ["4", "2", "0"]
        assert ids(episodes.recent(ANA, "t", 2, START)) == ["5", "3"]
        assert ids(episodes.recent(ANA, None, 3, START)) == ["5", "4", "3"]
        assert episodes.recent(ANA, "u", 9, START) == []

    def test_the_same_id_is_replaced(self, episodes: Episodes) -> None:
        episodes.add(ANA, episode("a", 1, session="s"))
        episodes.add(ANA, episode("b", 2, session="s"))
        newer = episode("a", 3, session="t", text="Other.", count=2)
        assert episodes.add(ANA, newer) == newer
        assert episodes.recent(ANA, None, 9, START)[0] == newer
        assert ids(episodes.recent(ANA, None, 9, START)) == ["a", "b"]
        assert ids(episodes.recent(ANA, "s", 9, START)) == ["b"]
        assert episodes.recent(ANA, "t", 9, START) == [newer]

    def test_what_has_expired_is_not_shown(self, episodes: Episodes) -> None:
        episodes.add(ANA, episode("a", expires_at=START + HOUR))
        episodes.add(ANA, episode("b", 1, expires_at=START + 2 * HOUR))
        episodes.add(ANA, episode("c", 2))
        assert ids(episodes.recent(ANA, "s", 9, START + HOUR - timedelta(microseconds=1))) == ["c", "b", "a"]
        assert ids(episodes.recent(ANA, "s", 9, START + HOUR)) == ["c", "b"]
        assert ids(episodes.recent(ANA, None, 1, START + 3 * HOUR)) == ["c"]

    def test_the_limit_counts_what_is_shown(self, episodes: Episodes) -> None:
        episodes.add(ANA, episode("old"))
        for n in range(5):
            episodes.add(ANA, episode(f"new {n}", n + 1, expires_at=START + HOUR))
        assert ids(episodes.recent(ANA, "s", 1, START + HOUR)) == ["old"]
        assert ids(episodes.recent(ANA, None, 1, START + HOUR)) == ["old"]

    def test_what_has_expired_is_removed_in_every_scope(self, episodes: Episodes) -> None:
        for scope in (ANA, BEN):
            episodes.add(scope, episode("a", expires_at=START + HOUR))
            episodes.add(scope, episode("b", expires_at=START + 2 * HOUR))
            episodes.add(scope, episode("c", count=9, importance=0.0))
        assert episodes.expire(START) == 0
        assert episodes.expire(START + HOUR) == 2
        assert episodes.expire(START + HOUR) == 0
        for scope in (ANA, BEN):
            assert ids(episodes.recent(scope, None, 9, START)) == ["c", "b"]

    def test_a_replaced_episode_has_its_new_expiry(self, episodes: Episodes) -> None:
        episodes.add(ANA, episode("a", expires_at=START + HOUR))
        episodes.add(ANA, episode("a"))
        assert episodes.expire(START + 9 * HOUR) == 0
        assert ids(episodes.recent(ANA, None, 9, START + 9 * HOUR)) == ["a"]

    def test_removing_says_how_many_were_there(self, episodes: Episodes) -> None:
        for id in ("a", "b", "c"):
            episodes.add(ANA, episode(id))
            episodes.add(BEN, episode(id))
        assert episodes.remove(ANA, ["a", "c", "nothing", "a"]) == 2
        assert episodes.remove(ANA, ["a"]) == episodes.remove(ANA, []) == 0
        assert ids(episodes.recent(ANA, "s", 9, START)) == ["b"]
        assert len(episodes.recent(BEN, "s", 9, START)) == 3

    def test_trimming_keeps_the_newest_of_the_session(self, episodes: Episodes) -> None:
        for n in (3, 1, 4, 0, 2):
            episodes.add(ANA, episode(f"s{n}", n))
            episodes.add(ANA, episode(f"t{n}", n, session="t"))
            episodes.add(BEN, episode(f"s{n}", n))
        assert episodes.trim(ANA, "s", 9) == 0
        assert episodes.trim(ANA, "s", 2) == 3
        assert ids(episodes.recent(ANA, "s", 9, START)) == ["s4", "s3"]
        assert len(episodes.recent(ANA, "t", 9, START)) == len(episodes.recent(BEN, "s", 9, START)) == 5
        assert episodes.trim(ANA, "t", 0) == 5
        assert ids(episodes.recent(ANA, None, 9, START)) == ["s4", "s3"]

    # The same thing again

    def test_the_same_key_is_joined_into_one(self, episodes: Episodes) -> None:
        episodes.add(ANA, episode("a", 0, key="k", count=2, importance=0.9, expires_at=START + 9 * HOUR, data={"x": 1}))
        newer = episode("b", 1, key="k", importance=0.3, expires_at=START + 4 * HOUR, kind="error", data={"y": 2})
        stands = episodes.add(ANA, newer)
        assert stands == replace(newer, count=3, importance=0.9, expires_at=START + 9 * HOUR)
        assert episodes.recent(ANA, None, 9, START) == episodes.recent(ANA, "s", 9, START) == [stands]
        last = episodes.add(ANA, episode("c", 2, key="k", importance=0.95, expires_at=START + 30 * HOUR))
        assert (last.count, last.importance, last.expires_at) == (4, 0.95, START + 30 * HOUR)
        assert episodes.recent(ANA, None, 9, START) == [last]

    @pytest.mark.parametrize("ends", [(None, START + HOUR), (START + HOUR, None), (None, None)])
    def test_no_expiry_is_later_than_any(self, episodes: Episodes, ends: Any) -> None:
        for id, end in zip("ab", ends, strict=True):
            stands = episodes.add(ANA, episode(id, key="k", expires_at=end))
        assert (stands.count, stands.expires_at) == (2, None)
        assert episodes.expire(START + 99 * HOUR) == 0

    def test_only_what_is_the_same_is_joined(self, episodes: Episodes) -> None:
        others = [episode("a"), episode("b", key="K"), episode("c", key="k", session="t"), episode("d", key="")]
        for other in others:
            episodes.add(ANA, other)
        foreign = episodes.add(BEN, episode("e", key="k"))
        for one in (episode("f", key="k"), episode("g", 1), episode("h", 1)):
            assert episodes.add(ANA, one) == one
        assert sorted(ids(episodes.recent(ANA, None, 99, START))) == ["a", "b", "c", "d", "f", "g", "h"]
        assert episodes.recent(BEN, None, 9, START) == [foreign]

    def test_what_has_expired_by_then_is_not_joined(self, episodes: Episodes) -> None:
        old = episodes.add(ANA, episode("a", key="k", expires_at=START + HOUR))
        apart = episodes.add(ANA, episode("b", 1, key="k", expires_at=START + 9 * HOUR))
        assert apart.count == 1
        assert episodes.recent(ANA, None, 9, START) == [apart, old]
        # One that happened before either had expired is the same as both.
        stands = episodes.add(ANA, episode("c", 0.5, key="k", expires_at=START + 2 * HOUR))
        assert (stands.count, stands.expires_at) == (3, START + 9 * HOUR)
        assert episodes.recent(ANA, None, 9, START) == [stands]

    def test_the_same_id_again_is_replaced_and_not_joined(self, episodes: Episodes) -> None:
        first = episodes.add(ANA, episode("a", key="k", count=5, importance=1.0, expires_at=None))
        again = episode("a", 1, key="k", importance=0.1, expires_at=START + 9 * HOUR)
        assert first.count == 5
        assert episodes.add(ANA, again) == again
        assert episodes.recent(ANA, None, 9, START) == [again]

    def test_writers_at_the_same_time_join_what_they_add(self, episodes: Episodes) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: episodes.add(ANA, episode(f"{n}", n, key="k", importance=n / 32)), range(32)))
        (one,) = episodes.recent(ANA, None, 99, START)
        assert (one.count, one.importance) == (32, 31 / 32)

    def test_another_handle_joins_and_sees_at_once(self, episodes: Episodes, another: Callable[[], Any]) -> None:
        other = another().episodes
        episodes.add(ANA, episode("a", key="k"), raw())
        stands = other.add(ANA, episode("b", 1, key="k"))
        assert stands.count == 2
        assert episodes.recent(ANA, "s", 9, START) == [stands]
        assert episodes.raw(ANA, "a", START) is None

    def test_a_key_may_be_anything(self, episodes: Episodes) -> None:
        for count in (1, 2):
            for n, key in enumerate(HOSTILE):
                assert episodes.add(ANA, episode(f"{count} {n}", key=key)).count == count, key
        assert len(episodes.recent(ANA, "s", 99, START)) == len(HOSTILE)

    # How many

    def test_a_session_keeps_its_newest(self, episodes: Episodes) -> None:
        most = TIERS["episodic"].max_items
        assert most
        numbers = list(range(most + 3))
        random.Random(3).shuffle(numbers)
        episodes.add(ANA, episode("other", -99, session="t"))
        for n in numbers:
            episodes.add(ANA, episode(f"{n:04}", n // 2), raw() if n < 5 else None)
        kept = ids(episodes.recent(ANA, "s", 9_999, START))
        assert kept == [f"{n:04}" for n in reversed(range(3, most + 3))]
        assert [episodes.raw(ANA, f"{n:04}", START) for n in range(5)] == [None, None, None, "All of it.", "All of it."]
        episodes.add(ANA, episode("older than all", -1))
        assert ids(episodes.recent(ANA, "s", 9_999, START)) == kept
        assert ids(episodes.recent(ANA, "t", 9, START)) == ["other"]

    # What is kept raw

    def test_the_raw_text_is_kept_beside(self, episodes: Episodes) -> None:
        long = "Zeile für Zeile 😀\n\t'\"\r\n" * 5_000
        episodes.add(ANA, episode("a"), raw(long))
        episodes.add(ANA, episode("b"))
        episodes.add(ANA, episode("c"), raw(""))
        assert [episodes.raw(ANA, id, START) for id in ("a", "b", "c", "d")] == [long, None, "", None]
        assert "Zeile" not in repr(episodes.recent(ANA, None, 9, START))

    def test_the_raw_text_has_a_time_of_its_own(self, episodes: Episodes) -> None:
        just = timedelta(microseconds=1)
        episodes.add(ANA, episode("a", expires_at=START + 5 * HOUR), raw("first", 1))
        episodes.add(ANA, episode("b", expires_at=START + HOUR), raw("second", 5))
        for id, text in (("a", "first"), ("b", "second")):
            assert episodes.raw(ANA, id, START + HOUR - just) == text
            assert episodes.raw(ANA, id, START + HOUR) is None
        assert episodes.expire(START + HOUR - just) == 0
        assert [episodes.raw(ANA, id, START) for id in "ab"] == ["first", "second"]
        assert episodes.expire(START + HOUR) == 1
        assert [episodes.raw(ANA, id, START) for id in "ab"] == [None, None]
        assert ids(episodes.recent(ANA, None, 9, START)) == ["a"]

    def test_the_raw_text_goes_with_its_episode(self, episodes: Episodes) -> None:
        for id in ("replaced", "removed", "expired", "trimmed", "kept"):
            session, end = ("t", None) if id == "trimmed" else ("s", START + HOUR if id == "expired" else None)
            episodes.add(ANA, episode(id, session=session, expires_at=end), raw(id))
            episodes.add(BEN, episode(id, session=session), raw(id))
        episodes.add(ANA, episode("joined", key="k"), raw("joined"))
        episodes.add(ANA, episode("joins", 1, key="k"), raw("joins"))
        episodes.add(ANA, episode("replaced"))
        episodes.remove(ANA, ["removed"])
        episodes.expire(START + HOUR)
        episodes.trim(ANA, "t", 0)
        gone = ("replaced", "removed", "expired", "trimmed", "joined")
        for id in gone:
            episodes.add(ANA, episode(id))
        assert [episodes.raw(ANA, id, START) for id in (*gone, "kept", "joins")] == [None] * 5 + ["kept", "joins"]
        assert [episodes.raw(BEN, id, START) for id in gone[:4]] == list(gone[:4])

    def test_a_raw_text_is_replaced_with_its_episode(self, episodes: Episodes) -> None:
        episodes.add(ANA, episode("a"), raw("old", 1))
        episodes.add(ANA, episode("a"), raw("new", 5))
        assert episodes.raw(ANA, "a", START + 2 * HOUR) == "new"
        assert episodes.expire(START + 2 * HOUR) == 0
        assert episodes.raw(ANA, "a", START) == "new"

    # The wall

    def test_the_scope_is_never_crossed(self, episodes: Episodes) -> None:
        scopes = hostile_scopes()
        for n, scope in enumerate(scopes):
            episodes.add(scope, episode("same", text=f"of {n}", key="k"), raw(f"raw of {n}"))
        for n, scope in enumerate(scopes):
            assert [episode.text for episode in episodes.recent(scope, "s", 99, START)] == [f"of {n}"]
            assert [episode.text for episode in episodes.recent(scope, None, 99, START)] == [f"of {n}"]
            assert episodes.raw(scope, "same", START) == f"raw of {n}"
        assert episodes.remove(scopes[0], ["same"]) == 1
        assert all(len(episodes.recent(scope, None, 9, START)) == 1 for scope in scopes[1:])

    def test_ids_and_sessions_may_have_any_name(self, episodes: Episodes) -> None:
        episodes.add(ANA, episode("plain", -1, session="plain"))
        for name in HOSTILE:
            one = episode(name, session=name)
            assert episodes.add(ANA, one, raw(name)) == one
            assert episodes.recent(ANA, name, 9, START) == [one]
            assert episodes.raw(ANA, name, START) == name
            assert episodes.trim(ANA, name, 1) == 0
            assert episodes.remove(ANA, [name]) == 1
            assert ids(episodes.recent(ANA, None, 9, START)) == ["plain"]
