"""Find the words of others by the frame around them: a label, a request, a letter or their source."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources

from engrain.core.rules.statements import compile_pattern, fill_pattern
from engrain.core.text.languages import merge_section
from engrain.core.text.passages import Sentence, Span
from engrain.core.text.tokenizer import lower_each

# A letter that no pattern names, so that a hidden word still counts as a word.
HIDDEN_LETTER = "ᚠ"
_MAX_CUE_CHARACTERS = 400
_MAX_LIST_LABEL_WORDS = 3
_CACHED_SENTENCES = 512
MAX_SHORT_CHARACTERS, MAX_SHORT_SENTENCES = 160, 2
# The words before a colon, from the start of their sentence. A list may label its entries.
_LEAD = re.compile(
    r"(?:^|(?<=[.!?…] )|(?<=[—–;] ))[ \t]*(?P<bullet>[-*•])?[^\w\n]{0,4}(?P<lead>(?:[^\n:.!?]|(?<=\d):(?=\d)){1,100})"
    r":(?!\d|:|//)(?=[ \t]*(?P<rest>[^\s/]?))",
    re.MULTILINE,
)
_EARLIER_CLAUSES = re.compile(r"^(?:.*[,;]\s*)?(?:(?:so|and|but|then)\s)?")
_CODE = re.compile(r"`[^`\n]*`")
_LETTER = re.compile(r"[^\W\d_]")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n|\Z")
_LINE = re.compile(r"\S[^\n]*")
COLON = re.compile(r"\w ?:\s")
_SENTENCE_END = re.compile(r"[.!?\n]\s*(?=\w)")
_ABOUT_SPEAKER = re.compile(r"\b(?:me|us|myself|mir|mich|uns|moi|nous|mí)$")
PARAGRAPH = re.compile(r"\S[^\n]*+(?>(?:\n(?![ \t]*\n)[^\n]*+)*)")


def find_framed(shown: str, sentences: Sequence[Sentence]) -> Iterator[Span]:
    """Yield the spans of a message that its frame gives to somebody else."""
    yield from _find_labelled(shown, sentences)
    yield from _find_asked_about(shown)
    yield from _find_letters(shown)
    yield from _find_retold(shown, sentences)
    yield from _find_sourced(shown, sentences)


def weigh_frame(shown: str, sentences: Sequence[Sentence], stated: Sequence[Span], *, short: bool) -> int:
    """Weigh how much the sentences around statements speak of a text: 0 not at all, 2 or more surely.

    A sentence of the speaker about himself, a request for advice or a courtesy weighs nothing. A title, an order or a
    question before the statements weighs 1, and 2 if it names a kind of text. A question behind them only adds to that.
    In a `short` message a remark before the statements weighs nothing: "sick of their app. moved to Komoot".
    """
    first = min((start for start, _ in stated), default=0)
    weight = asked_after = 0
    for sentence in sentences:
        said = shown[sentence.start : sentence.end][:_MAX_CUE_CHARACTERS]
        if shown[sentence.end : sentence.end + 1] == "!" or HIDDEN_LETTER in said or cue("self").search(said):
            continue
        if any(start < sentence.end and sentence.start < end for start, end in stated) or cue("addressed").search(said):
            continue
        if not _LETTER.search(said):
            continue
        opens, bare = sentence.end <= first, sentence.is_question or not _has_verb(said)
        told = short and not sentence.is_question
        if (opens or bare) and cue("textual").search(said):
            weight += 0 if told and not bare and not cue("copula").search(said) else 2
        elif bare and not told and not any(cue(name).search(said) for name in ("advice", "own_label", "speaker")):
            weight += opens
            asked_after |= not opens
    return weight + (weight and asked_after)


def is_short(shown: str, sentences: Sequence[Sentence]) -> bool:
    """Tell if a message is a line of one or two sentences without quotation marks: people seldom paste that little."""
    if len(shown) > MAX_SHORT_CHARACTERS or len(sentences) > MAX_SHORT_SENTENCES or "\n" in shown.strip():
        return False
    return HIDDEN_LETTER not in _CODE.sub("", shown)


def is_own_note(shown: str, label: str, sentences: Sequence[Sentence]) -> bool:
    """Tell if a short message has a label of the speaker: "new number: …". A text of others speaks of its "I"."""
    if not is_short(shown, sentences):
        return False
    said = shown[shown.find(label) + len(label) :]
    if "?" in said or cue("speaker").search(said) or cue("first_person").search(said):
        return False
    return cue("own_text").search(label) is not None or not any(cue(name).search(label) for name in ("textual", "hint"))


def _has_verb(said: str) -> bool:
    return cue("verb").search(said) is not None


def _find_labelled(shown: str, sentences: Sequence[Sentence]) -> Iterator[Span]:
    """Yield what follows a label such as "Riddle:", unless the speaker labels own statements."""
    labelled = 0
    for match in _LEAD.finditer(shown):
        lead = match["lead"]
        if match.end() < labelled:
            continue
        if match["bullet"] and len(lead.split()) <= _MAX_LIST_LABEL_WORDS:
            continue
        about = lead if match["rest"] else _EARLIER_CLAUSES.sub("", lead)
        own = any(cue(name).search(about) for name in ("self", "own_label", "remark"))
        if own or is_own_note(shown, lead, sentences):
            continue
        end = _PARAGRAPH_END.search(shown, match.end()) if match["rest"] else None
        labelled = end.start() if end else len(shown)
        yield match.end(), labelled


def _find_asked_about(shown: str) -> Iterator[Span]:
    """Yield the lines below or above a line that points at them: "Why does it reject this?"."""
    lines = [match.span() for match in _LINE.finditer(shown)]
    if len(lines) < 2:
        return
    (_, first_end), (last_start, last_end) = lines[0], lines[-1]
    if asks("pointing", shown[:first_end]):
        yield first_end, len(shown)
    if asks("pointing", shown[last_start:last_end]):
        yield 0, last_start


def asks(name: str, line: str) -> bool:
    """Check for a cue in words that do not speak of their speaker."""
    said = line[-_MAX_CUE_CHARACTERS:]
    return cue(name).search(said) is not None and cue("speaker").search(said) is None


def _find_letters(shown: str) -> Iterator[Span]:
    """Yield the text from a greeting of other people to the end of the letter."""
    for match in shape("to_group").finditer(shown):
        yield match.start(), _find_letter_end(shown, match.end()) or len(shown)
    for match in shape("to_person").finditer(shown):
        end = _find_letter_end(shown, match.end())
        if end is not None:
            yield match.start(), end


def _find_letter_end(shown: str, start: int) -> int | None:
    """Return the end of the line that signs a letter, or of the name below it."""
    signed = shape("signed").search(shown, start)
    return None if signed is None else signed.end()


def _find_retold(shown: str, sentences: Sequence[Sentence]) -> Iterator[Span]:
    """Yield the rest of a sentence after words such as "people write stuff like I …", and what goes on in its voice."""
    for place, sentence in enumerate(sentences):
        said = shown[sentence.start : sentence.end][:_MAX_CUE_CHARACTERS]
        match = cue("retold").search(said) or cue("reported").search(said)
        if match is None or cue("subject").search(said[: match.start()]):
            continue
        end = sentence.end
        for later in sentences[place + 1 :] if match.re is cue("retold") else ():
            if later.is_question or not cue("speaker").match(shown, later.start, later.end):
                break
            end = later.end
        yield sentence.start + match.end(), end


def _find_sourced(shown: str, sentences: Sequence[Sentence]) -> Iterator[Span]:
    """Yield the text before a sentence that tells where it stood: "this was taped in the lift"."""
    for sentence in reversed(sentences[1:]):
        if cue("sourced").match(shown, sentence.start, sentence.end):
            yield 0, sentence.start
            return


def cue(name: str) -> re.Pattern[str]:
    return compile_pattern(_load_cues()[name])


@lru_cache(_CACHED_SENTENCES)
def find_cue(name: str, said: str) -> Span | None:
    """Return where a sentence has a cue whose pattern has no capital letter: "forward", "backward", "colon".

    These patterns have hundreds of words each, and several rules ask for them in the same sentence. In lower-case text
    they are found in a third of the time.
    """
    if name == "colon" and ":" not in said:
        return None
    match = _compile_lower(name).search(lower_each(said))
    return match and match.span()


@cache
def _compile_lower(name: str) -> re.Pattern[str]:
    return re.compile(_load_cues()[name])


@cache
def shape(name: str) -> re.Pattern[str]:
    """Return the pattern of lines of a shape, to their ends."""
    pattern = _load_cues()[name]
    if name == "pasted":  # its words are names: "ERROR" is not "Error"
        return re.compile(rf"^(?:\t|[ ]{{4,}}(?![-*•\d])|[ \t]*+(?:{pattern})).*$", re.MULTILINE)
    if name == "terminal":
        return re.compile(rf"^[ \t]*+(?:{pattern})[^\n]*(?:\n(?=[ \t]*[^\s])[^\n]*)*", re.MULTILINE)
    return re.compile(rf"^[ \t*_]*+(?:{pattern})", re.MULTILINE | re.IGNORECASE)


@cache
def _load_cues() -> Mapping[str, str]:
    """Read the cues of all languages, since a message does not say its language."""
    folder = resources.files("engrain.core") / "data" / "pasted"
    tables = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        table = tomllib.loads(entry.read_text("utf-8"))
        parts: dict[str, str] = {}
        for name, part in table["parts"].items():  # each may use the earlier ones
            parts[name] = f"(?:{fill_pattern(part, parts)})"
        tables.append({name: [fill_pattern(one, parts) for one in some] for name, some in table["cues"].items()})
    merged = merge_section([{"cues": table} for table in tables], "cues")
    return {name: "|".join(f"(?:{pattern})" for pattern in patterns) for name, patterns in merged.items()}


def introduces_text(text: str, start: int, end: int) -> bool:
    """Tell if words only say where a text is from: "my aunt sent this", "the bank's message reads: …"."""
    if cue("sourced").match(text, start, end):
        return True
    said = text[start : end + 1]
    return said.endswith(":") and find_cue("colon", said) is not None


def is_labelled(text: str, start: int) -> bool:
    """Tell if a statement stands behind a label of others: "Mon voisin a affiché : …", not "About me: …"."""
    colons = [match.start() for match in COLON.finditer(text, 0, start)]
    label = _SENTENCE_END.split(text[: colons[-1] + 1])[-1] if colons else ""
    own = cue("own_label").search(label) or cue("subject").match(label.lstrip()) or _ABOUT_SPEAKER.search(label)
    return len(label.split()) > _MAX_LIST_LABEL_WORDS and own is None
