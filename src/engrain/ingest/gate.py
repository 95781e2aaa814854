"""Decide, by rules and with no model, whether a message says something worth keeping."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from engrain.core.model.items import ForgetRequest, Statement
from engrain.core.rules.message_filters import blank_code, blank_pasted
from engrain.core.rules.slots import fill_slot, find_mentioned_slot
from engrain.core.rules.statements import compile_pattern, load_statement_rules
from engrain.core.secrets.personal import contains_secret
from engrain.core.text.sentences import Clause, Sentence, split_clauses, split_sentences, trim_span
from engrain.ingest.rules import find_topic_slot, fits_slot, match_fact, match_right_value, skip_lead

# Of a long message its two ends: what stands between is most often pasted.
HEAD_CHARACTERS, TAIL_CHARACTERS = 4_000, 2_000
# Nobody says a longer sentence, and nobody tells more than this at once: it is a text that was brought along.
MAX_SENTENCE_CHARACTERS = 600
MAX_STATEMENTS = 12
MAX_SENTENCES = 80
_IMPORTANCE = {"explicit": 0.8, "identity": 0.8, "instruction": 0.8, "preference": 0.7, "decision": 0.7, "denial": 0.7}
_DEFAULT_IMPORTANCE = 0.6
_WORD = re.compile(r"[\w'-]+")

Found = Statement | ForgetRequest


def find_statements(text: str, before: Sequence[tuple[str, str]] = ()) -> list[Found]:
    """What a user's message says that lasts, in order. `before` are the last (role, text) of the session."""
    plain = blank_code(text)
    if len(plain) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return _MessageReader(text, plain, before).read()
    cut = plain.find("\n", len(plain) - TAIL_CHARACTERS) + 1 or len(plain)
    found = _MessageReader(text[:HEAD_CHARACTERS], plain[:HEAD_CHARACTERS], before).read()
    tail = _MessageReader(text[cut:], plain[cut:], before).read(from_the_end=True)
    return [*found, *(replace(one, start=one.start + cut, end=one.end + cut) for one in tail)][:MAX_STATEMENTS]


