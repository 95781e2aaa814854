"""The local embedder keeps the contract of the Embedder port, across threads and forks, with the network closed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import engrain_minilm
import numpy as np
import pytest
from examples import up_to
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.core.errors import EmbedderFailed, InvalidInput
from engrain.core.text.english_words import hash_words
from engrain.providers import local
from engrain.providers.embedding import count_bytes, split_windows
from engrain.providers.local import LocalEmbedder, QueryCache, WordCache, local_embedder

MIXED = [
    "ok",
    "",
    "Ana prefers Python over JavaScript.",
    "用户喜欢简洁的回答",
    "🙂",
    "a long one " * 80,
    "\x00\ud800",
    "yes",
]


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return local_embedder()


def test_similarities_are_those_published_for_the_model(embedder: LocalEmbedder) -> None:
    rows = embedder.embed(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."], "document"
    )
    expected = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    np.testing.assert_allclose(rows @ rows.T, expected, atol=0.005)


def test_every_text_gets_a_finite_unit_row(embedder: LocalEmbedder) -> None:
    rows = embedder.embed(MIXED, "document")
    assert (rows.shape, rows.dtype) == ((len(MIXED), 384), np.float32)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_a_text_gets_the_same_row_whatever_its_neighbours(embedder: LocalEmbedder) -> None:
    texts = [f"{'note ' * (n % 60)}number {n}" for n in range(0, 60, 3)] + MIXED
    together = embedder.embed(texts, "document")
    backwards = embedder.embed(texts[::-1], "document")[::-1]
    alone = np.concatenate([embedder.embed([text], "document") for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(backwards, alone, atol=1e-6)


def test_no_texts_give_no_rows(embedder: LocalEmbedder) -> None:
    assert embedder.embed([], "document").shape == (0, 384)
    assert embedder.embed([], "query").shape == (0, 384)


def test_a_long_text_is_cut_not_refused(embedder: LocalEmbedder) -> None:
    long = embedder.embed(["word " * 50_000], "document")
    np.testing.assert_array_equal(long, embedder.embed(["word " * 254], "document"))


def test_the_model_is_named_by_its_bytes_and_by_the_words_that_are_read_in_english(
    embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = embedder.model
    expected = hashlib.sha256(f"{engrain_minilm.MODEL_SHA256} {hash_words()}".encode()).hexdigest()
    assert (model.name, model.hash, model.dimension) == ("all-MiniLM-L6-v2", expected, 384)
    monkeypatch.setattr(local, "hash_words", lambda: "other words")
    local._hash_model.cache_clear()
    assert embedder.model.hash != expected
    local._hash_model.cache_clear()


def test_a_statement_is_near_the_same_one_in_another_language(embedder: LocalEmbedder) -> None:
    said = {
        "en": ["Our cat is called Minka.", "I am allergic to nuts.", "We moved to Berlin in March."],
        "de": ["Unsere Katze heißt Minka.", "Ich bin gegen Nüsse allergisch.", "Wir sind im März nach Berlin gezogen."],
        "es": ["Nuestra gata se llama Minka.", "Soy alérgico a los frutos secos.", "En marzo nos mudamos a Berlín."],
        "fr": ["Notre chat s'appelle Minka.", "Je suis allergique aux noix.", "On a déménagé à Berlin en mars."],
    }
    rows = {name: embedder.embed(texts, "document") for name, texts in said.items()}
    for name in ("de", "es", "fr"):
        cosines = rows["en"] @ rows[name].T
        assert cosines.argmax(axis=1).tolist() == [0, 1, 2], (name, cosines)
        assert np.diag(cosines).min() > 0.5, (name, cosines)


def test_parts_of_a_foreign_text_have_the_states_of_their_own_words(embedder: LocalEmbedder) -> None:
    text = "Unsere Katze heißt Minka. Ich bin gegen Nüsse allergisch."
    read = embedder.read_text(text)
    cut = text.index(" Ich") + 1
    cat, nuts = read.embed_spans([(0, cut), (cut, len(text))])
    asked = embedder.embed(["What is the cat called?", "What am I allergic to?"], "query")
    assert asked[0] @ cat > asked[0] @ nuts
    assert asked[1] @ nuts > asked[1] @ cat


@pytest.mark.parametrize(("texts", "kind"), [("one text", "query"), ([b"bytes"], "query"), (["text"], "passage")])
def test_wrong_input_is_refused(embedder: LocalEmbedder, texts: object, kind: str) -> None:
    with pytest.raises(InvalidInput):
        embedder.embed(texts, kind)  # type: ignore[arg-type]


def test_a_query_is_embedded_once_and_its_rows_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = LocalEmbedder()
    first = embedder.embed(["which city?"], "query")
    monkeypatch.setattr(embedder, "_embed", lambda texts: pytest.fail("embedded again"))
    again = embedder.embed(["which city?", "which city?"], "query")
    np.testing.assert_array_equal(again, np.concatenate([first, first]))
    with pytest.raises(ValueError, match="read-only"):
        again[0, 0] = 0


def test_the_query_cache_forgets_the_least_recently_used() -> None:
    asked: list[str] = []
    cache = QueryCache(size=2)

    def embed(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[len(text)] for text in texts], np.float32)

    for text in ["a", "b", "a", "c", "a", "b"]:
        assert cache.embed([text], embed)[0, 0] == 1
    assert asked == ["a", "b", "c", "b"]
    assert cache.embed(["a", "dd", "a", "eee"], embed).tolist() == [[1], [2], [1], [3]]


def test_the_words_of_a_text_are_embedded_once_while_they_fit() -> None:
    asked: list[str] = []
    cache = WordCache(size=3 * 2)  # three rows of one half

    def embed(texts: list[str]) -> list[np.ndarray]:
        asked.extend(texts)
        return [np.full((len(text), 1), 0.5, np.float32) for text in texts]

    assert [rows.tolist() for rows in cache.embed(["a", "bb", "a"], 64, embed)] == [[[0.5]], [[0.5], [0.5]], [[0.5]]]
    cache.embed(["a"], 64, embed)
    assert asked == ["a", "bb"]
    cache.embed(["c", "bb", "a"], 64, embed)
    assert asked == ["a", "bb", "c"], "what a call takes out of the cache is not embedded again for it"
    cache.embed(["bb"], 64, embed)
    cache.embed(["bb"], 32, embed)
    assert asked[3:] == ["bb", "bb"], "the least recently used went first, and each limit has rows of its own"


def test_threads_share_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    load = local._open_session
    monkeypatch.setattr(local, "_open_session", lambda model: loads.append(1) or load(model))
    embedder = LocalEmbedder()
    together = threading.Barrier(8)

    def work(n: int) -> np.ndarray:
        together.wait()
        return embedder.embed([f"text {n}", "shared"], "document")

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(work, range(8)))
    assert len(loads) == 1
    for n, found in enumerate(rows):
        np.testing.assert_allclose(found, embedder.embed([f"text {n}", "shared"], "document"), atol=1e-6)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_weights_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.onnx"
    if damage == "changed":
        data = bytearray(engrain_minilm.MODEL.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    monkeypatch.setattr(engrain_minilm, "MODEL", path)
    with pytest.raises(EmbedderFailed, match="pip install --force-reinstall"):
        LocalEmbedder().embed(["text"], "document")


def test_missing_weights_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "engrain_minilm", None)
    monkeypatch.setattr(local, "_import_weights", local._import_weights.__wrapped__)
    with pytest.raises(EmbedderFailed, match="engrain-minilm"):
        LocalEmbedder().embed(["text"], "document")


def test_a_model_that_onnxruntime_cannot_load_is_a_typed_error() -> None:
    with pytest.raises(EmbedderFailed, match="cannot load"):
        local._open_session(b"not a model")


def run_python(code: str, tmp_path: Path) -> SimpleNamespace:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "SYSTEMROOT") if name in os.environ}
    folders = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "USERPROFILE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | folders, capture_output=True, text=True, timeout=300, check=False
    )
    return SimpleNamespace(code=done.returncode, out=done.stdout.strip(), err=done.stderr.strip())


def test_importing_the_embedder_loads_neither_numpy_nor_onnxruntime(tmp_path: Path) -> None:
    code = "import sys, engrain.providers.local; print({'numpy', 'onnxruntime', 'engrain_minilm'} & set(sys.modules))"
    assert run_python(code, tmp_path).out == "set()"


def test_onnxruntime_reports_to_nobody_and_prints_nothing(tmp_path: Path) -> None:
    code = """
