"""The tokenizer reads every text as the one that the model was trained with."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import engrain_minilm
import pytest
from examples import for_each, up_to
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.providers import wordpiece
from engrain.providers.wordpiece import WordPiece

GOLDEN = json.loads(Path(__file__).with_name("wordpiece_golden.json").read_text())
# sha256 over the word pieces that `tokenizers` 0.23.3 makes of "a", a character, "b": each of the first 131,072.
ALL_CHARACTERS = "1f2ea2b353c4bf5a69a873f6f223625b3990d15f07655ae04d80ceeb0d6000cd"

AWKWARD = (
    "aA9 .,'-_#[]éÉßİıΣςñ\t\n\x00\x07\x85\xa0\xad\u0301\u0323\u200b\u200d\u2028\u3000\ufeff\ufffd用東각มा🙂\U0001f92f"
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.text(st.sampled_from(AWKWARD), max_size=60),
    st.lists(st.sampled_from(["[SEP]", "[CLS]", "x" * 100, "y" * 101, "embedding", "Ünïcödé", "##s", " "])).map(
        "".join
    ),
)


def new_tokenizer() -> WordPiece:
    return WordPiece(engrain_minilm.VOCABULARY.read_text("utf-8").removesuffix("\n").split("\n"))


@pytest.fixture(scope="module")
def tokenizer() -> WordPiece:
    return new_tokenizer()


@pytest.fixture(scope="module")
def original() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.BertWordPieceTokenizer(str(engrain_minilm.VOCABULARY), lowercase=True)
    made._tokenizer.encode_special_tokens = True
    return made


@for_each(("text", "pieces"), GOLDEN)
def test_golden_texts_have_the_word_pieces_of_the_original(tokenizer: WordPiece, text: str, pieces: list[int]) -> None:
    assert tokenizer.pieces(text) == pieces


def test_every_character_is_read_as_the_original_reads_it(tokenizer: WordPiece) -> None:
    digest = hashlib.sha256()
    for code in range(0x20000):
        if not 0xD800 <= code < 0xE000:
            ids = tokenizer.pieces(f"a{chr(code)}b")
            digest.update(struct.pack(f"<B{len(ids)}H", len(ids), *ids))
    assert digest.hexdigest() == ALL_CHARACTERS


@settings(max_examples=up_to(1_000))
@given(text=TEXTS)
def test_fuzzed_texts_have_the_word_pieces_of_the_original(tokenizer: WordPiece, original: Any, text: str) -> None:
    assert tokenizer.encode(text, limit=1_000) == original.encode(text).ids


def test_a_text_begins_and_ends_with_the_marks_and_is_cut_between_them(tokenizer: WordPiece) -> None:
    start, end = tokenizer.encode("", limit=8)
    assert tokenizer.encode("one two three four five six seven", limit=5) == [
        start,
        *tokenizer.pieces("one two three"),
        end,
    ]


def test_marks_written_in_a_text_are_only_text(tokenizer: WordPiece) -> None:
    start, end = tokenizer.encode("", limit=2)
    assert {start, end}.isdisjoint(tokenizer.pieces("[CLS] [SEP]"))


def test_a_lone_surrogate_is_as_if_it_were_not_there(tokenizer: WordPiece) -> None:
    assert tokenizer.pieces("mem\ud800ory") == tokenizer.pieces("memory")


@pytest.mark.parametrize("filler", ["word ", "word", "用", "a\n", "\x00"])
def test_a_long_text_is_read_only_as_far_as_needed_with_the_same_result(tokenizer: WordPiece, filler: str) -> None:
    text = filler * 20_000 + " end"
    assert tokenizer.pieces(text, limit=300) == tokenizer.pieces(text)[:300]


def test_the_cached_words_are_bounded(tokenizer: WordPiece, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordpiece, "MAX_CACHED_WORDS", 10)
    fresh = new_tokenizer()
    words = [f"word{n}" for n in range(50)]
    assert fresh.pieces(" ".join(words)) == [piece for word in words for piece in tokenizer.pieces(word)]
    assert len(fresh._words) <= 10
