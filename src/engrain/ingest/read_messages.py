"""Read messages before they are stored: what they state, what they ask to forget, and how they count as events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from engrain.core.model.items import ForgetRequest, Statement
from engrain.core.model.messages import Message, message_to_note
from engrain.core.rules.episode_importance import EpisodeEvent, EpisodeKind, measure_novelty
from engrain.core.rules.forget_lists import split_matters
from engrain.core.rules.forget_requests import mentions_forgetting, only_mentions
from engrain.core.rules.forget_withdrawals import find_second_thought, find_withdrawal
from engrain.core.rules.message_filters import blank_recalled
from engrain.core.rules.own_words import OwnWords
from engrain.core.rules.slot_names import find_mentioned_slot
from engrain.core.rules.statements import load_statement_rules
from engrain.core.text.passages import Sentence, split_sentences
from engrain.ingest import episodes, gate
from engrain.ingest.change_finder import ChangeFinder
from engrain.ingest.forget_intent import ForgetTopic, find_forget_topics
from engrain.ingest.forget_targets import is_statement
from engrain.ingest.known_people import find_known_names
from engrain.ingest.message_vectors import MessageVectors
from engrain.ingest.sentence_model import Verdict, judge_sentences
from engrain.ingest.tool_output import shorten_output
from engrain.ingest.whose_words import OwnChances, judge_speakers

# The gate reads this much at either end of a message: the middle is pasted text.
MAX_GATE_CHARACTERS = 20_000
MIN_CHANGE_CHARACTERS = 12  # of a sentence that is kept only because it changes something known

Found = Statement | ForgetRequest
_MARKS = re.compile(r"[:\"“”„«»<>\n]|'\w[^']*'(?!\w)")  # of quotations


@dataclass(frozen=True, slots=True)
class AnalyzedMessage:
    message: Message  # as the log shows it
    raw: str | None  # the whole of a long tool output
    found: Sequence[Found]
    event: EpisodeEvent | None
    vectors: MessageVectors


def analyze_messages(
    messages: Sequence[Message], before: Sequence[Message], finder: ChangeFinder
) -> list[AnalyzedMessage]:
    turns: list[AnalyzedMessage] = []
    for message in messages:
        shown, raw = shorten_result(message)
        earlier = [*before, *(turn.message for turn in turns)][-episodes.NOVELTY_ROWS :]
        vectors = MessageVectors(finder.services.embedder)
        found = _find_user_statements(shown, earlier, _find_judge(finder, vectors), vectors)
        turns.append(AnalyzedMessage(shown, raw, found, _build_event(shown, earlier, found), vectors))
    return turns


def shorten_result(message: Message) -> tuple[Message, str | None]:
    """Return the message as the log shows it, and the whole of a long tool output."""
    if message.role != "tool":
        return message, None
    text, raw = shorten_output(message.text, message.tool, message.failed)
    return replace(message, text=text), raw


def asks_to_forget(message: Message, earlier: Sequence[Message]) -> bool:
    """Tell by the rules alone, without the embedder, if a message asks to forget something."""
    found = _find_user_statements(message, earlier[-episodes.NOVELTY_ROWS :])
    return any(isinstance(one, ForgetRequest) for one in found)


def _find_judge(finder: ChangeFinder, vectors: MessageVectors) -> gate.JudgeSentences:
    """Return the judge of a message's sentences, by the pass that embeds the message.

    A sentence that would not be kept on its own is kept if it changes something known, or adds to it. Only a change is
    sure enough for the profile.
    """

    def judge(text: str, sentences: Sequence[Sentence]) -> list[Verdict]:
        states = vectors.read(text)
        if states is None:
            return []
        within = [one for one in sentences if one.end <= len(states.text)]
        verdicts = judge_sentences(states, within)
        others = [
            one for one, verdict in zip(within, verdicts, strict=True) if not verdict.keep and not one.is_question
        ]
        known = find_known_names(text, others, finder)
        if known:
            again = dict(zip(known, judge_sentences(states, list(known), known=known), strict=True))
            verdicts = [again.get(one, verdict) for one, verdict in zip(within, verdicts, strict=True)]
        question = load_statement_rules().sign("question")
        asked = (
            one.is_question or one.end - one.start < MIN_CHANGE_CHARACTERS or question.match(text, one.start, one.end)
            for one in within
        )
        judged = []
        for one, verdict, skipped in zip(within, verdicts, asked, strict=True):
            settled = verdict.keep or verdict.drop or skipped
            change = None if settled else finder.judge_change(text, (one.start, one.end), vectors)
            judged.append(replace(verdict, keep=True, sure=change == "ends") if change else verdict)
        return judged

    return judge


def _judge_speakers(vectors: MessageVectors, text: str, shown: str) -> OwnChances | None:
    states = vectors.read(text)
    return None if states is None else judge_speakers(states, shown)


def _find_user_statements(
    message: Message,
    earlier: Sequence[Message],
    judge: gate.JudgeSentences | None = None,
    vectors: MessageVectors | None = None,
) -> list[Found]:
    """Return the user's own statements. Words of other roles and words from recall do not count."""
    if message.role != "user":
        return []
    head, rest = message.text[:MAX_GATE_CHARACTERS], message.text[MAX_GATE_CHARACTERS:]
    tail = rest[-MAX_GATE_CHARACTERS:]
    own = blank_recalled(head) + " " * (len(rest) - len(tail)) + blank_recalled(tail)
    before = [(one.role, one.text) for one in earlier]
    whose = partial(_judge_speakers, vectors) if vectors else None
    found = gate.find_statements(own, before, judge, whose)
    if not mentions_forgetting(own):
        return found
    words = gate.find_own_words(own, before, whose)
    topics = find_forget_topics(words.text, vectors.read(own) if vectors else None)
    return _drop_withdrawn(words.text, _list_matters(words.text, _add_requests(own, words, topics, found)))