import os
from engrain.providers.local import local_embedder
local_embedder().embed(["text"], "document")
assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
"""
    done = run_python(code, tmp_path)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert list(tmp_path.iterdir()) == []  # its reporter would have left a device id and a queue here


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_child_embeds_and_ends(tmp_path: Path) -> None:
    code = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
from engrain.providers.local import local_embedder
embedder = local_embedder()
before = embedder.embed(["a city by the sea"], "query")
stop = threading.Event()
def busy():
    while not stop.is_set():
        embedder.embed([f"work {n} " * 9 for n in range(12)], "document")
        embedder.embed([str(os.urandom(4))], "query")
thread = threading.Thread(target=busy)
thread.start()
for _ in range(2):
    child = os.fork()
    if child == 0:
        same = abs(embedder.embed(["a city by the sea"], "query") - before).max() < 1e-6
        sys.exit(0 if same else 3)  # not os._exit: ending the interpreter must not hang either
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
print("both")
"""
    done = run_python(code, tmp_path)
    assert (done.code, done.out) == (0, "both"), done.err


def test_a_short_text_is_one_window(embedder: LocalEmbedder) -> None:
    assert embedder.windows("  A short text.\n") == ["  A short text.\n"]
    assert embedder.windows("") == [""]


def test_windows_end_where_sentences_end_and_are_of_like_length(embedder: LocalEmbedder) -> None:
    text = " ".join(f"Sentence {n} tells of a thing that happened on a day." for n in range(60))
    found = embedder.windows(text)
    assert len(found) > 2
    assert all(window.endswith("day.") and window.startswith("Sentence") for window in found)
    lengths = [len(window) for window in found]
    assert min(lengths) > 0.6 * max(lengths)


