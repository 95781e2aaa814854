"""The wall between memories."""

from __future__ import annotations

from itertools import product

import pytest
from engrain_conformance.drafts import hostile_scopes
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.errors import BadText, InvalidInput, TooLarge
from engrain.core.identity import Scope

PARTS = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)


@given(st.tuples(PARTS, PARTS, PARTS), st.tuples(PARTS, PARTS, PARTS))
def test_two_scopes_share_an_id_only_if_they_are_the_same(
    one: tuple[str | None, ...], other: tuple[str | None, ...]
) -> None:
    assert (Scope(*one).id == Scope(*other).id) is (one == other)


def test_no_two_awkward_scopes_share_an_id() -> None:
    parts = (None, "", "-", "a", "ab", "b", "1:a", "-1:a", "0:", "--", "é", "e\u0301", "A")
    scopes = [Scope(*three) for three in product(parts, repeat=3)] + hostile_scopes()
    assert len({scope.id for scope in scopes}) == len(set(scopes))


def test_an_id_stays_the_same_for_ever() -> None:
    assert Scope().id == Scope(None, None, None).id
    assert Scope("acme", None, "ana").id == "b38582c64d337ecc55ce9ac1284909bc"
    assert all(len(scope.id) == 32 for scope in hostile_scopes())


@pytest.mark.parametrize("part", ["tenant", "agent", "user"])
def test_a_part_must_be_a_short_text(part: str) -> None:
    for bad, error in (
        (3, InvalidInput),
        (b"x", InvalidInput),
        ("x" * 513, TooLarge),
        ("\x00", BadText),
        ("\ud800", BadText),
    ):
        with pytest.raises(error, match=part):
            Scope(**{part: bad})  # type: ignore[arg-type]


def test_it_says_whose_it_is() -> None:
    assert str(Scope()) == "no owner"
    assert str(Scope("acme", None, "ana")) == "tenant=acme, user=ana"
