"""Decide what a coding session leaves behind: standing rules, wishes, decisions, corrections, causes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from engrain.connect.commands import is_work
from engrain.connect.sentence_kinds import UNJUDGED, Judged, SentenceJudge
from engrain.core.rules.own_words import blank_blocks, blank_pasted, find_own_words
from engrain.core.rules.quotation_frames import HIDDEN_LETTER
from engrain.core.secrets.redact import contains_secret
from engrain.core.text.passages import Sentence, split_sentences
from engrain.ingest.gate import find_statements

Kind = Literal["rule", "wish", "decision", "correction", "fix", "command", "file", "cause"]
PERSONAL: tuple[Kind, ...] = ("wish",)
MAX_KEPT_CHARACTERS = 400
MAX_READ_CHARACTERS = 6_000
MAX_JUDGED_CHARACTERS = 700  # of an answer, from each end
MAX_CODE_WORDS = 6
MAX_MENTIONED_WORDS = 2  # quoted words that are a name, not a quotation


@cache
def _read_cues() -> Mapping[str, Mapping[str, list[str]]]:
    return tomllib.loads(resources.files("engrain.connect").joinpath("cues.toml").read_text("utf-8"))


@cache
def _cue(name: str) -> re.Pattern[str]:
    cues = _read_cues()
    if name in cues["words"]:
        return re.compile(rf"\b(?:{'|'.join(cues['words'][name])})\b", re.IGNORECASE)
    return re.compile("|".join(cues["patterns"][name]), re.IGNORECASE)


# A line of a compiler or a log.
_LOGGED = re.compile(
    r"^\s*(?:warn(?:ing)?|note|error|fatal|hint|help|info|debug|fail(?:ed)?|npm err!?|\w*(?:error|exception))\b[^a-z]*"
    r"[:\[]"
    r"|:\d+:\d+|\bpanicked at\b|^\s*at \S+\(|^\s*export [A-Z_]+=",
    re.IGNORECASE,
)
_LOG_TAG = re.compile(r"\s*\[[\w .:+-]{1,40}\]\s")  # "[build] always use node 20"
_QUOTED = re.compile(rf"{HIDDEN_LETTER}+")
_PATH = re.compile(
    r"(?<![\w/@:.-])(?:(?:[\w.@-]+/)+[\w.@-]*\w|(?:Dockerfile|Makefile|Justfile|Procfile|Gemfile|Rakefile"
    r"|Jenkinsfile)(?:\.\w+)?|[\w-]+(?:\.[\w-]+)*\.(?:py|pyi|ts|tsx|js|jsx|mjs|cjs|go|rs|rb|java|kt|swift|c|h|cc"
    r"|cpp|hpp|cs|php|ex|exs|scala|sql|sh|yml|yaml|toml|json|ini|cfg|env|tf|hcl|proto|graphql|vue|svelte|css|scss"
    r"|html|gradle|lock|md))(?![\w/])"
)
_CODE = re.compile(r"`([^`\n]{3,200})`")


@dataclass(frozen=True)
class Excerpt:
    """A part of an event that is worth keeping: its kind, its words and where they stand."""

    kind: Kind
    text: str
    start: int = 0
    end: int = 0


def read_prompt(text: str, judge: SentenceJudge | None = None) -> list[Excerpt]:
    """Find what a prompt of the user leaves behind. Pasted and quoted words leave nothing.

    Rules decide where they are sure. A model judges the rest, and drops what a rule keeps against all likelihood.
    """
    if len(text) > MAX_READ_CHARACTERS:
        return []
    own = _find_own_words(text)
    quoted = [len(text[match.start() : match.end()].split()) for match in _QUOTED.finditer(own)]
    if any(count > MAX_MENTIONED_WORDS for count in quoted) or _cue("reported").search(own):
        return []
    sentences = _split_own(own)
    judged = judge.judge(text, sentences, of_agent=False) if judge else [UNJUDGED] * len(sentences)
    reader = _PromptReader(text, own, sentences)
    return [*reader.read(judged), *reader.find_commands()]


def find_prompt_sentences(text: str) -> list[Sentence]:
    """Return the sentences of a prompt that are the user's own."""
    return _split_own(_find_own_words(text))


def _split_own(own: str) -> list[Sentence]:
    return [sentence for sentence in split_sentences(own) if own[sentence.start : sentence.end].strip()]


def _find_own_words(text: str) -> str:
    """Blank the words of others. "Wrong:" and short code in a sentence announce no such words."""
    announced = _cue("refusal").match(text)
    head = announced.end() if announced and announced[0].rstrip().endswith(":") else 0
    # In one line a colon explains: "we dropped the rewrite: it costs too much".
    own = blank_pasted(blank_blocks(text)) if "\n" not in text else text[:head] + find_own_words(text[head:]).text
    for match in _CODE.finditer(text):
        if (len(match[1].split()) <= MAX_CODE_WORDS or is_work(match[1])) and own[
            text.rfind("\n", 0, match.start()) + 1 : match.start()
        ].strip():
            own = own[: match.start()] + match[0] + own[match.end() :]
    return own


