"""Read a part of a message with the parts around it: what it belongs to, and whether it says anything alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from engrain.core.model.items import Statement
from engrain.core.rules.asked_manner import speaks_once
from engrain.core.rules.statements import load_statement_rules
from engrain.core.text import passages
from engrain.core.text.passages import Clause, Sentence
from engrain.ingest.clause_rules import split_run_on
from engrain.ingest.sentence_model import (
    MAX_FRAGMENT_WORDS,
    Verdict,
    has_own_matter,
    has_subject,
    has_topic,
    is_fragment,
    join_fragments,
)

MAX_READ_CHARACTERS = 3_000  # of a sentence without an end: a longer one is pasted text
_PAUSE = re.compile(r"[,;:–—-]\s+")
_MAX_STEP_WORDS = 40
_MAX_END_WORDS = 4
_LINE_BREAK = "\n"


def cut_long_sentences(text: str, sentences: Sequence[Sentence], most: int) -> list[Sentence]:
    """Cut sentences of more than `most` characters into their clauses: people also write without a full stop."""
    cut: list[Sentence] = []
    for one in sentences:
        if most < one.end - one.start <= MAX_READ_CHARACTERS:
            clauses = split_clauses(text, one)
            cut += [Sentence(part.start, part.end, one.is_question and part is clauses[-1]) for part in clauses]
        else:
            cut.append(one)
    return cut


def split_clauses(text: str, sentence: Sentence) -> list[Clause]:
    rules = load_statement_rules()
    return split_run_on(text, passages.split_clauses(text, sentence, rules.sign("breaks"), rules.sign("opens")))


def join_clauses(text: str, sentence: Sentence) -> list[Sentence]:
    """Return the clauses of a sentence, each with its reasons and with what stands in brackets behind it."""
    clauses, because = split_clauses(text, sentence), load_statement_rules().sign("because")
    joined: list[Sentence] = []
    for one in clauses:
        part = Sentence(one.start, one.end, sentence.is_question and one is clauses[-1])
        belongs = one.connector in ("(", ")") or because.fullmatch(one.connector)
        if joined and belongs and not part.is_question:
            joined[-1] = replace(joined[-1], end=one.end)
        else:
            joined.append(part)
    return join_fragments(text, joined)


def is_remark(text: str, part: Sentence) -> bool:
    """Tell if words only judge somebody or something that they do not name."""
    said = load_statement_rules().sign("remark").fullmatch(text, part.start, part.end)
    return said is not None and not has_topic(said[0])


def _is_bare(text: str, part: Sentence, most: int = MAX_FRAGMENT_WORDS) -> bool:
    """Tell if words have no subject or verb of their own, and are not a courtesy."""
    if part.is_question or load_statement_rules().sign("thanks").match(text, part.start, part.end):
        return False
    return is_fragment(text[part.start : part.end], most)


def find_steps(text: str, parts: Sequence[Sentence], verdicts: Sequence[Verdict]) -> set[Sentence]:
    """Return the lines of recipes and the like: bare parts in a row, none of them sure, and one surely no statement."""
    steps: set[Sentence] = set()
    row: list[Sentence] = []
    dropped = False
    for part, verdict in zip(parts, verdicts, strict=False):
        named = has_own_matter(text[part.start : part.end])
        if verdict.sure or named or not _is_bare(text, part, _MAX_STEP_WORDS):
            row, dropped = [], False
            continue
        row.append(part)
        dropped = dropped or verdict.drop
        steps.update(row if dropped else ())
    return steps if len(steps) > 1 else set()


def goes_on(text: str, part: Sentence, verdict: Verdict) -> bool:
    """Tell if a part carries on the statement before it: few words without a subject, or a matter of their own."""
    if verdict.drop or verdict.kind == "instruction" or not _is_bare(text, part):
        return False
    return not (verdict.keep and has_own_matter(text[part.start : part.end]))


def widen_fragment(text: str, part: Sentence, before: Sentence | None, verdict: Verdict) -> Sentence:
    """Return a kept fragment with the sentence before it on its line: "passed the test! First time, 3 minors"."""
    if before is None or not verdict.keep or before.is_question or not goes_on(text, part, verdict):
        return part
    if _LINE_BREAK in text[before.end : part.start] or not has_subject(text[before.start : before.end]):
        return part
    return replace(part, start=before.start)


def is_bare_end(text: str, one: Statement) -> bool:
    """Tell if a few words end the value of a slot and name none: "I broke up". The sentence tells the rest."""
    said = text[one.start : one.end]
    short = len(said.split()) <= _MAX_END_WORDS and one.replaces is None
    return short and load_statement_rules().sign("ended").search(said) is not None


def is_task(text: str) -> bool:
    """Tell if a sentence orders one piece of work: "write the release notes"."""
    return speaks_once(text) and not has_subject(text)


def is_about_task(text: str, part: Sentence, verdict: Verdict, before: Sentence | None, last: Verdict | None) -> bool:
    """Tell if a part speaks of the matter of a single question or order: it says nothing alone."""
    habit = load_statement_rules().sign("habit").match(text, part.start, part.end)
    if verdict.sure and verdict.kind == "instruction" and not habit:
        return False
    return _is_of_task(text, part, before, last) or (not verdict.sure and _only_asks(text, part))


def _only_asks(text: str, part: Sentence) -> bool:
    """Tell if a question has nothing before it but its matter: "tabs or spaces, what do most people use?"."""
    if not part.is_question:
        return False
    question = load_statement_rules().sign("question")
    pauses = [one for one in _PAUSE.finditer(text, part.start, part.end) if question.match(text, one.end(), part.end)]
    return bool(pauses) and is_fragment(text[part.start : pauses[0].start()])


def _is_of_task(text: str, part: Sentence, before: Sentence | None, before_verdict: Verdict | None) -> bool:
    """Tell if words speak of what is asked or ordered before them: "which one is port? I always mix them up"."""
    rules = load_statement_rules()
    clause = split_clauses(text, part)[-1]
    if rules.sign("refers").search(text[clause.start : clause.end]) is None:
        return False
    if clause.start > part.start:
        return not has_subject(text[part.start : clause.start])
    if before is None or before_verdict is None or _LINE_BREAK in text[before.end : part.start]:
        return False
    return before.is_question or (before_verdict.drop and not has_subject(text[before.start : before.end]))
