"""Split a message into its speaker's own words and the words of others that it quotes, pastes or forwards."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from engrain.core.rules.message_filters import is_prompt_injection
from engrain.core.rules.quotation_frames import (
    HIDDEN_LETTER,
    PARAGRAPH,
    asks,
    cue,
    find_cue,
    find_framed,
    is_own_note,
    is_short,
    shape,
    weigh_frame,
)
from engrain.core.rules.statements import detect_traits
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import Sentence, Span, merge_spans, split_sentences
from engrain.core.text.tokenizer import tokenize

PASTED = 16  # a trait next to those of rules/statements.py
_MAX_OWN_WORDS, _MIN_PASTED_WORDS = 30, 5
_MAY_HAVE_PASTED = re.compile(r"[\n:?\"`“„«‘]")  # whatever announces or surrounds the words of others
_ONE_PHRASE = re.compile(r"[^\n:?!\"`“„«‘.—]*[.!?]?\s*")  # a frame needs more
_MAX_READ_CHARACTERS = 4_000  # a message of few own words begins with them
# An earnest request to forget is short. A longer message may be somebody's text.
MAX_EARNEST_CHARACTERS = 2_000
MAX_TYPED_CHARACTERS = 20_000
MAX_DOUBT = 1  # signs that somebody else made a statement: with more of them it is not kept
_MAX_CUE_CHARACTERS = 400
_MIN_LANGUAGE_EVIDENCE = 2
_MIN_IMPERSONAL_WORDS = 4
_MAX_IMPERSONAL_SENTENCES = 1
_MAX_LEAD_CHARACTERS = 300
_CACHED_MESSAGES = 8
_MIN_OTHERS_CHARACTERS = 20  # a shorter quotation is a title or a term

# Blocks with a mark at either end. One that is never closed goes to the end of the message.
_FENCE = re.compile(r"(?P<mark>`{3,}|~{3,}|\"{3}|'{3})")
_ANNOUNCED_FENCE = re.compile(r"[^\n]{1,400}\n[ \t]*(?:`{3,}|~{3,})")
_TAGGED = re.compile(
    r"<(?P<tag>[A-Za-z][\w-]{0,30})(?:\s[^<>\n]{0,200})?>|\[(?P<bracket>quote|code|spoiler|cite|b|i|url)(?:=[^\]\n]{0,80})?\]",
    re.IGNORECASE,
)
_CLOSING_TAG = re.compile(r"</(?P<tag>[A-Za-z][\w-]{0,30})\s*>|\[/(?P<bracket>\w{1,10})\]")
_RULE_LINE = re.compile(
    r"^[ \t]*(?:[-=*_#~<>+.]{3,}[ \t]*(?:[^\n]{0,60}?[ \t]*[-=*_#~<>+.]{3,})?)[ \t]*$", re.MULTILINE
)
_COMMA_ROWS = re.compile(r"(?:^[^\n,;]{0,80}(?:[,;](?! )[^\n,;]{0,200})+(?:\n|\Z)){3,}", re.MULTILINE)
_KEY_ROWS = re.compile(r"(?:^[ \t]*(?-i:[a-z_])[\w-]{0,30}[:=] ?[^\n]*(?:\n|\Z)){2,}", re.MULTILINE)
_CAPITAL_ROWS = re.compile(r"(?:^[A-Z][A-Z-]{1,20}[;:]\S[^\n]*(?:\n|\Z)){2,}", re.MULTILINE)
_NOT_SPEAKERS = "note|remember|decision|update|correction|reminder|important|rule|also|fyi|ps|edit|context|tip|facts?"
_SPEAKER_LINE = re.compile(
    rf"^[ \t]*+(?:[-*•][ \t]+)?[*_]{{0,2}}(?:\[?\d\d?:\d\d[^\n\]]{{0,12}}\]? ?)?(?!(?:{_NOT_SPEAKERS}):)"
    r"(?:user|assistant|human|ai|bot|system|me|him|her|you|them|us|q|a|"
    r"(?-i:[A-Z])\w{0,20}(?:[ .](?-i:[A-Z])\w{0,20})?)(?: \([^)\n]{1,30}\))?[*_]{0,2}"
    r"(?::|[ \t]?>>?|[ \t]\|)[*_]{0,2} .*$",
    re.MULTILINE | re.IGNORECASE,
)
_ROLE_LINE = re.compile(
    r"^[ \t*_#]*+(?:user|assistant|human|ai|bot|system|developer|tool)[*_]{0,2} ?:", re.MULTILINE | re.IGNORECASE
)
_NUMBERED = re.compile(r"[.!?:;] \d{1,2}[.)] ")  # the clauses of a form
_COLON = re.compile(r":(?=\s)|(?<=\s)(?:[-=]+>|[-–—]+)(?=\s)")
# A label before a statement: "Old proverb: …", or a title over it.
_LABEL = re.compile(
    r"[^\w\n]*+(?P<label>\w(?:[^\n:.!?—–]|(?<=\d)[:–](?=\d)){1,79}?)"
    r"(?::(?!\d|:|//) ?|(?<!\d)[—–] ?| [—–] ?| - |[ \t]*\n[ \t]*\n)"
)
_QUOTED_WORDS = re.compile(
    r"`[^`\n]{1,400}`|(?<!\w)\"(?=\S)[^\"]{1,2000}\"|\"[^\"\n]{1,600}\"|“[^”]{1,2000}”|„[^“”\"]{1,2000}[“”\"]|«[^»]{1,2000}»|‘[^’\n]{1,600}’(?!\w)"
    r"|\[(?=(?:[^\[\]\s]{1,40}\s){3})[^\[\]\n]{12,2000}\]"
    r"|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){1,600}'(?!\w)"
)
_UNCLOSED_QUOTE = re.compile(rf"(?:^|(?<=[\s:(]))[\"“„«](?=[^\s{HIDDEN_LETTER}])", re.MULTILINE)
# The first word after a cue, or the mark that opens a block.
_FOLLOWING = re.compile(r"[\s.,:;!?…)*-]*(?:(?P<block>[`~<>\[\"'“„«=_#])|\S)")
_END_MARKS = re.compile(r"[.!?…]*")
_HIDDEN = re.compile(rf"[{HIDDEN_LETTER}\s]{{{_MIN_OTHERS_CHARACTERS},}}")
_OPENING_MARKS = " \t\n\"'“„«‘`<([>"
_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")
_LINE_END = re.compile(r"[^\w\n]{0,4}(?:\n|\Z)")
_NOT_A_LINE_END = re.compile(r"[^\n]")
_FOREIGN_SCRIPT = re.compile(
    r"[\u0370-\u052f\u0590-\u06ff\u0900-\u0dff\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]"
)


@dataclass(frozen=True, slots=True)
class OwnWords:
    """A message with only its speaker's own words.

    `text` has the message's length: words of others are blank, and quoted ones hidden letters. `mixed`: the message
    has words of others, announces some, or reads as if somebody else wrote it.
    """

    text: str
    mixed: bool


class Doubt:
    """Weighs the signs that somebody else made a statement of a message: 0 none, 1 doubtful, 2 or more surely.

    The words before a text that the message announces are its speaker's own: "I'm a midwife. Translate this: …".
    In any other message with words of others nothing is sure.
    """

    def __init__(
        self,
        text: str,
        sentences: Sequence[Sentence],
        stated: Sequence[Span],
        shown: str,
        others: Sequence[Span] | None,
    ) -> None:
        """`shown` is the text without pasted words, `others` are the spans of others: None if it speaks of no text."""
        self._shown, self._stated = shown, stated
        short = is_short(shown, sentences)
        self.weight = weigh_doubt(shown, sentences, stated, short=short) if stated else 0
        # A short message is its speaker's own, but a title before a statement must not fill a slot.
        self.titled = short and not self.weight and bool(stated) and weigh_doubt(shown, sentences, stated) > 0
        foreign = [] if others is None else merge_spans([*others, *find_hidden(text, shown)])
        self._unsure = int(bool(foreign) or (others is not None and _is_doubtful(shown, sentences)))
        self._lead = find_lead_end(shown, foreign[0][0]) if foreign else 0
        self._lead_weight = self._weigh_lead()

    def weigh(self, start: int, end: int) -> int:
        if end <= self._lead:
            return self._lead_weight
        return max(self.weight, self._unsure)

    def _weigh_lead(self) -> int:
        shown = self._shown[: self._lead]
        stated = [span for span in self._stated if span[0] < self._lead]
        return weigh_doubt(shown, split_sentences(shown), stated) if stated else 0


def find_own_words(text: str, before: Sequence[tuple[str, str]] = ()) -> OwnWords:
    """Blank the words of others. `before` are the session's last (role, text).

    Nobody types more than MAX_TYPED_CHARACTERS: what follows them is of others.
    """
    if len(text) > MAX_TYPED_CHARACTERS:
        head, rest = text[:MAX_TYPED_CHARACTERS], text[MAX_TYPED_CHARACTERS:]
        return OwnWords(find_own_words(head, before).text + _NOT_A_LINE_END.sub(" ", rest), True)
    shown = blank_pasted(blank_blocks(text))
    others, mixed = find_announced(text, shown, before)
    sentences = split_sentences(shown)
    stated = [(one.start, one.end) for one in sentences if cue("speaker").match(shown, one.start, one.end)]
    doubt = Doubt(text, sentences, stated, shown, others if mixed else None)
    others = merge_spans([*others, *(span for span in stated if doubt.weigh(*span) > MAX_DOUBT)])
    return OwnWords(blank_spans(shown, others), mixed or doubt.weight > 0 or doubt.titled)


def drop_pasted(text: str) -> str:
    """Return the speaker's own words. Quoted words stay in their sentence."""
    if _ONE_PHRASE.fullmatch(text):
        return text
    # A line that announces something and then a fenced block: the block is all that it announces.
    fenced = _ANNOUNCED_FENCE.match(text) is not None
    own = blank_pasted(blank_blocks(text)) if fenced else find_own_words(text).text
    # A character is of others if it is blank only in the speaker's words.
    return "".join(char if shown != " " else " " for char, shown in zip(text, own, strict=True))


