"""Answer a repeated request with the first answer, which is stored under the request's id."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.plans import Applied, Request
from engrain.stores.relational.dialect import Dialect, Transaction
from engrain.stores.relational.rows import read_answer
from engrain.stores.relational.scopes import load_scopes_on_hold
from engrain.stores.relational.writes import find_answer, hash_request, store_answer


class Requests:
    """A part of the store."""

    dialect: Dialect

    def answer(self, scope: Scope, request: Request | None) -> Applied | None:
        if request is None:
            return None
        rows = self.dialect.ask(scope, "load_request", id=request.id)
        return read_answer(rows[0][0], hash_request(self.dialect.key, request.asked)) if rows else None

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

        return self.dialect.in_transaction(run, request.id)

    def drop_answers(self, before: datetime) -> int:
        def do(tx: Transaction) -> int:
            on_hold = load_scopes_on_hold(tx)
            return len(tx.rows("drop_requests", before=to_micros(before), on_hold=on_hold))

        return self.dialect.write(None, do)
