"""The benchmark counts right, reads what it says it reads, and runs from end to end."""

from __future__ import annotations

import gzip
import io
import json
import math
from contextlib import nullcontext
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from harness.baselines import baselines
from harness.compare import Batch, EmbeddedQuestion, VectorCache, compare_recall, paired_bootstrap
from harness.show import speed_tables, targets_table
from harness.svg import recall_plot, speed_plot
from harness.synthetic import Corpus, PreparedEmbedder, turns
from harness.targets import _bulk_embedded, recall_targets
from harness.timing import Times
from rich.console import Console
from run import main as compare

from engrain.bench.recall import (
    Answer,
    Doc,
    FoundDocument,
    Scores,
    mean,
    ndcg_at,
    read_folder,
    recall_at,
    recall_in_budget,
    reciprocal_rank,
    score,
    summarize_folder,
)
from engrain.cli.commands.bench import bench, format_report
from engrain.core.errors import InvalidInput
from engrain.core.model.items import SessionPosition
from engrain.core.model.queries import EmbeddingModel

MODEL = EmbeddingModel("toy", "0" * 64, 32, floor=0.0)

DOCS = [
    ("a", "1", "S1", 0, "Ana", "speaker", "I moved to Lima last spring.", None),
    ("a", "2", "S1", 1, "Ben", "speaker", "The kettle is broken again.", "a photo of a dented kettle"),
    ("a", "3", "S2", 0, "Ana", "speaker", "My sister plays the cello.", None),
    ("b", "1", "B1", 0, "user", "user", "Deploy the parser on Friday.", None),
    ("b", "2", "B1", 1, "assistant", "assistant", "The parser is deployed with the release script.", None),
]
QUESTIONS = [
    ("a", "q0", "Where did Ana move to, was it Lima?", "where", ["1"]),
    ("a", "q1", "What is broken, the kettle?", "what", ["2"]),
    ("a", "q2", "Which volcano erupted?", "none", []),
    ("b", "q3", "When is the parser deployed?", "when", ["1", "2"]),
]


