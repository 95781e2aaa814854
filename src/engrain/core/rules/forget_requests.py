"""Find requests to forget something in a message, and the matter that they name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from engrain.core.text.passages import Sentence, Span, split_sentences, trim_span

MAX_REQUEST_CHARACTERS = 240
MAX_MESSAGE_CHARACTERS = 2_400
MAX_SENTENCES = 12
_WRAP = re.compile(r"\n\s*")
_HINT = re.compile(
    r"forget|unlearn|disregard|delet|eras|remov|wip|scrub|clear|drop|purg|scrap|strik|discard|\blos|get rid|gone\b|"
    r"(?:n't|not|never|stop) (?:rem|stor|keep|sav|ret|hold)|trace|want|vergiss|vergess|lösch|streich|entfern|merk|"
    r"speicher|olv[ií]d|borr|b[óo]rr|elim|quit|supri|guard|recuerd|oubli|efface|supprim|retir|gard|retien"
)
_LEADS = re.compile(
    r"(?:(?:my|our|the|mein\w*|unsere?\w*|die|der|das|den|mis?|nuestr[oa]s?|el|la|los|las|lo|"
    r"mon|ma|mes|le|les|l')\b ?)+"
)


_POLITE = re.compile(
    r"(?:please |hey )?(?:(?:can|could|would|will) you|kannst du|könntest du|puedes|podrías|"
    r"peux-tu|pourrais-tu|tu peux)"
)


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """The matter of a request: the words from `start` to `end`. An empty span means the message before.

    `everything` about it is meant, however often it was said.
    """

    start: int
    end: int
    topic: str
    everything: bool = False


def mentions_forgetting(text: str) -> bool:
    """Tell if a message may ask to forget something. A very long one is no request."""
    return len(text) <= MAX_MESSAGE_CHARACTERS and _HINT.search(text.lower()) is not None


def find_forget_topics(shown: str) -> list[ForgetTopic]:
    """Return the requests of a message, whose words of others are blank."""
    if not mentions_forgetting(shown):
        return []
    sentences = split_sentences(shown)[:MAX_SENTENCES]
    found: list[ForgetTopic] = []
    for place in range(len(sentences)):
        for language in _load_languages():
            topic = language.read(shown, sentences, place)
            if topic is not None:
                found.append(topic)
                break
    return found


@dataclass(frozen=True, slots=True)
class _Requests:
    """The patterns of one language."""

    asks: tuple[re.Pattern[str], ...]
    back: re.Pattern[str]
    last: re.Pattern[str]
    reason: re.Pattern[str]
    never: re.Pattern[str]
    aside: re.Pattern[str]
    filler: re.Pattern[str]
    tail: re.Pattern[str]

    def read(self, shown: str, sentences: Sequence[Sentence], place: int) -> ForgetTopic | None:
        one = sentences[place]
        start, end = trim_span(shown, one.start, one.end)
        if end - start > MAX_REQUEST_CHARACTERS:
            return None
        text = fold_text(shown[start:end])
        bare = text.rstrip(" .!?")
        if self.never.match(bare):
            return None
        if self.back.match(bare):
            return self._read_reason(shown, sentences[place - 1]) if place else None
        if self.aside.fullmatch(text) or (one.is_question and not _is_polite(text)):
            return None
        follows = fold_text(shown[end : sentences[place + 1].end]) if place + 1 < len(sentences) else ""
        if self.aside.fullmatch(f"., {follows.strip(' .!?')}"):
            return None
        for pattern in self.asks:
            match = pattern.match(bare)
            if match and (span := self._trim_topic(bare, match)):
                everything = bool(match.groupdict().get("all")) and match["all"].strip() not in ("what", "whatever")
                return ForgetTopic(start, end, bare[span[0] : span[1]], everything)
        return None

    def _read_reason(self, shown: str, before: Sentence) -> ForgetTopic | None:
        """Read the matter of "forget that" from the sentence before."""
        start, end = trim_span(shown, before.start, before.end)
        bare = fold_text(shown[start:end]).rstrip(" .!?")
        match = self.reason.match(bare)
        span = self._trim_topic(bare, match) if match else None
        everything = "trace" in bare
        return ForgetTopic(start, end, bare[span[0] : span[1]], everything) if span else None

    def _trim_topic(self, text: str, match: re.Match[str]) -> Span | None:
        start, end = match.span("topic")
        if self.last.match(text, start, end):
            return end, end
        tail = self.tail.search(text, start + 2, end)
        end = tail.start() if tail else end
        for _ in range(4):
            filler = self.filler.match(text, start, end)
            if filler is None or filler.end() >= end:
                break
            start = filler.end()
        lead = _LEADS.match(text, start, end)
        start = lead.end() if lead and lead.end() < end else start
        return (start, end) if end - start >= 2 else None


def fold_text(text: str) -> str:
    """Return the text in lower case with plain apostrophes, each character in its place."""
    return "".join(lower if len(lower := mark.lower()) == 1 else mark for mark in text).replace("’", "'")


def _is_polite(text: str) -> bool:
    """Tell a request in the form of a question: "can you forget …?"."""
    return _POLITE.match(text) is not None


@cache
def _load_languages() -> tuple[_Requests, ...]:
    file = resources.files("engrain.core") / "data" / "forget.toml"
    found = []
    for table in tomllib.loads(file.read_text("utf-8")).values():
        please = _WRAP.sub("", table.pop("please"))
        asks = tuple(re.compile(_WRAP.sub("", one).replace("{please}", please)) for one in table.pop("asks"))
        found.append(_Requests(asks, **{name: re.compile(_WRAP.sub("", one)) for name, one in table.items()}))
    return tuple(found)
