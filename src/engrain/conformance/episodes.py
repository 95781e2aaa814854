"""What a book of episodes promises: newest first, gone in time and never early."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from engrain.conformance.clock import START
from engrain.conformance.drafts import ANA, BEN, HOSTILE, hostile_scopes
from engrain.conformance.suite import Suite
from engrain.ports import Episode, Episodes

HOUR = timedelta(hours=1)


def episode(id: str, hours: float = 0, **values: Any) -> Episode:
    given = {"session": "s", "kind": "turn", "text": f"What {id} was.", "importance": 0.5, "expires_at": None, **values}
    return Episode(id, happened_at=START + hours * HOUR, **given)


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
        )
        episodes.add(ANA, one)
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
        episodes.add(ANA, newer)
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
        assert episodes.remove(ANA, ["a", "c", "nothing"]) == 2
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

    def test_the_scope_is_never_crossed(self, episodes: Episodes) -> None:
        scopes = hostile_scopes()
        for n, scope in enumerate(scopes):
            episodes.add(scope, episode("same", text=f"of {n}"))
        for n, scope in enumerate(scopes):
            assert [one.text for one in episodes.recent(scope, "s", 99, START)] == [f"of {n}"]
            assert [one.text for one in episodes.recent(scope, None, 99, START)] == [f"of {n}"]
        assert episodes.remove(scopes[0], ["same"]) == 1
        assert all(len(episodes.recent(scope, None, 9, START)) == 1 for scope in scopes[1:])

    @pytest.mark.parametrize("name", HOSTILE)
    def test_ids_and_sessions_may_have_any_name(self, episodes: Episodes, name: str) -> None:
        episodes.add(ANA, episode("plain", -1, session="plain"))
        one = episode(name, session=name)
        episodes.add(ANA, one)
        assert episodes.recent(ANA, name, 9, START) == [one]
        assert episodes.trim(ANA, name, 1) == 0
        assert episodes.remove(ANA, [name]) == 1
        assert ids(episodes.recent(ANA, None, 9, START)) == ["plain"]
