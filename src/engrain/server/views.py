"""The views of the store that requests use: one Memory for each scope and name of a view."""

from __future__ import annotations

import threading
from collections import OrderedDict

from engrain.core.identity import Scope
from engrain.core.model.erasure import find_owner
from engrain.memory.memory import Memory
from engrain.memory.remote import RemoteStore
from engrain.memory.store import Store

MAX_SCOPES = 10_000
MAX_VIEWS_OF_SCOPE = 32
# Verbs that read the working memory of the view.
_VERBS_WITH_STATE = ("working.", "recall", "prompt", "start_session")


class Views:
    """Memories by scope and name, the longest unused one dropped first.

    A view holds a default session and a working memory. Dropping it loses these, as the end of a process does.
    """

    def __init__(self, store: Store, most: int = MAX_SCOPES) -> None:
        self._store = store
        self._most = most
        self._lock = threading.Lock()
        self._scopes: OrderedDict[Scope, OrderedDict[tuple[str, tuple[Scope, ...]], tuple[Memory, str]]] = OrderedDict()

    def get(self, scope: Scope, name: str, verb: str, reads: tuple[Scope, ...] = ()) -> Memory:
        """Return the view for a verb; a new one if there is none, or if its user was erased since it was made."""
        erasure = self._find_last_erasure(scope) if verb.startswith(_VERBS_WITH_STATE) else None
        with self._lock:
            views = self._scopes.setdefault(scope, OrderedDict())
            known = views.get((name, reads))
            if known is None or erasure not in (None, known[1]):
                memory = self._store.memory(tenant=scope.tenant, agent=scope.agent, user=scope.user, reads=reads)
                known = views[name, reads] = (memory, erasure or "")
            views.move_to_end((name, reads))
            self._scopes.move_to_end(scope)
            if len(views) > MAX_VIEWS_OF_SCOPE:
                views.popitem(last=False)
            if len(self._scopes) > self._most:
                self._scopes.popitem(last=False)
            return known[0]

    def __len__(self) -> int:
        return len(self._scopes)

    def _find_last_erasure(self, scope: Scope) -> str:
        """Return the receipt of this user's last erasure, by any process; "" for none."""
        if isinstance(self._store, RemoteStore):
            return ""  # the server that has the store looks itself
        user, erasing = find_owner(scope), self._store.services.erasing
        done = erasing.erased(user) if user is not None and erasing is not None else None
        return done.receipt if done else ""
