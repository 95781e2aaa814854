"""Find the statements in a message that are worth keeping, by rules and without a model."""

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

# Only the two ends of a long message are read: the middle is mostly pasted text.
HEAD_CHARACTERS, TAIL_CHARACTERS = 4_000, 2_000
# Beyond these limits a message is not speech but pasted text.
MAX_SENTENCE_CHARACTERS = 600
MAX_STATEMENTS = 12
MAX_SENTENCES = 80
_IMPORTANCE = {"explicit": 0.8, "identity": 0.8, "instruction": 0.8, "preference": 0.7, "decision": 0.7, "denial": 0.7}
_DEFAULT_IMPORTANCE = 0.6
_WORD = re.compile(r"[\w'-]+")

Found = Statement | ForgetRequest


def find_statements(text: str, before: Sequence[tuple[str, str]] = ()) -> list[Found]:
    """Return the lasting statements of a user's message, in order. `before` are the session's last (role, text)."""
    plain = blank_code(text)
    if len(plain) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return _MessageReader(text, plain, before).read()
    cut = plain.find("\n", len(plain) - TAIL_CHARACTERS) + 1 or len(plain)
    found = _MessageReader(text[:HEAD_CHARACTERS], plain[:HEAD_CHARACTERS], before).read()
    tail = _MessageReader(text[cut:], plain[cut:], before).read(from_the_end=True)
    return [*found, *(replace(one, start=one.start + cut, end=one.end + cut) for one in tail)][:MAX_STATEMENTS]