AWKWARD_TEXTS = st.one_of(
    st.lists(
        st.sampled_from(["word ", "sentence. ", "用", "。", "a,b,c", "\n", "\x1c", "x" * 300, "é", "\x85"]),
        max_size=900,
    ),
    st.lists(st.text(max_size=30), max_size=60),
).map("".join)


@settings(max_examples=up_to(100), deadline=None)
@given(text=AWKWARD_TEXTS)
def test_windows_are_substrings_in_order_that_fit_and_lose_nothing(embedder: LocalEmbedder, text: str) -> None:
    count = embedder._load().count
    found = embedder.windows(text)
    place = 0
    for window in found:
        place = text.index(window, place) + len(window)
        assert count(window) <= 254
    assert "".join("".join(found).split()) == "".join(text.split())


@pytest.mark.parametrize("filler", ["a,", "用", "word ", "x"])
def test_windows_by_bytes_fit_as_well(filler: str) -> None:
    text = filler * 3_000
    found = split_windows(text, count_bytes, 1_000)
    assert all(count_bytes(window) <= 1_000 for window in found)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
    assert len(found) <= 2 * count_bytes(text) / 1_000 + 1


def test_the_parts_of_a_text_come_from_the_pass_that_embeds_it(embedder: LocalEmbedder) -> None:
    texts = ["I moved to Quito. Do you like it? The flat is small.", "One sentence only.", ""]
    spans = [[(0, 17), (34, 52)], [], []]
    found = embedder.embed_parts(texts, spans)
    assert [len(rows) for rows in found] == [3, 1, 1]
    whole = embedder.embed(texts, "document")
    assert np.allclose([rows[0] for rows in found], whole, atol=1e-5)
    assert np.allclose(np.linalg.norm(np.concatenate(found), axis=1), 1, atol=1e-5)
    asked = embedder.embed(["Which city did you move to?"], "query")[0]
    assert found[0][1] @ asked > found[0][2] @ asked
    read = embedder.read_text(texts[0])
    assert np.allclose([read.vector, *read.embed_spans(spans[0])], found[0], atol=1e-5)


def test_a_span_beyond_the_models_limit_gets_the_vector_of_the_text(embedder: LocalEmbedder) -> None:
    text = "word " * 400 + "end."
    (rows,) = embedder.embed_parts([text], [[(2000, 2004)]])
    assert np.allclose(rows[0], rows[1], atol=1e-5)


def test_the_words_of_a_text_have_vectors_up_to_a_limit(embedder: LocalEmbedder) -> None:
    short, long, again = embedder.embed_words(["I moved to Quito.", "word " * 100, "I moved to Quito."], 64)
    assert len(long) == 64
    assert np.allclose(np.linalg.norm(short, axis=1), 1, atol=1e-3)
    assert np.allclose(short, again)
    assert len(embedder.embed_words([""], 64)[0]) == 0