def detect_stored_traits(text: str, role: str | None) -> int:
    """Return the traits of an item, with PASTED for a user's message that says little about a text of others."""
    traits, head = detect_traits(text, role), text[:_MAX_READ_CHARACTERS].strip()
    if role != "user" or not _MAY_HAVE_PASTED.search(head):
        return traits
    shown = blank_pasted(blank_blocks(head))
    announced = next(_find_after_cues(head, shown, split_sentences(shown)), None)
    if announced is None and "\n" not in head and HIDDEN_LETTER not in shown:
        return traits  # a formula or a list in one line has the shape of a table
    own = len(shown[: announced[0] if announced else None].replace(HIDDEN_LETTER, "").split())
    others = len(head.split()) - own
    return traits | PASTED * (own <= _MAX_OWN_WORDS and others >= max(_MIN_PASTED_WORDS, own / 2))


def blank_blocks(text: str) -> str:
    """Blank the parts between fences, tags or rules. The length stays the same."""
    return blank_spans(text, merge_spans(list(_find_blocks(text))))


def blank_code(text: str) -> str:
    """Blank the parts between fences. The length stays the same."""
    return blank_spans(text, list(_find_fences(text)))


def blank_pasted(text: str) -> str:
    """Blank what has the shape of a pasted text and hide what is quoted. The length stays the same."""
    document = shape("document").search(text)
    own = text[: document.start()] + _NOT_A_LINE_END.sub(" ", text[document.start() :]) if document else text
    own = shape("pasted").sub(_blank, shape("terminal").sub(_blank, own))
    own = _CAPITAL_ROWS.sub(_blank, _KEY_ROWS.sub(_blank, _COMMA_ROWS.sub(_blank, own)))
    if len(_SPEAKER_LINE.findall(own)) > 1 or _ROLE_LINE.search(own):
        own = _SPEAKER_LINE.sub(_blank, own)
    own = blank_spans(own, list(_find_below_pasted(text, own))) if own != text else own
    own = _QUOTED_WORDS.sub(lambda match: match[0][0] + HIDDEN_LETTER * (len(match[0]) - 2) + match[0][-1], own)
    return own.replace("’", "'")