class _MessageReader:
    """Reader of one message. `text` is the original; `shown` blanks all words that are not the speaker's own."""

    def __init__(self, text: str, plain: str, before: Sequence[tuple[str, str]]) -> None:
        self.rules = load_statement_rules()
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
                new = self._read_sentence(sentence, last)
                self.found = [*self.found, *new]
                last = sentence
        end = self._find_serious_end() if self.found else 0
        serious = (one for one in self.found if isinstance(one, ForgetRequest) or one.end <= end)
        return _keep_last_per_slot([one for one in serious if one.start < one.end])

    def _find_serious_end(self) -> int:
        """Return where fiction or quoted text begins: statements behind it are not the speaker's own."""
        if self._has("void_message", 0, len(self.shown)):
            return 0
        quoted = self.rules.sign("void_after").search(self.shown) if ":" in self.shown else None
        end = quoted.end() if quoted else len(self.shown)
        fiction = (
            one.start for one in split_sentences(self.shown[:end]) if self._has("void_onward", one.start, one.end)
        )
        return next(fiction, end)

    def _read_sentence(self, sentence: Sentence, last: Sentence | None) -> list[Found]:
        words = frozenset(_WORD.findall(self.shown[sentence.start : sentence.end].lower()))
        start = skip_lead(self.shown, sentence.start, sentence.end)
        thing = self._match_request("unsaid", words, start, sentence.end)
        if thing:
            return [self._build_forget_request(*trim_span(self.shown, *thing.span("said")))]
        statement = self._match_request("untold", words, start, sentence.end)
        if statement:
            return self._forget_statements(*trim_span(self.shown, *statement.span("said")))
        if last and self._match_request("back", words, start, sentence.end):
            return self._keep_previous(last)
        found = self._find_requested(words, sentence, sentence) or self._find_stated(words, sentence)
        return self._drop_secrets(sentence, found)

    def _drop_secrets(self, sentence: Sentence, found: list[Found]) -> list[Found]:
        return [] if found and contains_secret(self.text[sentence.start : sentence.end]) else found

    def _build_forget_request(self, start: int, end: int) -> ForgetRequest:
        found = match_fact(self.shown, self.text, start, end)
        return ForgetRequest(start, end, found.slot if found else find_mentioned_slot(self.shown[start:end]))

    def _forget_statements(self, start: int, end: int) -> list[Found]:
        """Split the words as for keeping them, so that the same statements are found again."""
        return [
            ForgetRequest(one.start, one.end, one.slot) for one in self._split_statements(start, end, explicit=True)
        ]

    def _keep_previous(self, last: Sentence) -> list[Found]:
        """Keep the sentence before one such as "remember that"."""
        stated = [one for one in self.found if one.start >= last.start and isinstance(one, Statement)]
        self.found = [one for one in self.found if one.start < last.start]
        kept: list[Found] = [replace(one, explicit=True, importance=_IMPORTANCE["explicit"]) for one in stated]
        return kept or self._drop_secrets(last, self._split_statements(last.start, last.end, explicit=True))

    def _find_requested(self, words: frozenset[str], part: Sentence | Clause, sentence: Sentence) -> list[Found]:
        """Return the statements that the speaker asks to keep, up to the end of the sentence."""
        if sentence.is_question and not self._begins("asks_to_keep", part.start, part.end):
            return []
        for start in (skip_lead(self.shown, part.start, part.end), part.start):
            match = self._match_request("explicit", words, start, sentence.end)
            if match:
                return self._split_statements(*match.span("said"), explicit=True)
            match = self._match_request("notice", words, start, sentence.end)
            if match and not self._has("passing", *match.span("said")):
                return self._split_statements(*match.span("said"), explicit=False)
        return []

    def _split_statements(self, start: int, end: int, *, explicit: bool) -> list[Found]:
        """Return the words as one statement, or one per clause if each clause states a fact; none for "note it"."""
        if self.rules.sign("points").fullmatch(self.shown, *trim_span(self.shown, start, end)):
            return []
        parts = self._split_clauses(Sentence(start, end, False))
        starts = [skip_lead(self.shown, part.start, part.end) for part in parts]
        facts = [match_fact(self.shown, self.text, at, part.end) for at, part in zip(starts, parts, strict=True)]
        spans = [(at, part.end) for at, part in zip(starts, parts, strict=True)] if all(facts) else [(start, end)]
        kept: list[Found] = []
        for span, found in zip(spans, facts, strict=False):
            kind = "explicit" if explicit else found.kind if found else ""
            kept.append(self._build_statement(*span, kind, found.slot if found else None))
        return kept

    def _find_stated(self, words: frozenset[str], sentence: Sentence) -> list[Found]:
        """Return the facts that a sentence states in its clauses or in passing."""
        refusal = self._find_refusal(sentence)
        facts: list[Found] = []
        requested: list[Found] = []
        parts = self._split_clauses(sentence)
        for clause in self._iterate_stating_clauses(sentence, parts):
            requested = self._find_requested(words, clause, sentence)
            if requested:
                break
            start = skip_lead(self.shown, clause.start, clause.end)
            facts += self._find_fact(clause, start) or (self._find_correction(clause, refusal) if refusal else [])
        facts += self._find_inner_facts(sentence, parts, [*facts, *requested])
        is_void = facts and self._has("void_sentence", sentence.start, sentence.end)
        return requested if is_void else [*facts, *requested]

    def _iterate_stating_clauses(self, sentence: Sentence, parts: Sequence[Clause]) -> Iterator[Clause]:
        """Yield the clauses that state something; in a question, those before it and its reasons."""
        tagged = sentence.is_question and self.rules.sign("tag").fullmatch(self.shown, parts[-1].start, parts[-1].end)
        asking = tagged or self._begins("question", sentence.start, sentence.end)
        supposing = self._begins("void_both", sentence.start, sentence.end)
        reported = False
        for place, part in enumerate(parts):
            reported = self._is_reported(part, reported)
            wish = self.rules.sign("request").match(self.shown, part.start, part.end)
            if wish:
                yield Clause(wish.end(), part.end)
                continue
            asked = asking or (sentence.is_question and place == len(parts) - 1)
            reason = self.rules.sign("because").fullmatch(part.connector) is not None
            void = supposing or reported or self._begins("question", part.start, part.end) or self._is_order(part)
            if (reason or not asked) and not void:
                yield part

    def _is_order(self, part: Clause) -> bool:
        return self._begins("orders", skip_lead(self.shown, part.start, part.end), part.end)

    def _is_reported(self, part: Clause, before: bool) -> bool:
        """Check for another person's words, or their continuation. "I told her that …" is the speaker's own."""
        if self._begins("own_word", skip_lead(self.shown, part.start, part.end), part.end):
            return False
        goes_on = before and self.rules.sign("goes_on").fullmatch(part.connector) is not None
        return goes_on or self._has("reported", part.start, part.end)

    def _find_fact(self, clause: Clause, start: int) -> list[Found]:
        found = match_fact(self.shown, self.text, start, clause.end)
        if found is None:
            return []
        # "If you are unsure, ask me" is an instruction, not a supposition.
        void = found.kind != "instruction" and self._has("void_clause", clause.start, clause.end)
        if void or (not found.holds and self._has("passing", clause.start, clause.end)):
            return []
        return [self._build_statement(start, clause.end, found.kind, found.slot)]

    def _find_refusal(self, sentence: Sentence) -> re.Match[str] | None:
        """Return the words that reject an earlier statement. A sentence of nothing else counts for the next one."""
        before, self.refused = self.refused, None
        for sign in ("corrects", "rejects"):
            match = self.rules.sign(sign).match(self.shown, sentence.start, sentence.end)
            if match:
                self.refused = match if match.end() == sentence.end else None
                return match
        return before

    def _find_correction(self, clause: Clause, refusal: re.Match[str]) -> list[Found]:
        """Return the corrected statement. It corrects this message's last statement, or else the previous message.

        A value without meaning of its own, such as "it's Ana", is kept only if it fills a slot.
        """
        earlier = self.shown[: refusal.start()]
        slot = find_topic_slot([("user", earlier)] if earlier.strip() else self.before)
        sure = refusal.re is self.rules.sign("corrects")
        after_refusal = refusal.end() if clause.start < refusal.end() < clause.end else clause.start
        for start in (skip_lead(self.shown, clause.start, clause.end), after_refusal):
            match = match_right_value(self.shown, start, clause.end, sure=sure or slot is not None)
            if match is None:
                continue
            filled = slot if slot and fits_slot(slot, self.text[slice(*match.span("value"))], sure=sure) else None
            if filled or self.rules.sign("whole").match(self.shown, start, clause.end):
                return [self._build_statement(start, clause.end, "correction", filled)]
        return []

    def _find_inner_facts(self, sentence: Sentence, parts: Sequence[Clause], kept: Sequence[Found]) -> list[Found]:
        """Return facts stated in passing, such as "as a nurse, how do I …"."""
        found: list[Found] = []
        for rule in self.rules.inner_rules:
            for match in rule.pattern.finditer(self.shown, sentence.start, sentence.end):
                start, end = match.span("said")
                around = next(part for part in reversed(parts) if part.start <= start or part is parts[0])
                overlaps = any(start < one.end and one.start < end for one in (*kept, *found))
                void = self._has("void_clause", around.start, around.end) or self._is_reported(around, before=False)
                # "Guess where I live" is an order, not a place.
                if not overlaps and not void and not self._begins("orders", start, around.end):
                    found.append(self._build_statement(start, end, rule.kind, fill_slot(rule, match, self.text)))
        return found

    def _build_statement(self, start: int, end: int, kind: str, slot: str | None) -> Statement:
        start, end = trim_span(self.shown, start, end)
        importance = _IMPORTANCE.get(kind, _DEFAULT_IMPORTANCE)
        return Statement(start, end, slot, importance, kind == "explicit", self._find_replaced(start, end))

    def _find_replaced(self, start: int, end: int) -> str | None:
        for pattern in self.rules.asks["replaces"]:
            match = compile_pattern(pattern).search(self.shown, start, end)
            if match:
                return self.text[slice(*trim_span(self.shown, *match.span("old")))] or None
        return None

    def _split_clauses(self, sentence: Sentence) -> list[Clause]:
        return split_clauses(self.shown, sentence, self.rules.sign("breaks"), self.rules.sign("opens"))

    def _has(self, sign: str, start: int, end: int) -> bool:
        # A slice, because "^" matches only at the start of the string, wherever the search begins.
        return self.rules.sign(sign).search(self.shown[start:end]) is not None

    def _begins(self, sign: str, start: int, end: int) -> bool:
        return self.rules.sign(sign).match(self.shown, start, end) is not None

    def _match_request(self, what: str, words: frozenset[str], start: int, end: int) -> re.Match[str] | None:
        if words.isdisjoint(self.rules.hints[what]):
            return None
        tried = (compile_pattern(pattern).match(self.shown, start, end) for pattern in self.rules.asks[what])
        return next(filter(None, tried), None)


def _keep_last_per_slot(found: Sequence[Found]) -> list[Found]:
    """Sort the statements. Of two values for one slot, only the last fills it."""
    ordered = sorted(found, key=lambda one: one.start)
    last = {one.slot: one for one in ordered if isinstance(one, Statement)}
    return [
        replace(one, slot=None) if isinstance(one, Statement) and last[one.slot] is not one else one for one in ordered
    ]
