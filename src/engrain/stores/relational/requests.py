"""Requests: the first answer is stored under the request's id, and a repeat gets it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from engrain.core.clock import to_micros
from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.plans import Applied, Request
from engrain.stores.relational.dialect import Dialect, Transaction
from engrain.stores.relational.holds import load_scopes_on_hold
from engrain.stores.relational.rows import read_answer, write_answer


class Requests:
    """A part of the store."""

    dialect: Dialect

    def answer(self, scope: Scope, request: Request | None) -> Applied | None:
        if request is None:
            return None
        rows = self.dialect.ask(scope, "load_request", id=request.id)
        return read_answer(rows[0][0], _hash_asked(self.dialect.key, request.asked)) if rows else None

    def once(self, scope: Scope, request: Request | None, do: Callable[[], Applied]) -> Applied:
        if request is None:
            return do()

        def find(tx: Transaction) -> Applied | None:
            tx.lock_scope()  # two repeats at the same time: one waits for the other's answer
            return find_answer(tx, request.id, request.asked)

        def run() -> Applied:
            first = self.dialect.write(scope, find)
            if first is not None:
                return first
            applied = do()
            self.dialect.write(scope, lambda tx: store_answer(tx, request, applied, tx.now()))
            return applied

        return self.dialect.together(run, request.id)

    def drop_answers(self, before: datetime) -> int:
        def do(tx: Transaction) -> int:
            on_hold = load_scopes_on_hold(tx)
            return len(tx.rows("drop_requests", before=to_micros(before), on_hold=on_hold))

        return self.dialect.write(None, do)


def find_answer(tx: Transaction, request_id: str | None, asked: str | None) -> Applied | None:
    """The answer to the first request of this id. Without `asked`, whatever it asked for."""
    rows = tx.rows("load_request", id=request_id) if request_id is not None else []
    return read_answer(rows[0][0], None if asked is None else _hash_asked(tx.dialect.key, asked)) if rows else None


def store_answer(tx: Transaction, request: Request, applied: Applied, at: int) -> None:
    answer = write_answer(applied, _hash_asked(tx.dialect.key, request.asked))
    tx.run("add_request", id=request.id, answer=answer, at=at)


def _hash_asked(key: bytes, asked: str) -> bytes:
    return bytes.fromhex(hash_keyed(key, "asked", asked))