def _find_below_pasted(text: str, own: str) -> Iterator[Span]:
    """Yield the lines in the first person below a pasted line of their paragraph: the text of a subtitle or a form."""
    for paragraph in PARAGRAPH.finditer(text):
        at, pasted = paragraph.start(), False
        for line in paragraph[0].split("\n"):
            span = at, at + len(line)
            if pasted and cue("speaker").search(own, *span):
                yield span
            marked = line.lstrip().startswith(">")  # by itself, so that the next line is not of others
            pasted = pasted or (not marked and bool(line.strip()) and not own[slice(*span)].strip())
            at = span[1] + 1


def find_announced(text: str, shown: str, before: Sequence[tuple[str, str]] = ()) -> tuple[list[Span], bool]:
    """Return the spans that others wrote by the speaker's own account or by their language, and if any are in doubt.

    `shown` is the text without pasted words.
    """
    if any(cue("announced").search(said[-_MAX_CUE_CHARACTERS:]) for _, said in before[-2:]):
        return [(0, len(text))], True
    spans, mixed = _find_announced(text, shown)
    return list(spans), mixed


@lru_cache(_CACHED_MESSAGES)
def _find_announced(text: str, shown: str) -> tuple[tuple[Span, ...], bool]:
    # Cached, because the gate and the model that tells whose words they are ask for the same message.
    sentences = split_sentences(shown)
    spans = [*_find_after_cues(text, shown, sentences), *_find_before_cues(shown, sentences)]
    spans += [*find_framed(shown, sentences), *_find_foreign(shown)]
    mixed = bool(spans) or shown != text.replace("’", "'") or _is_doubtful(shown, sentences)
    return tuple(merge_spans(spans)), mixed


