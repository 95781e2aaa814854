"""Begin a session with what matters, and end it with a summary."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from engrain.capture import write
from engrain.core.digest import SUMMARY, Part, digest
from engrain.core.errors import NotFound, StoreError
from engrain.core.filters import parse_filter
from engrain.core.items import Cite, Item, Source
from engrain.core.notes import Note
from engrain.core.plans import Add, Forget, Plan
from engrain.core.scope import Scope
from engrain.core.sessions import SLOT, Closing, Listed, Opening
from engrain.core.text import checked_count
from engrain.core.traits import STANDING
from engrain.ports import Kit, ListQuery

_log = logging.getLogger("engrain")

PROFILE = 30
EPISODES = 5
LEFT_OPEN = 3  # sessions before this one that are looked at for a summary that was never made
SUMMARY_TOKENS = 400
READ = 1_000  # messages of one session that a summary is made of and cites: the newest


class Sessions:
    """The sessions of one scope, from the outside; what is said in them is the conversation's."""

    def __init__(self, kit: Kit, scope: Scope) -> None:
        self._kit = kit
        self._scope = scope

    def open(self, session: str) -> Opening:
        """A session that was never ended, because its process died, gets its summary now, and so does one whose summary
        went with something that was forgotten."""
        before = [name for name in self._kit.log.sessions(self._scope, LEFT_OPEN + 1) if name != session]
        ended = [self._left_open(name) for name in before[:LEFT_OPEN]]
        # The last session's, however late it was made; of a session without a log only the summary is left.
        told = [*filter(None, ended), *(item for item in self._newest("summary", 2) if item.slot != SLOT + session)]
        summary = told[0] if told else None
        return Opening(session, tuple(self._profile()), summary, tuple(self._newest("episode", EPISODES)))

    def close(self, session: str) -> Closing:
        return Closing(session, self._summed_up(session), tuple(self._kept(session)))

    def _left_open(self, session: str) -> Item | None:
        """To begin a session needs reading alone: where nothing can be written, the summary waits."""
        try:
            return self._summed_up(session)
        except StoreError as exc:
            _log.warning("session %r is not summed up yet: %s", session, exc)
            return self._kit.items.slot(self._scope, SLOT + session, None)

    def _summed_up(self, session: str) -> Item | None:
        """Summed up once for each length: ending it again without a new message changes nothing."""
        length = self._kit.log.length(self._scope, session)
        held = self._kit.items.slot(self._scope, SLOT + session, None)
        if held is None or held.metadata.get("upto") != length:
            held = self._summarize(session, length) or held
        return held

    def listed(self, limit: int) -> list[Listed]:
        """The sessions last added to, newest first."""
        return [self._listed(name) for name in self._kit.log.sessions(self._scope, checked_count(limit, "limit"))]

    def _listed(self, session: str) -> Listed:
        last = self._kit.log.last(self._scope, session, 1)
        held = self._kit.items.slot(self._scope, SLOT + session, None)
        length = self._kit.log.length(self._scope, session)
        return Listed(session, length, last[0].recorded_at if last else None, held.text if held else "")

    def _summarize(self, session: str, length: int) -> Item | None:
        messages = self._kit.log.last(self._scope, session, READ)
        if not messages:
            return None
        # Of a longer session it tells what is not cited here: if that were forgotten, this summary would keep it.
        rolling = self._kit.log.summary(self._scope, session) if len(messages) < READ else None
        parts = [Part(rolling.text, kind=SUMMARY)] if rolling and rolling.text else []
        since = rolling.upto if rolling else 0
        rest = [item for item in messages if (item.place or 0) >= since] or messages
        parts += [Part(item.text, item.speaker or item.role or "") for item in rest]
        text = digest(parts, SUMMARY_TOKENS, self._kit.count_tokens)
        return self._keep(session, text, length, messages) if text else None

    def _keep(self, session: str, text: str, length: int, messages: Sequence[Item]) -> Item | None:
        source = Source(kind="agent", cites=tuple(Cite(item.id) for item in messages))
        note = Note(text, 0.6, SLOT + session, {"upto": length, "by": "digest"}, source, derived=True)
        (draft,) = write.drafts([note], self._kit.embedder)
        plan = Plan(self._scope, (Add(replace(draft, kind="summary")),))
        try:
            (outcome,) = self._kit.items.apply(plan).outcomes
        except NotFound:  # a message was forgotten meanwhile
            return None
        if outcome.id and not self._unchanged(messages):
            self._kit.items.apply(Plan(self._scope, (Forget(outcome.id),)))
        found = self._kit.items.get_many(self._scope, [outcome.id]) if outcome.id else []
        return found[0] if found else None

    def _unchanged(self, messages: Sequence[Item]) -> bool:
        """Looked at after the summary stands: whatever is forgotten from then on takes it along."""
        now = self._kit.items.get_many(self._scope, [item.id for item in messages])
        return [item.text for item in now] == [item.text for item in messages]

    def _profile(self) -> list[Item]:
        """What is known of the user by name, and what the user always wants."""
        items = self._kit.items
        named = [item for item in items.slots(self._scope, "user.", None) if item.kind == "fact"]
        facts = parse_filter({"kind": "fact"})
        standing = items.get_many(self._scope, items.having(self._scope, STANDING, facts, PROFILE, None))
        pinned = items.page(ListQuery(self._scope, parse_filter({"kind": "fact", "pinned": True}), limit=PROFILE))
        return list({item.id: item for item in (*named, *pinned, *standing)}.values())[:PROFILE]

    def _kept(self, session: str) -> list[Item]:
        """What was taken out of this session's messages and stays: facts and important episodes."""
        messages = [item.id for item in self._kit.log.last(self._scope, session, READ)]
        children = {link.item for link in self._kit.items.lineage(self._scope, messages) if link.item not in messages}
        found = self._kit.items.get_many(self._scope, sorted(children))
        return [item for item in found if item.kind in ("fact", "episode") and item.open]

    def _newest(self, kind: str, n: int) -> list[Item]:
        return self._kit.items.page(ListQuery(self._scope, parse_filter({"kind": kind}), limit=n))
