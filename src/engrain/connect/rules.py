"""Decide by rules what a coding session leaves behind: standing rules, wishes, decisions, corrections, causes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from engrain.connect.commands import is_work
from engrain.core.rules.frames import HIDDEN_LETTER
from engrain.core.rules.own_words import find_own_words
from engrain.core.secrets.personal import contains_secret
from engrain.core.text.passages import Sentence, split_sentences
from engrain.ingest.gate import find_statements

Kind = Literal["rule", "wish", "decision", "correction", "fix", "command", "file", "cause"]
PERSONAL: tuple[Kind, ...] = ("wish",)
MAX_KEPT_CHARACTERS = 400
MAX_READ_CHARACTERS = 6_000
MAX_CODE_WORDS = 6
MAX_MENTIONED_WORDS = 2  # quoted words that are a name, not a quotation


@cache
def _read_cues() -> Mapping[str, Mapping[str, list[str]]]:
    return tomllib.loads(resources.files("engrain.connect").joinpath("cues.toml").read_text("utf-8"))


def _load(name: str) -> re.Pattern[str]:
    cues = _read_cues()
    if name in cues["words"]:
        return re.compile(rf"\b(?:{'|'.join(cues['words'][name])})\b", re.IGNORECASE)
    return re.compile("|".join(cues["patterns"][name]), re.IGNORECASE)


_QUOTED = re.compile(rf"{HIDDEN_LETTER}+")


_LEAD_IN = _load("lead_in")
_STANDING = _load("standing")
_LASTING = _load("lasting")
_CONSEQUENCE = _load("consequence")
_KEEPING = _load("keeping")
_ONCE = _load("once")
_QUESTION = _load("question")
_STANDING_REQUEST = re.compile(
    r"\s*(?:can|could|would|will) you (?:please )?(?:always|never|stop|from now on)\b", re.IGNORECASE
)
_UNSURE = _load("unsure")
_SYMPTOM = _load("symptom")
_ONE_THING = _load("one_thing")
_REPORTED = _load("reported")
_REFUSAL = _load("refusal")
_CONTENT = _load("content")
_WEAK_REFUSAL = re.compile(r"actually|wait|again|mal|stop", re.IGNORECASE)
_STRONG_CONTENT = _load("strong_content")
_SUBORDINATE = re.compile(r"\b(?:so that|such that|that|which|where|because|who|so)\b", re.IGNORECASE)
_PROHIBITION = _load("prohibition")
_DECISION = _load("decision")
_LABEL = _load("label")
_DECIDING_LABEL = re.compile(
    r"\s*(?:(?:ok|okay|so|alright)[, ]+)?(?:naming|final|settled|agreed|deci|verdict|outcome|conclusion|after|from"
    r"|entscheidung|décision)",
    re.IGNORECASE,
)
_NORM = _load("norm")
_GENERIC_NORM = _load("generic_norm")
_TASTE = _load("taste")
_STABLE_TASTE = _load("stable_taste")
_MACHINE = _load("machine")
_ANSWER_STYLE = _load("answer_style")
_LANGUAGE = _load("language")
_SELF = re.compile(r"\b(?:i|i'm|i'd|me|my|mine|ich|mir|mich|mein\w*|yo|mí|mis?|je|j'|moi|mon|ma|mes)\b", re.IGNORECASE)
_STYLE = _load("style")
_TASK = _load("task")
_CENTRAL = _load("central")
_PATH = re.compile(
    r"(?<![\w/@:.-])(?:(?:[\w.@-]+/)+[\w.@-]*\w|(?:Dockerfile|Makefile|Justfile|Procfile|Gemfile|Rakefile"
    r"|Jenkinsfile)(?:\.\w+)?|[\w-]+(?:\.[\w-]+)*\.(?:py|pyi|ts|tsx|js|jsx|mjs|cjs|go|rs|rb|java|kt|swift|c|h|cc"
    r"|cpp|hpp|cs|php|ex|exs|scala|sql|sh|yml|yaml|toml|json|ini|cfg|env|tf|hcl|proto|graphql|vue|svelte|css|scss"
    r"|html|gradle|lock|md))(?![\w/])"
)
_CAUSE_CUE = _load("cause_cue")
_BECAUSE = re.compile(
    r"\b(?:because|since|due to|as a result of|weil|da|porque|ya que|parce que|à cause)\b", re.IGNORECASE
)
_FAILURE = _load("failure")
_OWN_CHOICE = _load("own_choice")
_HEDGED = _load("hedged")
_CHANGED = _load("changed")
_CODE = re.compile(r"`([^`\n]{3,200})`")
_RAN = _load("ran")


@dataclass(frozen=True)
class Kept:
    """A part of an event that is worth keeping: its kind, its words and where they stand."""

    kind: Kind
    text: str
    start: int = 0
    end: int = 0


def read_prompt(text: str) -> list[Kept]:
    """Find what a prompt of the user leaves behind. Pasted and quoted words leave nothing."""
    if len(text) > MAX_READ_CHARACTERS:
        return []
    own = _find_own_words(text)
    quoted = [len(text[match.start() : match.end()].split()) for match in _QUOTED.finditer(own)]
    if any(count > MAX_MENTIONED_WORDS for count in quoted) or _REPORTED.search(own):
        return []
    sentences = [one for one in split_sentences(own) if own[one.start : one.end].strip()]
    return list(_PromptReader(text, own, sentences).read())


def _find_own_words(text: str) -> str:
    """Blank the words of others. "Naming:", "wrong:" and short code in a sentence announce no such words."""
    announced = _LABEL.match(text) or _REFUSAL.match(text)
    head = announced.end() if announced and announced[0].rstrip().endswith(":") else 0
    own = text[:head] + find_own_words(text[head:]).text
    for match in _CODE.finditer(text):
        if (
            len(match[1].split()) <= MAX_CODE_WORDS
            and own[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        ):
            own = own[: match.start()] + match[0] + own[match.end() :]
    return own


class _PromptReader:
    def __init__(self, text: str, own: str, sentences: list[Sentence]) -> None:
        self.text, self.own, self.sentences = text, own, sentences
        self.stated = [(one.start, one.end) for one in find_statements(text) if one.start < one.end]

    def read(self) -> Iterator[Kept]:
        refused = False
        run: list[tuple[Kind, Sentence]] = []
        for sentence in self.sentences:
            kind = self._classify(self.own[sentence.start : sentence.end], sentence, refused)
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

    def _keep(self, run: list[tuple[Kind, Sentence]]) -> Iterator[Kept]:
        """Sentences in a row are one thing: the first says what it is."""
        if not run:
            return
        start, end = run[0][1].start, run[-1][1].end
        text = self.text[start:end].strip()
        if text and len(text) <= MAX_KEPT_CHARACTERS and not contains_secret(text):
            yield Kept(run[0][0], text, start, end)

    def _continues(self, sentence: Sentence) -> bool:
        said = self.own[sentence.start : sentence.end]
        is_fragment = len(said.split()) <= 8 and not _TASK.match(said)
        return is_fragment and not self._is_void(said, sentence)

    def _refuses(self, sentence: Sentence) -> bool:
        return _REFUSAL.match(self.own[sentence.start : sentence.end]) is not None

    def _is_void(self, said: str, sentence: Sentence) -> bool:
        """A question, a guess, a joke, a complaint, a feature, or an order for this once."""
        asks = sentence.is_question or _QUESTION.match(said) is not None
        once = _ONCE.search(said) and not _KEEPING.search(said)
        complains = _SYMPTOM.search(said) and not _CONSEQUENCE.search(said)
        void = (_UNSURE.search(said), once, complains, _ONE_THING.match(said))
        return (asks and not _STANDING_REQUEST.match(said)) or any(void)

    def _classify(self, said: str, sentence: Sentence, refused: bool) -> Kind | None:
        refusal = _REFUSAL.match(said)
        rest = said[refusal.end() :] if refusal else said
        if self._is_void(rest, sentence) or _ONE_THING.match(said) or len(said.split()) < 2:
            return None
        if (refusal or refused) and self._corrects(said, refusal):
            is_rule = refusal and _PROHIBITION.match(said) and _STANDING.search(said)
            return "rule" if is_rule else "correction"
        label = _LABEL.match(said)
        if label and len(said[label.end() :].split()) >= 2:
            return "decision" if _DECIDING_LABEL.match(said) else "rule"
        lead_in = _LEAD_IN.match(said)
        said = said[lead_in.end() :] if lead_in else said
        # "Write a test that always passes" asks for a test: only the order itself can hold for ever.
        order = _SUBORDINATE.split(said, maxsplit=1)[0] if _TASK.match(said) else said
        return self._classify_statement(order, sentence)

    def _corrects(self, said: str, refusal: re.Match[str] | None) -> bool:
        rest = said[refusal.end() :] if refusal else said
        weak = refusal is not None and _WEAK_REFUSAL.fullmatch(refusal["cue"])
        content = (_STRONG_CONTENT if weak else _CONTENT).search(rest) or _STANDING.search(rest)
        names_path = _PATH.search(rest) is not None
        return len(rest.split()) >= 2 and (names_path or (content is not None and not _TASK.match(rest)))

    def _classify_statement(self, said: str, sentence: Sentence) -> Kind | None:
        standing = (_LASTING if _TASK.match(said) else _STANDING).search(said) is not None
        if kind := self._classify_wish(said, standing):
            return kind
        if _CENTRAL.search(said) and _PATH.search(said):
            return "file"
        if _DECISION.search(said):
            return "decision"
        if _PROHIBITION.match(said) or _NORM.search(said) or _GENERIC_NORM.match(said):
            return "rule"
        stated = any(start < sentence.end and sentence.start < end for start, end in self.stated)
        if standing and (stated or len(said.split()) >= 4):
            return "rule"
        return ("wish" if _SELF.search(said) else "rule") if stated and not _TASK.match(said) else None

    def _classify_wish(self, said: str, standing: bool) -> Kind | None:
        if _MACHINE.search(said) or _STABLE_TASTE.search(said):
            return "wish"
        if standing and (_TASTE.search(said) or (_ANSWER_STYLE.search(said) and self._is_about_answers(said))):
            return "wish"
        if _ANSWER_STYLE.match(said.lstrip().removeprefix("please ").removeprefix("bitte ")) and _LANGUAGE.search(said):
            return "wish"
        return None

    def _is_about_answers(self, said: str) -> bool:
        return bool(_SELF.search(said) or _LANGUAGE.search(said) or _STYLE.search(said))


def read_answer(text: str) -> list[Kept]:
    """Find what a final answer of the agent leaves behind: a cause that was found, files, and commands that worked."""
    sentences = [(one, text[one.start : one.end]) for one in split_sentences(text[:MAX_READ_CHARACTERS])]
    causes = [one for one in sentences if _states_cause(one[1])]
    found = [_keep_sentence("cause", *one) for one in causes]
    if causes:
        others = [one for one in sentences if one not in causes and _CHANGED.search(one[1])]
        paths = [match for one, _ in others for match in _PATH.finditer(text, one.start, one.end)]
        found += [Kept("file", match[0], *match.span()) for match in paths[:3]]
    for one, said in sentences:
        if not _HEDGED.search(said) and _RAN.search(_CODE.sub(" ", said)):
            for match in _CODE.finditer(text, one.start, one.end):
                if is_work(match[1]):
                    found.append(Kept("command", match[1], *match.span(1)))
    return [one for one in found if len(one.text) <= MAX_KEPT_CHARACTERS and not contains_secret(one.text)]


def _states_cause(said: str) -> bool:
    if _HEDGED.search(said) or said.rstrip().endswith("?"):
        return False
    if _CAUSE_CUE.search(said) and len(said.split()) >= 6:
        return True
    return bool(_BECAUSE.search(said) and _FAILURE.search(said)) and not _OWN_CHOICE.match(said)


def _keep_sentence(kind: Kind, sentence: Sentence, said: str) -> Kept:
    return Kept(kind, said.strip(), sentence.start, sentence.end)
