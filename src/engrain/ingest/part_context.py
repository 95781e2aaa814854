"""Cut and join the parts of a message: long sentences, clauses, and fragments that belong to what is before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.core.model.items import Statement
from engrain.core.rules.statements import load_statement_rules
from engrain.core.text import passages
from engrain.core.text.passages import Clause, Sentence
from engrain.ingest.clause_rules import split_run_on
from engrain.ingest.sentence_model import (
    Verdict,
    has_own_matter,
    has_subject,
    is_fragment,
    join_fragments,
)

MAX_READ_CHARACTERS = 3_000  # of a sentence without an end: a longer one is pasted text
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


def widen_fragment(text: str, part: Sentence, before: Sentence | None, verdict: Verdict) -> Sentence:
    """Return a kept fragment with the sentence before it on its line: "passed the test! First time, 3 minors"."""
    if before is None or before.is_question or not verdict.keep or not _is_fragment(text, part, verdict):
        return part
    if _LINE_BREAK in text[before.end : part.start] or not has_subject(text[before.start : before.end]):
        return part
    return replace(part, start=before.start)


def _is_fragment(text: str, part: Sentence, verdict: Verdict) -> bool:
    """Tell if a part has no subject, verb or matter of its own, and is neither a wish nor a courtesy."""
    said = text[part.start : part.end]
    if part.is_question or verdict.kind == "instruction" or has_own_matter(said):
        return False
    return is_fragment(said) and load_statement_rules().sign("thanks").match(text, part.start, part.end) is None


def is_bare_end(text: str, one: Statement) -> bool:
    """Tell if a few words end the value of a slot and name none: "I broke up". The sentence tells the rest."""
    said = text[one.start : one.end]
    short = len(said.split()) <= _MAX_END_WORDS and one.replaces is None
    return short and load_statement_rules().sign("ended").search(said) is not None
