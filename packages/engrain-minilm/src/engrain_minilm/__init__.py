"""The paths of the weights and the vocabulary of all-MiniLM-L6-v2, and the hashes of their bytes."""

from pathlib import Path

NAME = "all-MiniLM-L6-v2"
DIMENSION = 384
MAX_PIECES = 256

MODEL = Path(__file__).with_name("model.onnx")
MODEL_SHA256 = "bf61d7fdbcd7245ce59f2268aa4b2d9c86e6c6677366c27bb1fe8f1a852d7cff"

VOCABULARY = Path(__file__).with_name("vocab.txt")
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