class _PromptReader:
    def __init__(self, text: str, own: str, sentences: list[Sentence]) -> None:
        self.text, self.own, self.sentences = text, own, sentences
        self.stated = [
            (statement.start, statement.end) for statement in find_statements(text) if statement.start < statement.end
        ]

    def read(self, judged: Sequence[Judged]) -> Iterator[Excerpt]:
        refused = False
        run: list[tuple[Kind, Sentence]] = []
        for sentence, verdict in zip(self.sentences, judged, strict=True):
            kind = self._decide(sentence, refused, verdict)
            refused = refused or (not run and self._refuses(sentence))
            if kind == "file":
                yield from self._keep([(kind, sentence)])
            elif kind is not None:
                run.append((kind, sentence))
            elif run and self._continues(sentence):
                run.append((run[-1][0], sentence))
            elif run:
                yield from self._keep(run)
                run = []
        yield from self._keep(run)

    def find_commands(self) -> Iterator[Excerpt]:
        """Find commands whose use the user explains: "to run the slow suite you do `just slow`"."""
        for sentence in self.sentences:
            said = self.own[sentence.start : sentence.end]
            if not self._is_void(said, sentence) and not _cue("task").match(said):
                yield from _find_code_commands(self.own, sentence, _cue("recipe").search(said) is not None)

    def _keep(self, run: list[tuple[Kind, Sentence]]) -> Iterator[Excerpt]:
        """Sentences in a row are one thing: the first says what it is."""
        if not run:
            return
        start, end = run[0][1].start, _find_end(self.text, run[-1][1])
        text = self.text[start:end].strip()
        if text and len(text) <= MAX_KEPT_CHARACTERS and not contains_secret(text):
            yield Excerpt(run[0][0], text, start, end)

    def _continues(self, sentence: Sentence) -> bool:
        text = self.own[sentence.start : sentence.end]
        is_fragment = len(text.split()) <= 8 and not _cue("task").match(text)
        return is_fragment and not self._is_void(text, sentence)

    def _decide(self, sentence: Sentence, refused: bool, verdict: Judged) -> Kind | None:
        text = self.own[sentence.start : sentence.end]
        kind = None if verdict.drop else self._classify(text, sentence, refused)
        if kind is not None and verdict.keep and kind != "file" and not (kind == "correction" and _is_reply(text)):
            return verdict.kind  # a rule knows that it lasts, the model better of which kind it is
        if kind is not None or not verdict.keep or self._is_void(text, sentence) or _LOGGED.search(text):
            return kind
        # The model takes many an order for a rule. Only a rule says why, or how often.
        return verdict.kind if not _cue("task").match(text) or _cue("lasting_order").search(text) else None

    def _refuses(self, sentence: Sentence) -> bool:
        return _cue("refusal").match(self.own[sentence.start : sentence.end]) is not None

    def _is_void(self, text: str, sentence: Sentence) -> bool:
        """A question, a guess, a joke, a complaint, a feature, or an order for this once."""
        asks = sentence.is_question or _cue("question").match(text) is not None
        once = _cue("once").search(text) and not _cue("keeping").search(text)
        void = (asks, once, _cue("unsure").search(text), _cue("symptom").search(text), _cue("one_thing").match(text))
        return any(void) or _LOG_TAG.match(text) is not None

    def _classify(self, text: str, sentence: Sentence, refused: bool) -> Kind | None:
        refusal = _cue("refusal").match(text)
        rest = text[refusal.end() :] if refusal else text
        if self._is_void(rest, sentence) or _cue("one_thing").match(text) or len(text.split()) < 2:
            return None
        if (refusal or refused) and self._corrects(text, refusal):
            is_rule = refusal and _cue("prohibition").match(text) and _cue("standing").search(text)
            return "rule" if is_rule else "correction"
        # "Write a test that always passes" asks for a test: only the order itself can hold for ever.
        order = _cue("subordinate").split(text, maxsplit=1)[0] if _cue("task").match(text) else text
        return self._classify_statement(order, sentence)

    def _corrects(self, text: str, refusal: re.Match[str] | None) -> bool:
        rest = text[refusal.end() :] if refusal else text
        content = _cue("content").search(rest) or _cue("standing").search(rest)
        names_path = _PATH.search(rest) is not None
        return len(rest.split()) >= 2 and (names_path or (content is not None and not _cue("task").match(rest)))

    def _classify_statement(self, text: str, sentence: Sentence) -> Kind | None:
        if _cue("machine").search(text) or _cue("stable_taste").search(text):
            return "wish"
        if _names_place(text) or (_cue("central").search(text) and _PATH.search(text)):
            return "file"
        if _cue("decision").search(text):
            return "decision"
        if _cue("prohibition").match(text) or _cue("norm").search(text) or _cue("generic_norm").match(text):
            return "rule"
        stated = any(start < sentence.end and sentence.start < end for start, end in self.stated)
        if _cue("standing").search(text) and not _cue("task").match(text) and (stated or len(text.split()) >= 4):
            return "rule"
        return ("wish" if _cue("self").search(text) else "rule") if stated and not _cue("task").match(text) else None


