"""Every function that takes text is linear in its length, for adversarial texts too."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from counting import choose_points
from engrain_conformance.embedder import HashEmbedder
from examples import for_each
from linear_kit import (
    KINDS,
    MAX_GROWTH,
    SHORT_NAMES,
    TEXT_NAMES,
    Call,
    encode,
    fill_call,
    find_functions,
    find_worst_growth,
    list_text_parameters,
    walk_functions,
)

from engrain import Memory
from engrain.connect.commands import fixes
from engrain.connect.json_text import append_element, lookup, remove_marked, remove_member, set_member
from engrain.core.formats.foreign_exports import make_note, split_message
from engrain.core.formats.manifests import read_backup_manifest
from engrain.core.markdown.layout import PageBudget, fits_budget
from engrain.core.model_weights import load_weights
from engrain.core.rules.own_words import detect_stored_traits
from engrain.core.rules.quotation_frames import find_framed
from engrain.core.text.absolute_dates import add_absolute_dates
from engrain.core.text.english_words import load_words
from engrain.core.text.passages import split_sentences
from engrain.ingest.changes import WEIGHTS, judge_aspects
from engrain.ingest.write import split_windows
from engrain.mirror.mirror import decode_page
from engrain.mirror.render import Page
from engrain.providers.embedding import check_texts
from engrain.providers.local import LocalEmbedder
from engrain.ui.text import find_words

SHORT = (16_000,)  # 0.25 s for a quadratic function whose step takes a nanosecond
MODERATE = (16_000, 32_000, 64_000)
FULL = tuple(16_000 << power for power in range(7))  # up to 1 MB
EMBEDDER = HashEmbedder()
ZEROS = np.zeros(384, np.float32)

# Functions with parameters that are no text.
BY_HAND: dict[str, Call] = {
    "engrain.connect.commands.fixes": lambda text: fixes(text, text, text, True),
    "engrain.connect.json_text.append_element": lambda text: append_element(text, ("a",), 1),
    "engrain.connect.json_text.lookup": lambda text: lookup(text, ("a",)),
    "engrain.connect.json_text.remove_marked": lambda text: remove_marked(text, "engrain"),
    "engrain.connect.json_text.remove_member": lambda text: remove_member(text, ("a",)),
    "engrain.connect.json_text.set_member": lambda text: set_member(text, ("a",), 1),
    "engrain.core.formats.manifests.read_backup_manifest": lambda text: read_backup_manifest(encode(text), "a.db"),
    "engrain.mirror.mirror.decode_page": lambda text: decode_page("MEMORY.md", encode(text)),
    "engrain.providers.embedding.check_texts": lambda text: check_texts([text], "query"),
    "engrain.ui.text.find_words": lambda text: find_words(text, text),
    "engrain.ingest.changes.judge_aspects": lambda text: judge_aspects(text, ZEROS, load_weights(WEIGHTS)),
    "engrain.core.formats.foreign_exports.make_note": lambda text: make_note("zep", text, "1"),
    "engrain.core.formats.foreign_exports.split_message": lambda text: list(split_message("zep", text, "1")),
    "engrain.core.markdown.layout.fits_budget": lambda text: fits_budget(text, PageBudget()),
    "engrain.core.text.absolute_dates.add_absolute_dates": lambda text: add_absolute_dates(text, date(2026, 11, 17)),
    "engrain.core.text.english_words.WordList.read": lambda text: load_words("de").read(text),
    "engrain.core.rules.quotation_frames.find_framed": lambda text: list(find_framed(text, split_sentences(text))),
    "engrain.core.rules.own_words.detect_stored_traits": lambda text: detect_stored_traits(text, "user"),
    "engrain.ingest.write.split_windows": lambda text: split_windows(text, "fact", EMBEDDER),
    "engrain.mirror.render.Page.of": lambda text: Page.of("MEMORY.md", text),
}
# The verbs reach these, or they pass the text on as it is.
THROUGH_VERBS = {
    "engrain.connect.session_texts.build_prompt_block": "Memory.recall",
    "engrain.connect.clients.edit_own_file": "takes engrain's own text",
    "engrain.connect.clients.edit_toml_server": "takes engrain's own command",
    "engrain.connect.events.make_output": "copies the text",
    "engrain.connect.connect_home.write_file": "copies the text",
    "engrain.connect.hook.write_all": "copies the text",
    "engrain.connect.mcp_front.write_line": "copies the text",
    "engrain.connect.sentence_kinds.SentenceJudge.judge": "connect.what_to_keep.read_prompt",
    "engrain.connect.sentence_kinds.list_inputs": "connect.what_to_keep.read_prompt",
    "engrain.connect.status.are_hooks_trusted": "takes engrain's own command",
    "engrain.connect.transcripts.TranscriptReader.note_answer": "copies the text",
    "engrain.connect.transcripts.TranscriptReader.prompt": "connect.events.strip_context",
    "engrain.connect.transcripts.TranscriptReader.tool": "copies the text",
    "engrain.core.formats.manifests.LineSums.add": "hashes the bytes",
    "engrain.core.rules.quotation_frames.asks": "gate.find_statements",
    "engrain.core.rules.asked_manner.asks_for_manner": "reads 400 characters",
    "engrain.core.rules.asked_manner.speaks_once": "reads 400 characters",
    "engrain.core.rules.change_values.gives_another_value": "Memory.add_message of a user",
    "engrain.core.rules.passed_dates.is_over": "reads 300 characters",
    "engrain.ingest.clause_rules.split_run_on": "gate.find_statements",
    "engrain.ingest.part_context.is_task": "reads 400 characters",
    "engrain.ingest.change_finder.ChangeFinder.judge_change": "Memory.add_message of a user",
    "engrain.ingest.facts.find_meant": "Memory.add_message of a user",
    "engrain.ingest.forget_targets.TargetFinder.find": "Memory.add_message of a user",
    "engrain.mcp.server.MemoryViews.prompt": "Memory.prompt",
    "engrain.mcp.tools.MemoryTools.correct": "Memory.remember",
    "engrain.mcp.tools.MemoryTools.recall": "Memory.recall",
    "engrain.mcp.tools.MemoryTools.remember": "Memory.remember",
    "engrain.privacy.fingerprints.find_traces": "compares bytes in a store",
    "engrain.providers.chat.open_model": "takes settings",
    "engrain.providers.rerankers.open_reranker": "takes settings",
    "engrain.server.access.decode_header": "the server limits headers",
    "engrain.server.keys.KeyFile.find": "hashes the text",
    "engrain.server.models.parse_query": "the address of a request is short",
    "engrain.tiers.episodic.EpisodicMemory.record_error": "EpisodicMemory.record_decision",
    "engrain.tiers.procedural.ProceduralMemory.find": "Memory.recall",
    "engrain.tiers.scoped_working.ScopedWorkingMemory.start": "WorkingMemory.add_thought",
    "engrain.tiers.working.WorkingMemory.push_subgoal": "WorkingMemory.add_thought",
    "engrain.tiers.working.WorkingMemory.set_goal": "WorkingMemory.add_thought",
    "engrain.tiers.working.WorkingMemory.set_task": "WorkingMemory.add_thought",
    "engrain.transfer.foreign_databases.read_foreign_rows": "takes engrain's own SQL",
    "engrain.agent.system_text.MemoryPrompt.render": "Memory.prompt",
    "engrain.agent.system_text.build_system_text": "joins the texts",
    "engrain.ingest.change_finder.ChangeFinder.find": "Memory.add_message of a user",
    "engrain.ingest.changes.read_statement": "Memory.add_message of a user",
    "engrain.core.model.sessions.make_event": "copies the text",
    "engrain.core.model.working.Buffer.with_model_summary": "copies the text",
    "engrain.core.rules.quotation_frames.find_cue": "gate.find_statements",
    "engrain.core.rules.quotation_frames.is_own_note": "gate.find_statements",
    "engrain.core.rules.quotation_frames.is_short": "gate.find_statements",
    "engrain.core.rules.quotation_frames.weigh_frame": "gate.find_statements",
    "engrain.core.rules.forget_matters.Topic.is_one_thing": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.Topic.is_of_other": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.Topic.has_value": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.Topic.cover": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.Topic.fits_time": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.Topic.fits_qualifiers": "reads at most 600 characters",
    "engrain.core.rules.forget_names.add_names": "reads at most 600 characters of each text",
    "engrain.core.rules.forget_names.only_mentions_name": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.are_apart": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.share_words": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.Topic.is_close": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.is_of_kind": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.Topic.find_names": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.Topic.states_kind": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.state_kind": "reads at most 600 characters",
    "engrain.core.rules.forget_matters.read_topic": "reads at most 600 characters",
    "engrain.core.rules.own_words.find_lead_end": "gate.find_statements",
    "engrain.core.rules.own_words.weigh_doubt": "gate.find_statements",
    "engrain.core.rules.slot_names.fill_slot": "gate.find_statements",
    "engrain.core.text.passages.split_clauses": "gate.find_statements",
    "engrain.ingest.clause_rules.fits_slot": "gate.find_statements",
    "engrain.ingest.clause_rules.match_right_value": "gate.find_statements",
    "engrain.ingest.episodes.build_raw": "Memory.add_message of a tool",
    "engrain.ingest.extraction.extract_facts": "needs a model's answer",
    "engrain.ingest.message_vectors.MessageVectors.embed_draft": "Memory.add_message of a user",
    "engrain.ingest.forget_targets.compare_targets": "forget_matters.Topic",
    "engrain.ingest.message_vectors.MessageVectors.read": "Memory.add_message of a user",
    "engrain.ingest.message_vectors.MessageVectors.read_span": "Memory.add_message of a user",
    "engrain.ingest.gate.find_own_words": "Memory.add_message of a user",
    "engrain.ingest.sentence_model.hash_words": "Memory.add_message of a user",
    "engrain.ingest.whose_words.describe_parts": "Memory.add_message of a user",
    "engrain.ingest.whose_words.hash_parts": "Memory.add_message of a user",
    "engrain.ingest.whose_words.judge_speakers": "Memory.add_message of a user",
    "engrain.ingest.known_people.find_known_names": "Memory.add_message of a user",
    "engrain.ingest.known_people.introduces": "Memory.add_message of a user",
    "engrain.ingest.part_context.cut_long_sentences": "Memory.add_message of a user",
    "engrain.ingest.part_context.find_steps": "Memory.add_message of a user",
    "engrain.ingest.part_context.goes_on": "Memory.add_message of a user",
    "engrain.ingest.part_context.is_about_task": "Memory.add_message of a user",
    "engrain.ingest.part_context.is_bare_end": "Memory.add_message of a user",
    "engrain.ingest.part_context.is_remark": "Memory.add_message of a user",
    "engrain.ingest.part_context.join_clauses": "Memory.add_message of a user",
    "engrain.ingest.part_context.split_clauses": "Memory.add_message of a user",
    "engrain.ingest.part_context.widen_fragment": "Memory.add_message of a user",
    "engrain.ingest.sentence_model.begins_as_task": "Memory.add_message of a user",
    "engrain.ingest.sentence_model.begins_with_own_subject": "Memory.add_message of a user",
    "engrain.ingest.sentence_model.join_fragments": "Memory.add_message of a user",
    "engrain.ingest.sentence_model.tag_word": "Memory.add_message of a user",
    "engrain.ingest.sentence_model.split_by_subject": "Memory.add_message of a user",
    "engrain.privacy.receipts.verify_receipt": "compares bytes in a store",
    "engrain.privacy.tombstones.TombstoneFilter.rejects_text": "hash_tombstone",
    "engrain.providers.embeddings_http.ServedEmbedder.embed": "sends the text to a server",
    "engrain.providers.embeddings_http.ServedEmbedder.windows": "split_windows",
    "engrain.providers.local.QueryCache.embed": "looks the text up",
    "engrain.providers.local.WordCache.embed": "looks the text up",
    "engrain.providers.local.LocalEmbedder.embed": "LocalEmbedder.windows, then at most 256 tokens at once",
    "engrain.providers.local.LocalEmbedder.read_text": "LocalEmbedder.windows, then at most 256 tokens at once",
    "engrain.providers.local.LocalEmbedder.embed_parts": "a message of at most 300 characters",
    "engrain.providers.local.LocalEmbedder.embed_words": "at most 64 tokens of a text",
    "engrain.providers.local.LocalEmbedder.windows": "verbs below",
    "engrain.providers.rerankers.CrossEncoderReranker.score": "another package",
    "engrain.providers.rerankers.ModelReranker.score": "sends the text to a server",
    "engrain.providers.rerankers.ServedReranker.score": "sends the text to a server",
    "engrain.providers.local.SentenceTransformersEmbedder.embed": "another package",
    "engrain.providers.local.SentenceTransformersEmbedder.windows": "another package",
    "engrain.providers.wordpiece.WordPiece.encode": "LocalEmbedder.windows",
    "engrain.providers.wordpiece.WordPiece.count": "LocalEmbedder.windows",
    "engrain.providers.wordpiece.WordPiece.pieces": "LocalEmbedder.windows",
    "engrain.tiers.conversation.ConversationMemory.add": "Memory.add_message",
    "engrain.tiers.conversation.ConversationMemory.search": "Memory.recall",
    "engrain.tiers.episodic.EpisodicMemory.record_decision": "verbs below",
    "engrain.tiers.episodic.EpisodicMemory.record_resolution": "EpisodicMemory.record_decision",
    "engrain.tiers.scoped_working.ScopedWorkingMemory.step": "WorkingMemory.add_thought",
    "engrain.tiers.semantic.SemanticMemory.learn": "Memory.remember",
    "engrain.tiers.working.WorkingMemory.add_thought": "verbs below",
}


def list_calls() -> dict[str, Call]:
    calls = dict(BY_HAND)
    for name, function in find_functions():
        call = None if name in calls or name in THROUGH_VERBS else fill_call(function)
        if call is not None:
            calls[name] = call
    return calls


CALLS = list_calls()
# Each of these was found to be quadratic once.
KNOWN = ["accents", "marks on a letter", "marks out of order", "backslashes", "hyphens", "letters", "unclosed comments"]
KNOWN += ["capitals before an ideograph"]


def check_growth(name: str, call: Call, kinds: list[str], sizes: tuple[int, ...]) -> None:
    found = {kind: find_worst_growth(call, kind, sizes) for kind in kinds}
    slow = {kind: growth for kind, growth in found.items() if growth[0] >= MAX_GROWTH}
    assert not slow, f"{name} is not linear (growth of the time, at length): {slow}"


SECONDS: dict[str, tuple[Callable[[int], float], bool]] = {
    "linear": (lambda n: n * 1e-6, True),
    "n log n": (lambda n: n * 1e-7 * math.log2(n), True),
    "too quick to tell": (lambda n: n * n * 1e-14, True),
    "quadratic": (lambda n: n * n * 1e-12, False),
    "quadratic for long texts": (lambda n: n * 2e-7 + n * n * 4e-13, False),
    "quadratic up to a limit": (lambda n: min(n, 64_000) ** 2 * 1e-10, False),
    "cubic for short texts": (lambda n: min(n, 32_000) ** 3 * 1e-14, False),
}


@pytest.mark.parametrize("name", SECONDS)
def test_the_doublings_find_what_is_not_linear(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, linear = SECONDS[name]
    monkeypatch.setattr("linear_kit.measure_cpu", lambda call, text, tries: call(text))
    worst, _ = find_worst_growth(lambda text: seconds(len(text)), "letters", FULL)
    assert (worst < MAX_GROWTH) == linear


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


PLANTED: dict[str, tuple[Call, bool]] = {
    "quadratic": (lambda text: burn(0.006 * (len(text) / 16_000) ** 2), False),
    "linear": (lambda text: burn(0.006 * len(text) / 16_000), True),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_function_is_judged_by_its_true_times(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, linear = PLANTED[name]
    monkeypatch.setattr("linear_kit.MIN_SECONDS", 0.002)  # so short a time is judged over three doublings
    worst, _ = find_worst_growth(function, "letters", SHORT)
    assert (worst < MAX_GROWTH) == linear


def test_every_parameter_that_may_be_text_has_a_known_name() -> None:
    names = {name for _, function in walk_functions() for name in list_text_parameters(function)}
    assert names - TEXT_NAMES - SHORT_NAMES == set(), "say in linear_kit if it can be long"


def test_every_function_that_takes_text_is_measured_or_explained() -> None:
    found = {name for name, _ in find_functions()}
    assert len(found) > 90
    assert found - CALLS.keys() - THROUGH_VERBS.keys() == set(), "say in BY_HAND how to call them"
    assert (BY_HAND.keys() | THROUGH_VERBS.keys()) - found == set(), "these are gone"


@for_each("name", CALLS)
def test_short_adversarial_texts_take_linear_time(name: str) -> None:
    check_growth(name, CALLS[name], KNOWN, SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_adversarial_texts_up_to_a_megabyte_take_linear_time(name: str, report_counts: Callable[..., None]) -> None:
    kinds = choose_points(list(KINDS))
    check_growth(name, CALLS[name], kinds, FULL)
    report_counts(functions=1, texts=len(kinds), of=len(KINDS))


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_every_kind_of_text_takes_linear_time(name: str, report_counts: Callable[..., None]) -> None:
    check_growth(name, CALLS[name], list(KINDS), MODERATE)
    report_counts(texts=len(KINDS), of=len(KINDS))


def sync_mirror(memory: Memory, folder: Path, text: str) -> None:
    memory.remember(text, slot="user.note")
    memory.mirror(folder).sync()


def load_file(memory: Memory, folder: Path, format: str, text: str) -> None:
    path = folder / "loaded"
    path.write_bytes(encode(json.dumps([{"id": "1", "memory": text}]) if format == "mem0" else text))
    memory.load(path, format=format)


@contextmanager
def open_verbs(folder: Path) -> Iterator[dict[str, Call]]:
    local = LocalEmbedder()
    with Memory(folder / "agent.db", user="ana", embedder=EMBEDDER, background=False) as memory:
        memory.remember("The vault is on the left.")
        yield {
            "remember": memory.remember,
            "add_message, user": lambda text: memory.add_message("user", text),
            "add_message, assistant": lambda text: memory.add_message("assistant", text),
            "add_message, tool": lambda text: memory.add_message("tool", text),
            "recall": memory.recall,
            "prompt": memory.prompt,
            "mirror": lambda text: sync_mirror(memory, folder / "mirror", text),
            "episodic.record_decision": memory.episodic.record_decision,
            "working.add_thought": memory.working.add_thought,
            "load, text": lambda text: load_file(memory, folder, "text", text),
            "load, CSV": lambda text: load_file(memory, folder, "csv", "text\n" + text),
            "load, mem0": lambda text: load_file(memory, folder, "mem0", text),
            "local embedder": local.windows,
        }


TRIED = choose_points(list(KINDS))
VERBS = ["remember", "add_message, user", "add_message, tool", "recall", "mirror", "local embedder"]


@for_each("verb", VERBS)
def test_verbs_take_linear_time(verb: str, tmp_path: Path) -> None:
    with open_verbs(tmp_path) as verbs:
        check_growth(verb, verbs[verb], ["accents", "backslashes"], SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRIED)
def test_verbs_take_linear_time_up_to_a_quarter_of_a_megabyte(
    kind: str, tmp_path: Path, report_counts: Callable[..., None]
) -> None:
    with open_verbs(tmp_path) as verbs:
        for verb, call in verbs.items():
            check_growth(verb, call, [kind], FULL[:5])
        report_counts(texts=len(verbs), of=len(verbs) * len(KINDS) if kind == TRIED[0] else 0)