def _add_requests(own: str, words: OwnWords, topics: Sequence[ForgetTopic], found: list[Found]) -> list[Found]:
    """Add the requests to forget that name their matter in free words. Their words state nothing themselves."""
    if any(isinstance(one, ForgetRequest) for one in found):
        only = topics[0] if len(topics) == 1 else None
        found = found if topics or not only_mentions(words.text) else [_doubt(one) for one in found]
        return [_name_topic(one, only, own) if isinstance(one, ForgetRequest) else one for one in found]
    # Of one plain sentence nothing can be of others: "purge the number I pasted".
    plain = words.text == own and _MARKS.search(own) is None and len(split_sentences(own)) == 1
    doubtful = (words.mixed and not plain) or len(topics) > 1
    requests = [ForgetRequest(one.start, one.end, None, doubtful, one.topic, one.everything) for one in topics]
    kept = [one for one in found if not any(one.start < ask.end and ask.start < one.end for ask in requests)]
    return [*kept, *requests]


def _list_matters(text: str, found: list[Found]) -> list[Found]:
    """Add the matters that the only request lists. A doubtful one stays as it is."""
    requests = [one for one in found if isinstance(one, ForgetRequest)]
    if len(requests) != 1 or requests[0].doubtful or requests[0].topic == "":
        return found
    whole = requests[0]
    around = next((one for one in split_sentences(text) if one.start <= whole.start < one.end), None)
    parts = split_matters(text[around.start : around.end]) if around else []
    if around is None or not parts:
        return found
    spans = [(start + around.start, end + around.start) for start, end in parts]
    slots = [find_mentioned_slot(text[slice(*span)]) for span in spans]
    matters = tuple(
        ForgetRequest(*span, slot, topic=None if slot else text[slice(*span)], everything=whole.everything)
        for span, slot in zip(spans, slots, strict=True)
    )
    return [replace(one, matters=matters) if one is whole else one for one in found]


def _drop_withdrawn(text: str, found: list[Found]) -> list[Found]:
    """Drop the requests that the message takes back, with the words that do, and doubt those that it corrects."""
    back, asked = find_withdrawal(text), any(isinstance(one, ForgetRequest) for one in found)
    if back and (asked or find_forget_topics(text[: back[0]])):
        requests = (one.start >= back[0] or not isinstance(one, ForgetRequest) for one in found)
        words = (back[1] <= one.start or one.end <= back[0] for one in found)
        found = [one for one, *stays in zip(found, requests, words, strict=True) if all(stays)]
    corrected = find_second_thought(text) or 0
    return [_doubt(one) if one.start < corrected else one for one in found]


def _doubt(one: Found) -> Found:
    return replace(one, doubtful=True) if isinstance(one, ForgetRequest) else one


def _name_topic(request: ForgetRequest, topic: ForgetTopic | None, own: str) -> ForgetRequest:
    """Add the matter to a request that the gate found. A whole statement or a slot is its own matter."""
    if topic is None:
        return request
    # Not with the reason behind it: "wipe the bit about my asthma, others can read this".
    named = own.find(topic.topic, topic.start) + len(topic.topic)
    end = min(request.end, named) if named > request.start else request.end
    plain = request.slot is None and not is_statement(own[request.start : end])
    return replace(request, topic=topic.topic if plain else request.topic, everything=topic.everything)


def _build_event(message: Message, earlier: Sequence[Message], found: Sequence[Found]) -> EpisodeEvent | None:
    if message.role == "system":
        return None
    # A tool call counts by its name and arguments, as in its row: two different calls are two events.
    text = message_to_note(message, "").text if message.calls else message.text
    kind: EpisodeKind = message.event or ("tool" if message.role == "tool" else "turn")  # type: ignore[assignment]
    explicit = any(isinstance(one, Statement) and one.explicit for one in found)
    new = measure_novelty(text, [one.text for one in earlier])
    return EpisodeEvent(kind, text, message.role, message.failed, explicit=explicit, novelty=new)
