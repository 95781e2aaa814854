"""Count the vectors of each model, and let go of one model's."""

from __future__ import annotations

from engrain.stores.sqlite.handle import Handle
from engrain.stores.sqlite.sql import load

_SQL = load("care.sql")


class Models(Handle):
    def models(self) -> dict[str, int]:
        with self._reading() as db:
            return {key: count for key, count in db.rows(_SQL["embedded"]) if count}

    def drop_model(self, model: str, limit: int) -> int:
        with self._writing() as db:
            keys = [(key,) for (key,) in db.rows(_SQL["vectors_of_model"], (model, limit))]
            db.many(_SQL["drop_vector"], keys)
            db.many(_SQL["drop_code"], keys)
        return len(keys)
