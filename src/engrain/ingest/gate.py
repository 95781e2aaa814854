"""Find the statements in a message that are worth keeping, by rules and without a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from engrain.core.model.items import ForgetRequest, Statement
from engrain.core.rules import own_words
from engrain.core.rules.asked_manner import asks_for_manner
from engrain.core.rules.profile import UNSURE_IMPORTANCE
from engrain.core.rules.quotation_frames import COLON, HIDDEN_LETTER, cue, find_cue, introduces_text, is_labelled
from engrain.core.rules.slot_names import fill_slot, find_mentioned_slot
from engrain.core.rules.statements import compile_pattern, load_statement_rules
from engrain.core.secrets.redact import contains_secret
from engrain.core.text.passages import Clause, Sentence, Span, split_sentences, trim_span
from engrain.ingest.clause_rules import (
    find_topic_slot,
    fits_slot,
    keep_last_per_slot,
    match_fact,
    match_right_value,
    skip_lead,
)
from engrain.ingest.part_context import (
    cut_long_sentences,
    find_steps,
    goes_on,
    is_about_task,
    is_bare_end,
    is_remark,
    is_task,
    join_clauses,
    split_clauses,
    widen_fragment,
)
from engrain.ingest.sentence_model import Verdict, join_fragments, split_by_subject
from engrain.ingest.whose_words import OwnChances

# Only the two ends of a long message are read: the middle is mostly pasted text.
HEAD_CHARACTERS, TAIL_CHARACTERS = 4_000, 2_000
# Beyond these limits a message is not speech but pasted text.
MAX_SENTENCE_CHARACTERS = 600
MAX_STATEMENTS, MAX_SENTENCES = 12, 80
MAX_PLAIN_WORDS = 4  # "I live in Kiel"
MIN_REST_WORDS = 6  # beside the facts of a sentence that fill slots
_IMPORTANCE = {"explicit": 0.8, "identity": 0.8, "instruction": 0.8, "preference": 0.7, "decision": 0.7, "denial": 0.7}
_DEFAULT_IMPORTANCE = 0.6
_CUT = "\n\n"  # between the two ends of a long message
_WORD = re.compile(r"[\w'-]+")
_KEEPING = {"keep", "keeping", "remember", "remembering", "save", "store"}  # only behind "don't" requests to forget
_OWN_LETTER = re.compile(rf"[^\W{HIDDEN_LETTER}]")  # not in quotation marks

Found = Statement | ForgetRequest
# Judges as many of the sentences as its model reads.
JudgeSentences = Callable[[str, Sequence[Sentence]], Sequence[Verdict]]
# Tells whose words a text has, given the text without pasted words; None without a model.
JudgeSpeakers = Callable[[str, str], OwnChances | None]


def find_statements(
    text: str,
    before: Sequence[tuple[str, str]] = (),
    judge: JudgeSentences | None = None,
    whose: JudgeSpeakers | None = None,
) -> list[Found]:
    """Return the lasting statements of a user's message, in order. `before` are the session's last (role, text).

    Rules find what is sure; `judge` finds what people say in words of their own. Of a long message only the two ends
    are read, and only the first of them is judged.
    """
    plain = own_words.blank_blocks(text)
    if len(plain) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return _MessageReader(text, plain, before, judge, whose).read()
    cut = plain.find("\n", len(plain) - TAIL_CHARACTERS) + 1 or len(plain)
    ends, shown = (f"{one[:HEAD_CHARACTERS]}{_CUT}{one[cut:]}" for one in (text, plain))
    skipped = cut - HEAD_CHARACTERS - len(_CUT)
    found = _MessageReader(ends, shown, before, judge, whose).read()
    return [
        one if one.end <= HEAD_CHARACTERS else replace(one, start=one.start + skipped, end=one.end + skipped)
        for one in found
    ]


def find_own_words(text: str, before: Sequence[tuple[str, str]], whose: JudgeSpeakers | None) -> own_words.OwnWords:
    """Blank the words of others: by the rules, or by the model if it reads the text."""
    words = own_words.find_own_words(text, before)
    if whose is None or len(text) > HEAD_CHARACTERS:
        return words
    reader = _MessageReader(text, own_words.blank_blocks(text), before, None, whose)
    return words if reader.chances is None else own_words.OwnWords(reader.shown, words.mixed or reader.mixed)


def _overlap(one: Found | Sentence, other: Found | Sentence) -> bool:
    return one.start < other.end and other.start < one.end


class _MessageReader:
    """Reader of one message. `text` is the original; `shown` blanks what has the shape of a pasted text."""

    def __init__(
        self,
        text: str,
        plain: str,
        before: Sequence[tuple[str, str]],
        judge: JudgeSentences | None,
        whose: JudgeSpeakers | None,
    ) -> None:
        self.rules, self.judge, self.whose = load_statement_rules(), judge, whose
        self.text, self.before = text, before
        self.shown = own_words.blank_pasted(plain)
        self.announced, self.mixed = own_words.find_announced(text, self.shown, before)
        self.signed = False  # the model, an announcement or a quotation tells of words of others
        self.chances = self._judge_parts()
        self.sentences = cut_long_sentences(self.shown, split_sentences(self.shown), MAX_SENTENCE_CHARACTERS)
        self.found: list[Found] = []
        self.stated: list[Found] = []  # by the rules alone
        self.sure: list[Sentence] = []  # what the judge surely keeps
        self.refused: re.Match[str] | None = None
        self.titled = False  # by the rules: a title before a statement must not fill a slot

    def read(self) -> list[Found]:
        last: Sentence | None = None
        orders = 0  # to forget
        for sentence in (*self.sentences[:MAX_SENTENCES], *self.sentences[MAX_SENTENCES:][-MAX_SENTENCES:]):
            if len(self.found) >= MAX_STATEMENTS:
                break
            if sentence.end - sentence.start <= MAX_SENTENCE_CHARACTERS:
                new = self._read_sentence(sentence, last)
                self.found = [*self.found, *new]
                orders += any(isinstance(one, ForgetRequest) for one in new) or self._orders_to_forget(sentence)
                last = sentence
        self.stated = self.found
        if self.judge is not None and not any(isinstance(one, ForgetRequest) for one in self.found):
            self.found = self._add_judged(self.judge)
        own = self._keep_own_words(doubtful=orders > 1) if self.found else []
        return keep_last_per_slot([one for one in own if one.start < one.end])

    def _orders_to_forget(self, sentence: Sentence) -> bool:
        """Tell if a sentence begins as a request to forget, also one that names nothing: "Forget everything"."""
        first = _WORD.match(self.shown, skip_lead(self.shown, sentence.start, sentence.end), sentence.end)
        return first is not None and first[0].lower() in self.rules.hints["unsaid"] - _KEEPING

    def _judge_parts(self) -> OwnChances | None:
        """Blank the parts that are probably not the speaker's, and return the chances of all parts."""
        told = self.announced == [(0, len(self.text))]  # in the message before, or all of it is a story
        chances = self.whose(self.text, self.shown) if self.whose and not told else None
        if chances is not None:
            self.signed = chances.mixed or bool(self.announced) or any(own_words.find_hidden(self.text, self.shown))
            self.mixed = self.mixed or self.signed
            self.shown = own_words.blank_spans(self.shown, chances.list_others(len(self.shown), mixed=self.signed))
        return chances

    def _add_judged(self, judge: JudgeSentences) -> list[Found]:
        """Add what `judge` keeps, and drop what it surely refuses."""
        parts, found = self._list_parts(), self.found
        verdicts = judge(self._find_judged_text(), parts)
        steps = find_steps(self.shown, parts, verdicts)
        before, last = None, None
        for part, verdict in zip(parts, verdicts, strict=False):
            # Read with the words before it: "she's great" says nothing alone, "York now" is the news of "we moved".
            remark = is_remark(self.shown, part)
            self.sure += [part] if verdict.keep and verdict.sure else []
            if part in steps or is_about_task(self.shown, part, verdict, before, last):
                # Other statements of the rules are of the speaker, and stay.
                found = [one for one in found if not (isinstance(one, Statement) and one.wish and _overlap(one, part))]
            elif before and not remark and (longer := self._extend_statement(found, before, part, verdict)):
                found = longer
            elif not remark:
                found = self._apply_verdict(found, widen_fragment(self.shown, part, before, verdict), verdict)
            before, last = part, verdict
        return [piece for one in found for piece in self._split_statement(one, judge)]

    def _split_statement(self, one: Found, judge: JudgeSentences) -> list[Found]:
        """Split a statement into clauses that each say something lasting of a subject of their own.

        "My husband is vegan, I eat anything" is two facts, so that news of one leave the other. The statement stays
        whole if one of its clauses says nothing alone.
        """
        if isinstance(one, ForgetRequest) or one.explicit or one.slot:
            return [one]
        clauses = split_clauses(self.shown, Sentence(one.start, one.end, is_question=False))
        parts = split_by_subject(self.shown, clauses, one.end)
        verdicts = judge(self._find_judged_text(), parts) if len(parts) > 1 else ()
        pieces: list[Found] = []
        for part, verdict in zip(parts, verdicts, strict=False):
            if not verdict.keep or not verdict.sure:
                return [one]
            piece = self._build_statement(part.start, part.end, verdict.kind, None)
            pieces.append(replace(piece, importance=min(piece.importance, one.importance)))
        return pieces or [one]

    def _find_judged_text(self) -> str:
        """Return the text to judge, without the words of others if the model tells whose they are."""
        if not self.signed:
            return self.text
        return own_words.blank_spans(self.text, list(own_words.find_hidden(self.text, self.shown)))

    def _extend_statement(self, found: list[Found], before: Sentence, part: Sentence, verdict: Verdict) -> list[Found]:
        """Return the statements with the one that ends with `before` carried on by a fragment, or none."""
        if not goes_on(self.shown, part, verdict):
            return []
        if "\n" in self.shown[before.end : part.start] or any(_overlap(one, part) for one in found):
            return []
        end = trim_span(self.shown, before.start, before.end)[1]
        for one in found:
            if isinstance(one, Statement) and one.slot is None and not one.explicit and one.end == end:
                return [replace(one, end=part.end) if other is one else other for other in found]
        return []

    def _list_parts(self) -> list[Sentence]:
        """Return the parts to judge: the sentences, or the clauses of one that fills a slot.

        A slot has one fact: what stands beside it is a statement of its own.
        """
        readable = [one for one in self.sentences[:MAX_SENTENCES] if one.end - one.start <= MAX_SENTENCE_CHARACTERS]
        parts: list[Sentence] = []
        for sentence in join_fragments(self.shown, readable):
            slotted = any(
                isinstance(one, Statement) and one.slot and _overlap(one, sentence) and not is_bare_end(self.shown, one)
                for one in self.found
            )
            parts += join_clauses(self.shown, sentence) if slotted else [sentence]
        return parts

    def _apply_verdict(self, found: list[Found], part: Sentence, verdict: Verdict) -> list[Found]:
        """Keep a statement as its whole part, so that nothing is cut off."""
        inside = [one for one in found if _overlap(one, part)]
        loose = [one for one in inside if isinstance(one, Statement) and not one.explicit]
        others = [one for one in found if one not in loose]
        # A clause alone is too little to refuse what a rule is sure of, and so are a few words that fill a slot.
        whole_sentence = any(part.start <= one.start and one.end <= part.end for one in self.sentences)
        few = not part.is_question and len(_WORD.findall(self.shown, part.start, part.end)) <= MAX_PLAIN_WORDS
        if verdict.drop and whole_sentence and not any(one.wish or (one.slot and few) for one in loose):
            return others
        wanted = verdict.keep or (loose and not part.is_question)
        slots = {one.slot for one in loose if one.slot}
        quoted = self.text[part.start : part.end]
        if len(slots) > 1 and verdict.keep:
            return [*found, *self._find_rest(part, loose, verdict.kind)]
        wish = verdict.sure and verdict.kind == "instruction"  # "correct my English at the end"
        refused = contains_secret(quoted) or (not wish and find_cue("forward", quoted))
        if not wanted or refused or len(loose) < len(inside) or len(slots) > 1 or len(others) >= MAX_STATEMENTS:
            return found
        clause = slots and not any(is_bare_end(self.shown, one) for one in loose)
        start = min(one.start for one in loose) if clause else skip_lead(self.shown, part.start, part.end)
        whole = self._build_statement(start, part.end, verdict.kind, next(iter(slots), None))
        if not verdict.sure and verdict.kind != "instruction":
            whole = replace(whole, importance=UNSURE_IMPORTANCE)
        together = (whole, *loose)
        wish = any(one.wish for one in together) and not self._begins("habit", start, part.end)
        importance = max(one.importance for one in together)
        return [*others, replace(whole, importance=importance, wish=wish)]

    def _find_rest(self, part: Sentence, stated: Sequence[Statement], kind: str) -> list[Found]:
        """Return what a kept sentence says between the facts that fill its slots, if that is more than a few words."""
        stated = sorted(stated, key=lambda one: one.start)
        gaps = zip((part.start, *(one.end for one in stated)), (*(one.start for one in stated), part.end), strict=True)
        led = ((skip_lead(self.shown, *gap), gap[1]) for gap in gaps)
        rest = [trim_span(self.shown, start, end) for start, end in led if start < end]
        return [
            self._build_statement(start, end, kind, None)
            for start, end in rest
            if len(_WORD.findall(self.shown, start, end)) >= MIN_REST_WORDS
            and not contains_secret(self.text[start:end])
        ]

    def _keep_own_words(self, *, doubtful: bool) -> list[Found]:
        """Drop the statements that others made. A request to forget among the words of others is doubtful."""
        end, all_own = self._find_serious_end(), self._is_all_own()
        weigh = self._weigh_by_rules() if self.chances is None else self.chances.weigh
        own: list[Found] = []
        for one in self.found:
            span = one.start, one.end
            weight = max(weigh(*span), int(self.signed))
            if one.end > end or introduces_text(self.shown, *span) or not _OWN_LETTER.search(self.shown, *span):
                weight = own_words.MAX_DOUBT + 1
            if isinstance(one, ForgetRequest):
                introduced = COLON.search(self.shown, 0, one.start) is not None  # by somebody, or something
                own.append(replace(one, doubtful=doubtful or self.mixed or introduced or weight > 0))
            elif weight <= own_words.MAX_DOUBT:
                apart = replace(one, slot=None, replaces=None, doubtful=weight > 0, spares_slots=True)
                own.append(apart if weight > 0 or not all_own or self.titled else one)
        return own

    def _is_all_own(self) -> bool:
        """Tell if all of the message is so surely its speaker's that it may set and end the values of slots."""
        return self.chances is None or (not self.signed and self.chances.is_sure(len(self.text.rstrip())))

    def _weigh_by_rules(self) -> Callable[[int, int], int]:
        """Return the doubt about a span, where no model tells whose words it has."""
        others = [span for span in self.announced if not self._is_own_label(span[0])]
        # A sentence that only the judge keeps may be the title of the text that the others are of.
        stated = [self._find_stated_span(one) for one in self.stated or self.found]
        doubt = own_words.Doubt(self.text, self.sentences, stated, self.shown, others if self.mixed else None)
        self.titled, self.mixed = doubt.titled, self.mixed or doubt.weight > 0 or doubt.titled

        def weigh(start: int, end: int) -> int:
            if is_labelled(self.shown, start) or any(start < stop and first < end for first, stop in others):
                return own_words.MAX_DOUBT + 1
            return doubt.weigh(start, end)

        return weigh

    def _is_own_label(self, end: int) -> bool:
        """Tell if a label such as "the team:" opens a sentence of the speaker that surely lasts, and names no text."""
        labels = (self.shown[one.start : end] for one in self.sure if one.start < end <= one.end)
        return any(label.endswith(":") and not cue("textual").search(label) for label in labels)

    def _find_stated_span(self, one: Found) -> Span:
        """Return the span of a statement, with the words that ask to keep or forget it."""
        if isinstance(one, Statement) and not one.explicit:
            return one.start, one.end
        return next((part.start for part in self.sentences if part.end >= one.end), one.start), one.end

    def _find_serious_end(self) -> int:
        """Return where fiction begins: statements behind it are not meant."""
        if self._has("void_message", 0, len(self.shown)):
            return 0
        fiction = (one.start for one in self.sentences if self._has("void_onward", one.start, one.end))
        return next(fiction, len(self.shown))

    def _read_sentence(self, sentence: Sentence, last: Sentence | None) -> list[Found]:
        words = frozenset(_WORD.findall(self.shown[sentence.start : sentence.end].lower()))
        start = skip_lead(self.shown, sentence.start, sentence.end)
        thing = self._match_request("unsaid", words, start, sentence.end)
        if thing:
            at, end = trim_span(self.shown, *thing.span("said"))
            found = match_fact(self.shown, self.text, at, end)
            return [ForgetRequest(at, end, found.slot if found else find_mentioned_slot(self.shown[at:end]))]
        statement = self._match_request("untold", words, start, sentence.end)
        if statement:
            # Split as for keeping them, so that the same statements are found again.
            stated = self._split_statements(*trim_span(self.shown, *statement.span("said")), explicit=True)
            return [ForgetRequest(one.start, one.end, one.slot) for one in stated]
        if last and self._match_request("back", words, start, sentence.end):
            return self._keep_previous(last)
        facts = self._find_requested(words, sentence, sentence) or self._find_stated(words, sentence)
        task = last is not None and is_task(self.shown[last.start : last.end])
        manner = asks_for_manner(self.shown[start : sentence.end], sentence.is_question, of_task=task)
        if manner and not any(getattr(one, "wish", True) for one in facts):
            kept = [one for one in facts if one.slot]
            wish = self._build_statement(start, sentence.end, "instruction", None)
            facts = kept if any(_overlap(one, wish) for one in kept) else [*kept, wish]
        return self._drop_secrets(sentence, facts)

    def _drop_secrets(self, sentence: Sentence, found: list[Found]) -> list[Found]:
        return [] if found and contains_secret(self.text[sentence.start : sentence.end]) else found

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
        parts = split_clauses(self.shown, Sentence(start, end, False))
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
        parts = split_clauses(self.shown, sentence)
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
            order = self._begins("orders", skip_lead(self.shown, part.start, part.end), part.end)
            void = supposing or reported or order or self._begins("question", part.start, part.end)
            if (reason or not asked) and not void:
                yield part

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
        importance, wish = _IMPORTANCE.get(kind, _DEFAULT_IMPORTANCE), kind == "instruction"
        return Statement(start, end, slot, importance, kind == "explicit", self._find_replaced(start, end), wish=wish)

    def _find_replaced(self, start: int, end: int) -> str | None:
        tried = (compile_pattern(one).search(self.shown, start, end) for one in self.rules.asks["replaces"])
        match = next(filter(None, tried), None)
        return match and (self.text[slice(*trim_span(self.shown, *match.span("old")))] or None)

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
