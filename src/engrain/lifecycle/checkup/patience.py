"""Wait for a server that is away once, not at every point that needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engrain.core.errors import StoreUnavailable
from engrain.core.queries import Finding
from engrain.ports import Kit


class AskedOnce:
    """A port that, once its server did not answer, says so again without asking."""

    def __init__(self, port: object, away: Callable[[], str | None] = lambda: None) -> None:
        self._port = port
        self._away = away
        self._error: StoreUnavailable | None = None

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._port, name)

        def asked(*args: Any, **options: Any) -> Any:
            if self._error is not None:
                raise self._error
            try:
                if why := self._away():
                    raise StoreUnavailable(why)
                return ask(*args, **options)
            except StoreUnavailable as exc:
                self._error = exc
                raise

        return asked


def asked_once(kit: Kit, check: Callable[[], Sequence[Finding]]) -> dict[str, Any]:
    """The ports of this kit that may be on a server beside the items, to be put in their place."""
    feed: object = kit.feed
    servers = [one for one in kit.servers if one is not feed]

    def away() -> str | None:
        check()
        # Which of several has the episodes is not known here: they are asked for, unless none of them answers.
        return servers[0].trouble if servers and all(one.trouble for one in servers) else None

    found: dict[str, Any] = {}
    if kit.episodes is not None and not kit.together:
        found["episodes"] = AskedOnce(kit.episodes, away)
    if kit.journal is not None and servers:
        found["journal"] = AskedOnce(kit.journal)
    return found
