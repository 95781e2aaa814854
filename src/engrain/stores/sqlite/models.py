"""Count the vectors of each model, and let go of one model's."""

from __future__ import annotations

from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.handle import Handle
from engrain.stores.sqlite.sql import load

_SQL = load("care.sql")
_ITEM = (1 << 40) - 1  # the part of a vector's key that is its item


class Models(Handle):
    def models(self) -> dict[str, int]:
        rows = self.snapshot(lambda db: db.rows(_SQL["embedded"]))
        return {key: count for key, count in rows if count}

    def drop_model(self, model: str, limit: int) -> int:
        def drop(db: Connection) -> int:
            keys = [key for (key,) in db.rows(_SQL["vectors_of_model"], (model, limit))]
            db.many(_SQL["drop_vector"], [(key,) for key in keys])
            db.many(_SQL["drop_code"], [(key,) for key in keys])
            ((seq,),) = db.rows(_SQL["seq"])
            # A process that still searches by them sees that they are gone.
            db.many(_SQL["marked"], [(seq + place, key & _ITEM) for place, key in enumerate(keys, 1)])
            db.run(_SQL["set_seq"], (seq + len(keys),))
            return len(keys)

        return self.transaction(drop)
