"""Find out who is under a legal hold, inside a transaction."""

from __future__ import annotations

from typing import Any

from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.erasure import find_owner, make_hold_error
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.rows import read_hold


def hash_owner(key: bytes, scope: Scope) -> str:
    """The keyed hash of the user whose scope it is. A scope of no user has "", which no hold has."""
    user = find_owner(scope)
    return hash_keyed(key, *user.parts()) if user else ""


def check_hold(tx: Transaction) -> None:
    """OnHold if the owner of the transaction's scope is under a hold. Lock the owner before."""
    rows = tx.rows("load_hold", subject_hash=tx.owner)
    if rows and tx.scope and (user := find_owner(tx.scope)):
        raise make_hold_error(user, read_hold(rows[0]).reasons)


def load_held_scopes(tx: Transaction, key: bytes) -> list[Any]:
    """The keys of all scopes whose owner is under a hold. No hold begins before the commit."""
    tx.lock_holds()
    held = {subject_hash for subject_hash, *_ in tx.rows("load_holds")}
    # A hold knows its user by a keyed hash alone, so every name is hashed; without holds none is.
    scopes = tx.rows("load_scopes") if held else []
    return [number for number, *names, _ in scopes if hash_owner(key, Scope(*names)) in held]