def weigh_doubt(shown: str, sentences: Sequence[Sentence], stated: Sequence[Span], *, short: bool = False) -> int:
    """Weigh the signs around statements that somebody else made them: 0 none, 1 doubtful, 2 or more surely.

    The labels and remarks of a `short` message are no sign.
    """
    edges = [0, *(edge for span in merge_spans(list(stated)) for edge in span), len(shown)]
    around = [shown[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    weight = weigh_frame(shown, sentences, stated, short=short) + any(cue("hint").search(one) for one in around)
    before = [shown[max(0, shown.rfind("\n", 0, start) + 1) : start] for start, _ in stated]
    labels = [match["label"] for one in (*before, shown) if (match := _LABEL.match(one))]
    titles = [one for one in labels if not cue("personal").search(one) and not cue("own_label").search(one)]
    return weight + any(not (short and is_own_note(shown, one, sentences)) for one in titles)


def find_hidden(text: str, shown: str) -> Iterator[Span]:
    """Yield the parts that are quoted or have the shape of a pasted text, unless they are short or a line of code."""
    for match in _HIDDEN.finditer(shown):
        said = text[match.start() : match.end()]
        if shown.startswith("`", match.start() - 1) and not cue("speaker").search(said):
            continue
        if len(said) - said.count(" ") - said.count("\n") >= _MIN_OTHERS_CHARACTERS:
            yield match.span()


def find_lead_end(shown: str, first: int) -> int:
    """Return where the words before a text of others begin to announce it: 0 if they do not, or are a text too."""
    head = shown[:first].rstrip(_OPENING_MARKS)
    if len(head) > _MAX_LEAD_CHARACTERS or _BLANK_LINE.search(head):
        return 0
    sentences = split_sentences(head)
    for sentence in sentences:
        said = head[sentence.start : sentence.end + 2]
        found = [span[0] for name in ("forward", "colon", "mentioned") if (span := find_cue(name, said))]
        if found:
            return sentence.start + min(found)
    last = sentences[-1] if sentences else None
    if last is None or not (last.is_question or asks("pointing", head[last.start : last.end])):
        return 0
    return last.start


def _find_after_cues(text: str, shown: str, sentences: Sequence[Sentence]) -> Iterator[Span]:
    """Yield the span from a cue such as "what does this say?" to the end of the message.

    A cue whose object stands in quotes or in a block announces no more than that.
    """
    for sentence in sentences:
        whole = shown[sentence.start : sentence.end + 2][:_MAX_CUE_CHARACTERS]
        said = whole[: sentence.end - sentence.start]
        colon = _find_announcing_colon(whole, shown, sentences)
        ahead = find_cue("forward", said)
        if ahead is None and _LINE_END.match(shown, sentence.end):
            ahead = find_cue("mentioned", said)
        if colon is None and ahead is None:
            continue
        later = _COLON.search(whole, ahead[1]) if ahead and not colon else None  # "…, what does she mean: Dear all, …"
        colon = later.span() if later else colon
        found = ahead or colon
        assert found is not None
        bracket = whole.find(")", found[1])
        start = sentence.start + (colon[1] if colon else bracket + 1) if colon or bracket >= 0 else sentence.end
        start += len(_END_MARKS.match(shown, start)[0])  # type: ignore[index]
        if HIDDEN_LETTER in shown[sentence.start + found[0] : start]:
            continue
        following = _FOLLOWING.match(text, start)
        if following and following["block"] is None:
            yield start, len(shown)
            return


def _find_announcing_colon(said: str, shown: str, sentences: Sequence[Sentence]) -> Span | None:
    """Return the colon before a text of others. A note of the speaker such as "cost review: …" has none."""
    colon = find_cue("colon", said)
    own = colon and cue("own_text").search(label := said[: colon[1] - 1]) and is_own_note(shown, label, sentences)
    return None if own else colon


def _find_before_cues(shown: str, sentences: Sequence[Sentence]) -> Iterator[Span]:
    """Yield the span before a last line such as "translate the above", unless it answers to the speaker's question."""
    if len(sentences) < 2:
        return
    line = shown.rfind("\n", 0, sentences[-1].end) + 1
    last = [one for one in sentences if one.start >= line]
    earlier = sentences[: len(sentences) - len(last)]
    pointing = any(find_cue("backward", shown[one.start : one.end][:_MAX_CUE_CHARACTERS]) for one in last)
    if earlier and pointing and not earlier[-1].is_question:
        yield 0, last[0].start
    elif not earlier and "above" in shown.lower() and cue("backward").search(shown[last[-1].start : last[-1].end]):
        yield 0, last[-1].start


def _find_foreign(shown: str) -> Iterator[Span]:
    """Yield the paragraphs in another language than the first one."""
    known = load_languages()
    language: str | None = None
    for paragraph in PARAGRAPH.finditer(shown):
        words = tokenize(paragraph[0].replace(HIDDEN_LETTER, ""))
        found = _detect_language(words, paragraph[0])
        if language and found and found != language:
            counts = {
                name: known.by_name[name].count_evidence(words) for name in (found, language) if name in known.by_name
            }
            if counts.get(found, _MIN_LANGUAGE_EVIDENCE) >= _MIN_LANGUAGE_EVIDENCE + counts.get(language, 0):
                yield paragraph.span()
                continue
        language = language or found


def _detect_language(words: list[str], paragraph: str) -> str | None:
    scripts = _FOREIGN_SCRIPT.findall(paragraph)
    if len(scripts) > len(paragraph) // 4:
        return f"script-{ord(scripts[0]) >> 8}"
    return load_languages().detect(words)


def _is_doubtful(shown: str, sentences: Sequence[Sentence]) -> bool:
    """Check for signs too weak to blank anything, but too strong to delete something."""
    if len(shown.strip()) > MAX_EARNEST_CHARACTERS or is_prompt_injection(shown):
        return True
    if len(_NUMBERED.findall(shown)) > 1 or any(
        pattern.search(shown) for pattern in (_RULE_LINE, _ROLE_LINE, shape("sign_off"), _UNCLOSED_QUOTE)
    ):
        return True
    spoken = _SPEAKER_LINE.search(shown)
    if spoken and not is_own_note(shown, spoken[0].partition(":")[0], sentences):
        return True
    said = [shown[one.start : one.end] for one in sentences]
    short = is_short(shown, sentences)
    asked = [one[:_MAX_CUE_CHARACTERS] for one in said if not (short and cue("standing").search(one))]
    if any(find_cue(name, one) for name in ("forward", "backward") for one in asked):
        return True
    if any(_find_announcing_colon(one[:_MAX_CUE_CHARACTERS], shown, sentences) for one in said):
        return True
    if short:
        return False
    impersonal = [
        one
        for one, sentence in zip(said, sentences, strict=True)
        if not sentence.is_question and one.count(" ") >= _MIN_IMPERSONAL_WORDS and not cue("personal").search(one)
    ]
    return len(impersonal) > _MAX_IMPERSONAL_SENTENCES


def _find_blocks(text: str) -> Iterator[Span]:
    yield from _find_fences(text)
    yield from _find_tagged(text)
    rules = list(_RULE_LINE.finditer(text))
    for opened, closed in zip(rules[::2], rules[1::2], strict=False):
        yield opened.start(), closed.end()
    if len(rules) % 2:
        yield rules[-1].start(), len(text)


def _find_fences(text: str) -> Iterator[Span]:
    start, mark = -1, ""
    for match in _FENCE.finditer(text):
        if start < 0:
            start, mark = match.start(), match["mark"]
        elif match["mark"][0] == mark[0] and len(match["mark"]) >= len(mark):
            yield start, match.end()
            start = -1
    if start >= 0:
        yield start, len(text)


def _find_tagged(text: str) -> Iterator[Span]:
    closing: dict[str, list[int]] = {}
    for end in _CLOSING_TAG.finditer(text):
        closing.setdefault((end["tag"] or end["bracket"]).lower(), []).append(end.end())
    at = 0
    while closing and (match := _TAGGED.search(text, at)):
        ends = closing.get((match["tag"] or match["bracket"]).lower(), [])
        place = bisect_right(ends, match.end())
        at = ends[place] if place < len(ends) else match.end()
        if at > match.end():
            yield match.start(), at


def blank_spans(text: str, spans: Sequence[Span]) -> str:
    """Replace the spans by spaces. Every other word keeps its offset."""
    kept, at = [], 0
    for start, end in spans:
        kept += [text[at:start], _NOT_A_LINE_END.sub(" ", text[start:end])]
        at = end
    return "".join([*kept, text[at:]])


def _blank(match: re.Match[str]) -> str:
    return _NOT_A_LINE_END.sub(" ", match[0])
