"""Count the vectors of each model, and let go of one model's."""

from __future__ import annotations

from engrain.core.identity import Scope
from engrain.stores.postgres.handle import Handle
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load

_SQL = load("models.sql")


class Models(Handle):
    def models(self) -> dict[str, int]:
        return dict(self._reading(None, lambda db: db.rows(_SQL["models"])))

    def drop_model(self, model: str, limit: int) -> int:
        gone = 0
        for _, *owner in self._reading(None, lambda db: db.rows(_SQL["scopes"], (model,))):
            if gone < limit:
                scope, left = Scope(*owner), limit - gone
                gone += self._writing(scope, lambda db: self._dropped(db, scope, model, left))  # noqa: B023
        return gone

    def _dropped(self, db: Db, scope: Scope, model: str, limit: int) -> int:
        self._begin_write(db, scope)
        items = [n for (n,) in db.rows(_SQL["items"], (scope.id, model, limit))]
        if items:
            db.run(_SQL["drop"], {"scope": scope.id, "items": items, "model": model})
            db.run(_SQL["mark"], (scope.id, items))
            db.run(_SQL["renumber"], (scope.id,))
        return len(items)