class ToyEmbedder:
    """Each word adds a direction of its own: texts that share words are near."""

    model = MODEL

    def windows(self, text: str) -> list[str]:
        return [text]

    def embed(self, texts, kind):
        rows = []
        for text in texts:
            words = "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()
            seeds = [int.from_bytes(word.encode()[:8].ljust(8, b"\0"), "little") for word in words]
            row = sum(np.random.default_rng(seed).standard_normal(MODEL.dimension) for seed in seeds)
            rows.append(row / np.linalg.norm(row))
        return np.asarray(rows, dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = ("space", "id", "session", "turn", "speaker", "role", "text", "caption")
    docs = [dict(zip(names, row, strict=True), ts="2024-05-01T10:00:00") for row in DOCS]
    asked = [dict(zip(("space", "id", "question", "category", "gold"), row, strict=True)) for row in QUESTIONS]
    place = tmp_path / "tiny"
    place.mkdir()
    for name, rows in (("docs", docs), ("questions", asked)):
        with gzip.open(place / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return place


# Measures, against figures worked out by hand


def test_recall_is_the_share_of_the_gold_among_the_first() -> None:
    docs = ["x", "a", "y", "b", "z"]
    assert recall_at(docs, frozenset("ab"), 3) == 0.5
    assert recall_at(docs, frozenset("ab"), 4) == 1.0
    assert recall_at(docs, frozenset("abcd"), 5) == 0.5


def test_gain_falls_with_the_logarithm_of_the_rank() -> None:
    gold = frozenset("ab")
    assert ndcg_at(["a", "b"], gold, 10) == 1.0
    found = (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))
    assert ndcg_at(["x", "a", "y", "b"], gold, 10) == pytest.approx(found)
    assert ndcg_at([*"0123456789", "a"], frozenset("a"), 10) == 0.0


def test_two_passages_of_one_document_count_once() -> None:
    assert ndcg_at(["a", "a", "b"], frozenset("ab"), 10) == 1.0
    assert recall_at(["a", "a"], frozenset("ab"), 2) == 0.5


def test_reciprocal_rank_is_that_of_the_first_hit() -> None:
    assert reciprocal_rank(["x", "y", "a", "b"], frozenset("ab")) == pytest.approx(1 / 3)
    assert reciprocal_rank(["x"], frozenset("a")) == 0.0


def test_a_budget_counts_what_fits_whole_and_in_order() -> None:
    found = [("a", 2_000), ("x", 1_600), ("b", 401), ("c", 10)]
    gold = frozenset("abc")
    assert recall_in_budget(found, gold, 1_000) == pytest.approx(1 / 3)  # b is a character too long, and ends it
    found[2] = ("b", 400)
    assert recall_in_budget(found, gold, 1_000) == pytest.approx(2 / 3)


def test_the_ten_come_from_one_call_and_the_budget_from_the_other() -> None:
    long = [FoundDocument("x", 3_990, 3_996), FoundDocument("a", 4, 8, 0.5)]
    scores = score(["a"], long, frozenset("a"))
    assert scores == Scores(r5=1.0, r10=1.0, ndcg10=1.0, mrr=1.0, rb1000=1.0, rb1000_whole=0.0, kept1000=0.5)


def test_a_mean_is_taken_measure_by_measure() -> None:
    assert mean([Scores(1, 1, 1, 1, 0, 0, 0), Scores(0, 1, 0, 0, 1, 0, 1)]) == Scores(0.5, 1, 0.5, 0.5, 0.5, 0, 0.5)


def test_the_interval_is_paired_and_repeatable() -> None:
    theirs = list(np.random.default_rng(1).random(400))
    ours = [value + 0.1 for value in theirs]  # always a tenth better: pairing leaves no doubt at all
    interval = paired_bootstrap(ours, theirs)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((0.1, 0.1, 0.1))
    assert interval.above
    assert paired_bootstrap(ours, theirs) == interval


def test_the_interval_has_the_width_that_theory_gives() -> None:
    ours = [1.0, 0.0] * 200
    interval = paired_bootstrap(ours, [0.5] * 400)
    assert not interval.above
    assert interval.high == pytest.approx(1.96 * 0.5 / math.sqrt(400), abs=0.004)
    assert interval.low == pytest.approx(-interval.high, abs=0.004)


def test_percentiles_are_in_milliseconds() -> None:
    figures = Times(wall=[0.001, 0.002, 0.003], cpu=[0.001] * 3).milliseconds
    assert figures["wall_p50"] == 2.0
    assert figures["cpu_p95"] == 1.0


# Reading


def test_a_folder_is_read_as_an_importer_would(folder: Path) -> None:
    read = read_folder(folder)
    assert (read.name, read.spaces, len(read.questions)) == ("tiny", ("a", "b"), 4)
    ana, ben, *_ = read.docs_of("a")
    assert ana.note.position == SessionPosition("S1", 0, "Ana", None)
    assert ana.note.metadata == {"doc": "1"}
    assert ben.text == "The kettle is broken again. [shares a photo of a dented kettle]"
    assert [doc.note.position for doc in read.docs_of("b")] == [
        SessionPosition("B1", 0, None, "user"),
        SessionPosition("B1", 1, None, "assistant"),
    ]
    assert Doc("a", "9", "no session").note.position is None


def test_a_folder_that_is_not_one_says_what_is_missing(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"docs\.jsonl\.gz"):
        read_folder(tmp_path)
    (folder / "docs.jsonl.gz").write_bytes(b"plain")
    with pytest.raises(InvalidInput, match="not gzipped"):
        read_folder(folder)


def test_gold_that_is_no_document_is_refused(folder: Path) -> None:
    with gzip.open(folder / "questions.jsonl.gz", "wt") as file:
        file.write(json.dumps({"space": "a", "id": "q", "question": "?", "gold": ["nowhere"]}))
    with pytest.raises(InvalidInput, match="cites a document"):
        read_folder(folder)


# Systems


def test_vectors_are_made_once() -> None:
    calls = []

    class Counting(ToyEmbedder):
        def embed(self, texts, kind):
            calls.append(list(texts))
            return super().embed(texts, kind)

    kept = VectorCache(Counting())
    first = kept.embed(["one", "two", "one"], "document")
    again = kept.embed(["two"], "document")
    assert calls == [["one", "two"]]
    assert np.array_equal(first[1], again[0])
    assert np.array_equal(first[0], first[2])


def test_the_baselines_find_by_words_by_meaning_and_by_both(folder: Path) -> None:
    read, toy = read_folder(folder), ToyEmbedder()
    docs = read.docs_of("a")
    for system in baselines():
        system.add(Batch("a", docs, toy.embed([doc.text for doc in docs], "document")))
        for question in (one for one in read.questions if one.space == "a" and one.gold):
            asked = EmbeddedQuestion(question.text, toy.embed([question.text], "query")[0])
            found = system.search("a", asked, 2)
            assert [one.doc for one in found][:1] == list(question.gold), system.name
            assert len(found) == 2


# The run


def test_a_run_reports_every_system_measure_and_category(folder: Path) -> None:
    report = compare_recall([read_folder(folder)], ToyEmbedder(), lambda _: nullcontext(baselines()))
    found = report["folders"]["tiny"]
    assert found["with_gold"] == 3
    assert list(found["systems"]) == ["engrain", "dense", "BM25", "RRF"]
    assert set(found["systems"]["engrain"]["categories"]) == {"where", "what", "when"}
    assert found["systems"]["engrain"]["all"]["r10"] == 1.0
    assert set(found["engrain_minus"]["dense"]) == {"r10", "ndcg10", "rb1000"}
    assert found["floor"]["without_gold"] == 1
    assert "kettle" not in json.dumps(report), "a report holds figures, never a text of the data"


def test_the_floor_is_charged_for_what_it_cuts(folder: Path) -> None:
    read = read_folder(folder)
    answers = [Answer(question, tuple(question.gold), ()) for question in read.questions]
    floor = summarize_folder(read, answers)["floor"]
    assert (floor["cost_r10"], floor["returned_nothing"], floor["silenced_with_gold"]) == (1.0, 1.0, 1.0)


def test_bench_recall_from_end_to_end(folder: Path, tmp_path: Path) -> None:
    out, plot = tmp_path / "report.json", tmp_path / "plot.svg"
    run = CliRunner().invoke(bench, ["recall", str(folder)])
    assert run.exit_code == 0, run.output
    assert "engrain by category of question" in run.stdout
    run = CliRunner().invoke(compare, ["recall", str(folder), "--json", "--out", str(out), "--plot", str(plot)])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report == json.loads(out.read_text())
    assert list(report["systems"]) == ["engrain", "dense", "BM25", "RRF"]
    assert report["machine"]["cores"] >= 1
    assert report["folders"]["tiny"]["systems"]["engrain"]["all"]["r10"] == 1.0
    assert ElementTree.fromstring(plot.read_text()).tag.endswith("svg")
    assert "engrain by category of question" in shown(format_report(report))


@pytest.mark.slow
def test_bench_speed_from_end_to_end(tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    run = CliRunner().invoke(compare, ["speed", "--items", "300", "--json", "--plot", str(plot)])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report["short"]
    assert {"machine", "remember", "syncs", "threads", "processes", "bulk_embedded", "import", "install"} < set(report)
    size = report["sizes"]["300"]
    assert {
        "bulk_rows_per_second",
        "disk_bytes_per_item",
        "search",
        "small_scope",
        "memory_bytes",
        "cold_recall",
    } < set(size)
    assert {"vectors", "words", "recall", "recall_common", "recall_rare"} < set(size["search"])
    assert size["exactness"] == 1.0
    assert report["syncs"]["median"] == 1
    assert report["processes"]["errors"] == []
    assert any(report["processes"]["commits"])  # one that the machine let wait too long may have none
    assert len(report["targets"]) == 15
    assert "search 100k" in shown(speed_tables(report))
    assert ElementTree.fromstring(plot.read_text()).tag.endswith("svg")


def test_a_wrong_number_of_items_is_a_usage_error() -> None:
    assert CliRunner().invoke(compare, ["speed", "--items", "many"]).exit_code == 2
    assert CliRunner().invoke(compare, ["speed", "--items", "0"]).exit_code == 2


# What is shown


def test_a_miss_is_shown_with_its_cause() -> None:
    row = {"what": "search", "target": "≤ 15 ms", "figure": "20 ms", "met": False, "why": "words 17.0"}
    text = shown(targets_table([row, {**row, "met": True}, {**row, "met": None}]))
    assert text.count("missed") == 1
    assert text.count("met") == 1
    assert "words 17.0" in text


@pytest.mark.parametrize(
    ("shares", "met"), [([0.98, 0.99], True), ([0.8, 0.9], False), ([0.9, 0.99], None), ([0.98, 1.26], None)]
)
def test_rounds_that_disagree_settle_nothing(shares: list[float], met: bool | None) -> None:
    bulk = {"bulk_texts_per_second": 1, "embedder_texts_per_second": 1, "share": shares[0], "shares": shares}
    assert _bulk_embedded(bulk)["met"] is met


def test_a_known_folder_is_held_against_its_target() -> None:
    lead = {"mean": 0.1, "low": -0.01, "high": 0.2, "above": False}
    folder = {
        "systems": {"engrain": {"all": {"r10": 0.83, "rb1000": 0.87}}},
        "engrain_minus": {"BM25": {"r10": {**lead, "above": True}, "rb1000": lead}},
    }
    rows = recall_targets({"folders": {"locomo-dev": folder}})
    assert [row["met"] for row in rows] == [True, False, False]
    assert "BM25 rb1000" in rows[2]["why"]
    assert [row["met"] for row in recall_targets({"folders": {"mine": folder}})] == [False]


def test_plots_are_drawn_for_one_size_and_for_many() -> None:
    times = {"cpu_p50": 2.0}
    size = {"search": {"recall": times, "words": times, "vectors": times}, "small_scope": {"recall": {"cpu_p50": 0.5}}}
    for sizes in (["1000"], ["1000", "10000", "100000"]):
        picture = speed_plot({"sizes": dict.fromkeys(sizes, size)})
        assert ElementTree.fromstring(picture) is not None
        assert picture.count("<polyline") == 4
    scores = {"all": {"r10": 0.5, "rb1000": 0.25}}
    picture = recall_plot({"folders": {"a & b": {"systems": {"engrain": scores, "<x>": scores}}}})
    assert ElementTree.fromstring(picture) is not None
    assert picture.count("0.500") == 2


# What is made up


@pytest.mark.slow
def test_made_up_texts_are_the_same_every_time_and_in_any_part() -> None:
    texts, vectors = Corpus(32).items(995, 10)
    again, rows = Corpus(32).items(1_000, 5)
    assert texts[5:] == again
    assert np.array_equal(vectors[5:], rows)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert len(texts[0].split()) == 25


@pytest.mark.slow
def test_queries_use_common_and_rare_words() -> None:
    queries = Corpus(32).queries(30, 1_000)
    assert [query.words for query in queries[:3]] == ["common", "rare", "mixed"]
    assert [query.text for query in queries] == [query.text for query in Corpus(32).queries(30, 1_000)]


def test_a_prepared_embedder_gives_what_it_was_given() -> None:
    prepared = PreparedEmbedder(MODEL)
    texts, vectors = Corpus(32).items(0, 3)
    prepared.prepare(texts, vectors)
    assert np.array_equal(prepared.embed(texts, "document"), vectors)
    unknown = prepared.embed(["never seen"], "query")
    assert np.array_equal(unknown, prepared.embed(["never seen"], "query"))
    assert [note.position.number for note in turns(texts * 10)][24:26] == [24, 0]


def shown(table: object) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()
