"""Write all-MiniLM-L6-v2 as one ONNX graph of standard operators: word pieces in, unit vectors out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, HEAD, WIDTH, POSITIONS = 6, 12, 32, 384, 256
OPSET, IR_VERSION = 17, 8
EPSILON = 1e-12
# One weight of this matrix is 6.2 where its neighbours stay under 0.8: its channel's int8 step would be ten times too
# coarse. Half floats here cost 0.6 MB and lift the worst short text from cosine .9964 to .998.
HALF_FLOATS = frozenset({"encoder.layer.2.output.dense"})

Floats = NDArray[np.float32]
Weights = Mapping[str, Floats]


def build(weights: Weights, *, quantised: bool) -> bytes:
    """The bytes of the model; the same weights always give the same bytes."""
    graph = Graph(quantised)
    hidden = _embeddings(graph, weights)
    bias = _attention_bias(graph)
    for layer in range(LAYERS):
        hidden = _layer(graph, weights, f"encoder.layer.{layer}.", hidden, bias)
    _pool(graph, hidden)
    return graph.serialise()


class Graph:
    """A list of nodes and constants in the order they were asked for, which is what makes the bytes repeatable."""

    def __init__(self, quantised: bool) -> None:
        self.quantised = quantised
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def call(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        name = f"{operator.lower()}_{len(self.nodes)}"
        results = [name] if outputs == 1 else [f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), results, name=name, **attributes))
        return results

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        return self.call(operator, *inputs, **attributes)[0]

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def number(self, value: float) -> str:
        return self.constant(f"number_{value}", np.asarray(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.constant("integers_" + "_".join(map(str, values)), np.asarray(values, np.int64))

    def matrix(self, name: str, value: Floats) -> str:
        """A weight of shape (in, out), kept as int8 with one scale for each output."""
        if not self.quantised:
            return self.constant(name, value)
        if name in HALF_FLOATS:
            return self("Cast", self.constant(name + ".half", value.astype(np.float16)), to=TensorProto.FLOAT)
        codes, scale = quantise(value, axis=0)
        return self(
            "DequantizeLinear",
            self.constant(name + ".int8", codes),
            self.constant(name + ".scale", scale),
            axis=1,
        )

    def serialise(self) -> bytes:
        def shape(name: str, kind: int, *dims: str | int) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, kind, list(dims))

        body = helper.make_graph(
            self.nodes,
            "all-MiniLM-L6-v2",
            [
                shape("input_ids", TensorProto.INT64, "batch", "length"),
                shape("attention_mask", TensorProto.INT64, "batch", "length"),
            ],
            [shape("embedding", TensorProto.FLOAT, "batch", WIDTH)],
            initializer=list(self.constants.values()),
        )
        model = helper.make_model(
            body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="engrain-minilm"
        )
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))


def quantise(value: Floats, axis: int) -> tuple[NDArray[np.int8], Floats]:
    """Symmetric int8 codes and the scale of each channel, the channels being what `axis` is reduced over."""
    scale = (np.abs(value).max(axis=axis, keepdims=True) / np.float32(127)).astype(np.float32)
    scale[scale == 0] = 1
    codes = np.clip(np.rint(value / scale), -127, 127).astype(np.int8)
    return codes, scale.squeeze(axis)


def _embeddings(graph: Graph, weights: Weights) -> str:
    words = weights["embeddings.word_embeddings.weight"]
    if graph.quantised:
        # Gather first, scale after: dequantising the table itself would make 47 MB of float32 at load.
        codes, scale = quantise(words, axis=1)
        rows = graph("Gather", graph.constant("words.int8", codes), "input_ids")
        scales = graph("Gather", graph.constant("words.scale", scale[:, None]), "input_ids")
        found = graph("Mul", graph("Cast", rows, to=TensorProto.FLOAT), scales)
    else:
        found = graph("Gather", graph.constant("words", words), "input_ids")
    # Every text is one segment, so the vector of segment 0 is part of the position.
    segment = weights["embeddings.token_type_embeddings.weight"][0]
    table = graph.constant("positions", weights["embeddings.position_embeddings.weight"][:POSITIONS] + segment)
    length = graph("Slice", graph("Shape", "input_ids"), graph.integers(1), graph.integers(2))
    positions = graph("Slice", table, graph.integers(0), length, graph.integers(0))
    return _norm(graph, weights, "embeddings.LayerNorm", graph("Add", found, positions))


def _attention_bias(graph: Graph) -> str:
    """0 for a word piece and a large negative number for padding, shaped (batch, 1, 1, length)."""
    mask = graph("Cast", "attention_mask", to=TensorProto.FLOAT)
    padding = graph("Sub", graph.number(1.0), mask)
    return graph("Unsqueeze", graph("Mul", padding, graph.number(-10000.0)), graph.integers(1, 2))


def _layer(graph: Graph, weights: Weights, at: str, hidden: str, bias: str) -> str:
    mixed = _attention(graph, weights, at + "attention.", hidden, bias)
    hidden = _norm(graph, weights, at + "attention.output.LayerNorm", graph("Add", mixed, hidden))
    wide = _dense(graph, weights, at + "intermediate.dense", hidden)
    half = graph("Mul", wide, graph.number(0.5))
    bent = graph("Add", graph("Erf", graph("Div", wide, graph.number(float(np.float32(2**0.5))))), graph.number(1.0))
    narrow = _dense(graph, weights, at + "output.dense", graph("Mul", half, bent))
    return _norm(graph, weights, at + "output.LayerNorm", graph("Add", narrow, hidden))


def _attention(graph: Graph, weights: Weights, at: str, hidden: str, bias: str) -> str:
    parts = [at + "self." + part for part in ("query", "key", "value")]
    # Queries are divided by sqrt(32) here, once, instead of all scores at each call.
    shrink = [np.float32(HEAD**-0.5), np.float32(1), np.float32(1)]
    matrix = np.concatenate([weights[p + ".weight"].T * s for p, s in zip(parts, shrink, strict=True)], axis=1)
    vector = np.concatenate([weights[p + ".bias"] * s for p, s in zip(parts, shrink, strict=True)])
    all_three = graph("MatMul", hidden, graph.matrix(at + "qkv", matrix))
    all_three = graph("Add", all_three, graph.constant(at + "qkv.bias", vector))
    query, key, value = graph.call("Split", all_three, graph.integers(WIDTH, WIDTH, WIDTH), outputs=3, axis=2)
    heads = graph.integers(0, 0, HEADS, HEAD)
    query = graph("Transpose", graph("Reshape", query, heads), perm=[0, 2, 1, 3])
    key = graph("Transpose", graph("Reshape", key, heads), perm=[0, 2, 3, 1])
    value = graph("Transpose", graph("Reshape", value, heads), perm=[0, 2, 1, 3])
    scores = graph("Softmax", graph("Add", graph("MatMul", query, key), bias), axis=-1)
    mixed = graph("Transpose", graph("MatMul", scores, value), perm=[0, 2, 1, 3])
    return _dense(graph, weights, at + "output.dense", graph("Reshape", mixed, graph.integers(0, 0, WIDTH)))


def _dense(graph: Graph, weights: Weights, at: str, hidden: str) -> str:
    product = graph("MatMul", hidden, graph.matrix(at, weights[at + ".weight"].T))
    return graph("Add", product, graph.constant(at + ".bias", weights[at + ".bias"]))


def _norm(graph: Graph, weights: Weights, at: str, hidden: str) -> str:
    gain = graph.constant(at + ".gain", weights[at + ".weight"])
    shift = graph.constant(at + ".shift", weights[at + ".bias"])
    return graph("LayerNormalization", hidden, gain, shift, axis=-1, epsilon=EPSILON)


def _pool(graph: Graph, hidden: str) -> None:
    """The mean over the word pieces, padding left out, at length 1."""
    mask = graph("Cast", "attention_mask", to=TensorProto.FLOAT)
    # A matrix product, because ReduceSum adds in another order for a batch of one, and the last bit would tell.
    total = graph("MatMul", graph("Unsqueeze", mask, graph.integers(1)), hidden)
    total = graph("Squeeze", total, graph.integers(1))
    mean = graph("Div", total, graph("ReduceSum", mask, graph.integers(1), keepdims=1))
    length = graph("ReduceL2", mean, axes=[1], keepdims=1)
    graph.nodes.append(helper.make_node("Div", [mean, length], ["embedding"], name="unit"))