class _MessageReader:
    """Reads one message. `text` is what was written; in `shown` all that is not the speaker's own is hidden."""

    def __init__(self, text: str, plain: str, before: Sequence[tuple[str, str]]) -> None:
        self.known = load_statement_rules()
        self.text = text
        self.shown = blank_pasted(plain)
        self.before = before
        self.found: list[Found] = []
        self.refused: re.Match[str] | None = None

    def read(self, *, from_the_end: bool = False) -> list[Found]:
        last: Sentence | None = None
        found = split_sentences(self.shown)
        for sentence in found[-MAX_SENTENCES:] if from_the_end else found[:MAX_SENTENCES]:
            if len(self.found) >= MAX_STATEMENTS:
                break
            if sentence.end - sentence.start <= MAX_SENTENCE_CHARACTERS:
                new = self._sentence(sentence, last)
                self.found = [*self.found, *new]
                last = sentence
        earnest = self._earnest() if self.found else 0
        meant = (one for one in self.found if isinstance(one, ForgetRequest) or one.end <= earnest)
        return _keep_last_per_slot([one for one in meant if one.start < one.end])

    def _earnest(self) -> int:
        """Up to where the message is meant, and the speaker's own."""
        if self._has("void_message", 0, len(self.shown)):
            return 0
        given = self.known.sign("void_after").search(self.shown) if ":" in self.shown else None
        end = given.end() if given else len(self.shown)
        fiction = (
            one.start for one in split_sentences(self.shown[:end]) if self._has("void_onward", one.start, one.end)
        )
        return next(fiction, end)

    def _sentence(self, sentence: Sentence, last: Sentence | None) -> list[Found]:
        words = frozenset(_WORD.findall(self.shown[sentence.start : sentence.end].lower()))
        start = skip_lead(self.shown, sentence.start, sentence.end)
        thing = self._asked("unsaid", words, start, sentence.end)
        if thing:
            return [self._unsaid(*trim_span(self.shown, *thing.span("said")))]
        statement = self._asked("untold", words, start, sentence.end)
        if statement:
            return self._untold(*trim_span(self.shown, *statement.span("said")))
        if last and self._asked("back", words, start, sentence.end):
            return self._after_all(last)
        return self._not_secret(sentence, self._asked_for(words, sentence, sentence) or self._told(words, sentence))

    def _not_secret(self, sentence: Sentence, found: list[Found]) -> list[Found]:
        return [] if found and contains_secret(self.text[sentence.start : sentence.end]) else found

    def _unsaid(self, start: int, end: int) -> ForgetRequest:
        found = match_fact(self.shown, self.text, start, end)
        return ForgetRequest(start, end, found.slot if found else find_mentioned_slot(self.shown[start:end]))

    def _untold(self, start: int, end: int) -> list[Found]:
        """Cut as it would be if it were to be kept, so that the same words are found again."""
        return [ForgetRequest(one.start, one.end, one.slot) for one in self._said(start, end, explicit=True)]

    def _after_all(self, last: Sentence) -> list[Found]:
        """A sentence such as "remember that" asks for the one before it."""
        said = [one for one in self.found if one.start >= last.start and isinstance(one, Statement)]
        self.found = [one for one in self.found if one.start < last.start]
        asked: list[Found] = [replace(one, explicit=True, importance=_IMPORTANCE["explicit"]) for one in said]
        return asked or self._not_secret(last, self._said(last.start, last.end, explicit=True))

    def _asked_for(self, words: frozenset[str], part: Sentence | Clause, sentence: Sentence) -> list[Found]:
        """What the speaker wants to be kept, up to the end of the sentence."""
        if sentence.is_question and not self._begins("asks_to_keep", part.start, part.end):
            return []
        for start in (skip_lead(self.shown, part.start, part.end), part.start):
            match = self._asked("explicit", words, start, sentence.end)
            if match:
                return self._said(*match.span("said"), explicit=True)
            match = self._asked("notice", words, start, sentence.end)
            if match and not self._has("passing", *match.span("said")):
                return self._said(*match.span("said"), explicit=False)
        return []

    def _said(self, start: int, end: int, *, explicit: bool) -> list[Found]:
        """All of it; or, where every clause says something of its own, each of them. Of "note it" nothing."""
        if self.known.sign("points").fullmatch(self.shown, *trim_span(self.shown, start, end)):
            return []
        parts = self._parts(Sentence(start, end, False))
        starts = [skip_lead(self.shown, part.start, part.end) for part in parts]
        facts = [match_fact(self.shown, self.text, at, part.end) for at, part in zip(starts, parts, strict=True)]
        spans = [(at, part.end) for at, part in zip(starts, parts, strict=True)] if all(facts) else [(start, end)]
        kept: list[Found] = []
        for span, found in zip(spans, facts, strict=False):
            kind = "explicit" if explicit else found.kind if found else ""
            kept.append(self._worth(*span, kind, found.slot if found else None))
        return kept

    def _told(self, words: frozenset[str], sentence: Sentence) -> list[Found]:
        """What the clauses of a sentence state, and what it says by the way."""
        refusal = self._refusal(sentence)
        facts: list[Found] = []
        asked: list[Found] = []
        parts = self._parts(sentence)
        for clause in self._statements(sentence, parts):
            asked = self._asked_for(words, clause, sentence)
            if asked:
                break
            start = skip_lead(self.shown, clause.start, clause.end)
            facts += self._fact(clause, start) or (self._correction(clause, refusal) if refusal else [])
        facts += self._by_the_way(sentence, parts, [*facts, *asked])
        return asked if facts and self._has("void_sentence", sentence.start, sentence.end) else [*facts, *asked]

    def _statements(self, sentence: Sentence, parts: Sequence[Clause]) -> Iterator[Clause]:
        """The clauses that state something; of a question those before it, and its reasons."""
        tagged = sentence.is_question and self.known.sign("tag").fullmatch(self.shown, parts[-1].start, parts[-1].end)
        asking = tagged or self._begins("question", sentence.start, sentence.end)
        supposing = self._begins("void_both", sentence.start, sentence.end)
        reported = False
        for place, part in enumerate(parts):
            reported = self._reported(part, reported)
            wish = self.known.sign("request").match(self.shown, part.start, part.end)
            if wish:
                yield Clause(wish.end(), part.end)
                continue
            asked = asking or (sentence.is_question and place == len(parts) - 1)
            reason = self.known.sign("because").fullmatch(part.connector) is not None
            void = supposing or reported or self._begins("question", part.start, part.end) or self._orders(part)
            if (reason or not asked) and not void:
                yield part

    def _orders(self, part: Clause) -> bool:
        return self._begins("orders", skip_lead(self.shown, part.start, part.end), part.end)

    def _reported(self, part: Clause, before: bool) -> bool:
        """Another's word, or what goes on from it; "I told her that …" is the speaker's own."""
        if self._begins("own_word", skip_lead(self.shown, part.start, part.end), part.end):
            return False
        goes_on = before and self.known.sign("goes_on").fullmatch(part.connector) is not None
        return goes_on or self._has("reported", part.start, part.end)

    def _fact(self, clause: Clause, start: int) -> list[Found]:
        found = match_fact(self.shown, self.text, start, clause.end)
        if found is None:
            return []
        # "If you are unsure, ask me" is an order, and supposes nothing.
        void = found.kind != "instruction" and self._has("void_clause", clause.start, clause.end)
        if void or (not found.holds and self._has("passing", clause.start, clause.end)):
            return []
        return [self._worth(start, clause.end, found.kind, found.slot)]

    def _refusal(self, sentence: Sentence) -> re.Match[str] | None:
        """What turns down something said before; a sentence that does nothing else speaks for the next one."""
        before, self.refused = self.refused, None
        for sign in ("corrects", "rejects"):
            match = self.known.sign(sign).match(self.shown, sentence.start, sentence.end)
            if match:
                self.refused = match if match.end() == sentence.end else None
                return match
        return before

    def _correction(self, clause: Clause, refusal: re.Match[str]) -> list[Found]:
        """Of what was said last: in this message, or else in the one before. One that says nothing by itself, such as
        "it's Ana", is kept only if it fills a slot."""
        earlier = self.shown[: refusal.start()]
        slot = find_topic_slot([("user", earlier)] if earlier.strip() else self.before)
        clear = refusal.re is self.known.sign("corrects")
        behind = refusal.end() if clause.start < refusal.end() < clause.end else clause.start
        for start in (skip_lead(self.shown, clause.start, clause.end), behind):
            match = match_right_value(self.shown, start, clause.end, sure=clear or slot is not None)
            if match is None:
                continue
            filled = slot if slot and fits_slot(slot, self.text[slice(*match.span("value"))], sure=clear) else None
            if filled or self.known.sign("whole").match(self.shown, start, clause.end):
                return [self._worth(start, clause.end, "correction", filled)]
        return []

    def _by_the_way(self, sentence: Sentence, parts: Sequence[Clause], kept: Sequence[Found]) -> list[Found]:
        """Such as "as a nurse, how do I …"."""
        found: list[Found] = []
        for rule in self.known.inner_rules:
            for match in rule.pattern.finditer(self.shown, sentence.start, sentence.end):
                start, end = match.span("said")
                around = next(part for part in reversed(parts) if part.start <= start or part is parts[0])
                taken = any(start < one.end and one.start < end for one in (*kept, *found))
                void = self._has("void_clause", around.start, around.end) or self._reported(around, before=False)
                # "Guess where I live": an order, not a place.
                if not taken and not void and not self._begins("orders", start, around.end):
                    found.append(self._worth(start, end, rule.kind, fill_slot(rule, match, self.text)))
        return found

    def _worth(self, start: int, end: int, kind: str, slot: str | None) -> Statement:
        start, end = trim_span(self.shown, start, end)
        importance = _IMPORTANCE.get(kind, _DEFAULT_IMPORTANCE)
        return Statement(start, end, slot, importance, kind == "explicit", self._replaced(start, end))

    def _replaced(self, start: int, end: int) -> str | None:
        for pattern in self.known.asks["replaces"]:
            match = compile_pattern(pattern).search(self.shown, start, end)
            if match:
                return self.text[slice(*trim_span(self.shown, *match.span("old")))] or None
        return None

    def _parts(self, sentence: Sentence) -> list[Clause]:
        return split_clauses(self.shown, sentence, self.known.sign("breaks"), self.known.sign("opens"))

    def _has(self, sign: str, start: int, end: int) -> bool:
        # A slice, since "^" means the start of the string even where the search begins later.
        return self.known.sign(sign).search(self.shown[start:end]) is not None

    def _begins(self, sign: str, start: int, end: int) -> bool:
        return self.known.sign(sign).match(self.shown, start, end) is not None

    def _asked(self, what: str, words: frozenset[str], start: int, end: int) -> re.Match[str] | None:
        if words.isdisjoint(self.known.hints[what]):
            return None
        tried = (compile_pattern(pattern).match(self.shown, start, end) for pattern in self.known.asks[what])
        return next(filter(None, tried), None)


def _keep_last_per_slot(found: Sequence[Found]) -> list[Found]:
    """In order, and of two values for one slot only the last fills it."""
    ordered = sorted(found, key=lambda one: one.start)
    last = {one.slot: one for one in ordered if isinstance(one, Statement)}
    return [
        replace(one, slot=None) if isinstance(one, Statement) and last[one.slot] is not one else one for one in ordered
    ]