def read_answer(text: str, judge: SentenceJudge | None = None) -> list[Excerpt]:
    """Find what a final answer of the agent leaves behind: a cause and its fix, files, and commands that worked."""
    sentences = [
        (sentence, text[sentence.start : sentence.end]) for sentence in split_sentences(text[:MAX_READ_CHARACTERS])
    ]
    judged = _judge_answer(text[:MAX_READ_CHARACTERS], [one for one, _ in sentences], judge)
    kept: dict[Sentence, Kind] = {}
    last: Kind | None = None
    for sentence, words in sentences:
        last = _decide_answer(sentence, words, judged.get(sentence, UNJUDGED), follows_cause=last in ("cause", "fix"))
        if last:
            kept[sentence] = last
    found = [Excerpt(kind, *_cut_sentence(text, one)) for one, kind in kept.items()]
    if kept:
        others = [pair for pair in sentences if _cue("changed").search(pair[1])]
        paths = [match for one, _ in others for match in _PATH.finditer(text, one.start, one.end)]
        found += [Excerpt("file", match[0], *match.span()) for match in paths[:3]]
    for sentence, words in sentences:
        if _cue("hedged").search(words) or sentence.is_question:
            continue
        if sentence not in kept and _names_place(words):
            found.append(Excerpt("file", *_cut_sentence(text, sentence)))
        found += _find_code_commands(text, sentence, _cue("ran").search(_CODE.sub(" ", words)) is not None)
    return [
        excerpt for excerpt in found if len(excerpt.text) <= MAX_KEPT_CHARACTERS and not contains_secret(excerpt.text)
    ]


def _is_reply(text: str) -> bool:
    """True for "no, …" and "you keep …", which answer the agent. "No mocks in tests" does not."""
    refusal = _cue("refusal").match(text)
    return refusal is not None and (" " in refusal["cue"] or not refusal[0].rstrip().endswith(refusal["cue"]))


def _find_code_commands(text: str, sentence: Sentence, explained: bool) -> Iterator[Excerpt]:
    """Find commands in a sentence that explains their use, in one of its words or right before each."""
    for match in _CODE.finditer(text, sentence.start, sentence.end):
        told = explained or _cue("recipe_before").search(text[sentence.start : match.start()])
        if told and is_work(match[1]) and not contains_secret(match[1]):
            yield Excerpt("command", match[1], *match.span(1))


def _names_place(text: str) -> bool:
    """True for "the seed data is in db/seeds.sql", but not for where a bug or its fix is."""
    if _cue("failure").search(text) or _cue("passing").search(text):
        return False
    return any(_cue("located").search(text[: match.start()]) for match in _PATH.finditer(text))


def _judge_answer(text: str, sentences: list[Sentence], judge: SentenceJudge | None) -> dict[Sentence, Judged]:
    """Judge how an answer begins and ends: there it tells what was found, and a model takes 60 ms a page."""
    edge = len(text) - MAX_JUDGED_CHARACTERS
    some = [sentence for sentence in sentences if sentence.end <= MAX_JUDGED_CHARACTERS or sentence.start >= edge]
    return dict(zip(some, judge.judge(text, some, of_agent=True), strict=True)) if judge else {}


def _decide_answer(sentence: Sentence, text: str, verdict: Judged, follows_cause: bool) -> Kind | None:
    if _cue("hedged").search(text) or sentence.is_question:
        return None
    if follows_cause and _cue("fixed").search(text):
        return "fix"  # what was done about a cause comes right after it
    if verdict.drop:
        return None
    if verdict.keep and verdict.kind in ("cause", "fix", "decision"):
        return verdict.kind
    return "cause" if _states_cause(text) else None


def _states_cause(text: str) -> bool:
    if _cue("cause_cue").search(text) and len(text.split()) >= 6:
        return True
    return bool(_cue("because").search(text) and _cue("failure").search(text)) and not _cue("own_choice").match(text)


def _cut_sentence(text: str, sentence: Sentence) -> tuple[str, int, int]:
    end = _find_end(text, sentence)
    return text[sentence.start : end].strip(), sentence.start, end


def _find_end(text: str, sentence: Sentence) -> int:
    """Return the end of a sentence with the mark that closes it."""
    return sentence.end + (text[sentence.end : sentence.end + 1] in (".", "!"))
