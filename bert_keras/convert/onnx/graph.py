"""The ONNX graph of a model: token ids in, the outputs of the encoder and of its heads out.

Inputs, int64 [B, T] (multiple choice [B, C, T]), B and T of any size, under Hugging Face's names:
    input_ids, attention_mask (1 = token, 0 = padding), token_type_ids (without segments in the model: not there)
Outputs, float32:
    last_hidden_state [B, T, H], pooler_output [B, H] (if trained), sentence_embedding [B, H] (with `embedding`)
    logits: classification [B, L]; regression [B]; multiple choice [B, C]; tagging [B, T, L]; masked or next token
        [B, T, V]; replaced token (ELECTRA) [B, T]
    start_logits, end_logits [B, T]: spans; seq_relationship_logits [B, 2]: next sentence

All ops are ONNX's own. Their patterns are those that ONNX Runtime fuses (layer normalisation, gelu with its bias).
Legend: B batch, T tokens, C choices, L labels, H hidden, A heads, D = H / A, V vocabulary.
"""

import dataclasses
import math
from collections.abc import Collection
from typing import Any

import keras
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bert_keras.convert.architecture import backbone_of
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig, Part
from bert_keras.models.layers import MASKED_SCORE, EncoderLayer
from bert_keras.saved_model.settings import EmbeddingSettings

OPSET = 17  # the first with LayerNormalization
IR_VERSION = 8
_SPAN = ("start_logits", "end_logits")
# Task models that do not read the pooler, so that nobody trained it.
_PER_TOKEN = ("BertForSpanExtraction", "BertForTokenClassification", "BertForSentenceSimilarity")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def onnx_model(model: keras.Model, embedding: EmbeddingSettings, untrained: Collection[Part] = ()) -> onnx.ModelProto:
    """The graph of a built float32 model, with its weights.

    InputError: the model has LSTMs or relative positions. `model`: an encoder, a pre-training model (one network of an
    ELECTRA) or a task model. `embedding`: how a text gets one vector. `untrained`: parts with random weights; they have
    no output.
    """
    backbone = backbone_of(model)
    if backbone.config.encoder == "bilm" or any(getattr(model, name, None) for name in ("bilstm", "reader")):
        raise InputError(f"{model.name} has LSTMs, which are not written as ONNX; keep it as bert-tfx")
    config, is_choice = backbone.config, type(model).__name__ == "BertForMultipleChoice"
    graph = _Graph()
    names = INPUTS if config.type_vocab_size > 1 else INPUTS[:2]
    shape = ["batch", "choices", "length"] if is_choice else ["batch", "length"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in names]
    ids, mask, segments = INPUTS[0], INPUTS[1], names[2] if len(names) == 3 else None
    if is_choice:
        flat = graph("Concat", np.array([-1]), graph("Shape", ids, start=2), axis=0)
        ids, mask = graph("Reshape", ids, flat), graph("Reshape", mask, flat)
        segments = segments and graph("Reshape", segments, flat)
    x = _encoder(graph, backbone, ids, mask, segments)
    outputs = {"last_hidden_state": (x, ["batch", "length", config.hidden_size])}
    outputs |= _heads(graph, model, x, mask, INPUTS[0], untrained)
    if embedding.pooling != "none":
        outputs["sentence_embedding"] = (_embedding(graph, x, mask, embedding), ["batch", config.hidden_size])
    for name, (value, _) in outputs.items():
        graph.nodes.append(helper.make_node("Identity", [value], [name]))
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, (_, shape) in outputs.items()]
    made = helper.make_graph(graph.nodes, "bert", inputs, infos, graph.constants)
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="bert-tfx")
    proto.ir_version = IR_VERSION
    return proto


class _Graph:
    """Nodes and constants; calling it adds a node, whose inputs are names, arrays or Keras variables."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._known: dict[Any, str] = {}

    def __call__(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        return self.several(1, kind, *inputs, **attributes)[0]

    def several(self, count: int, kind: str, *inputs: Any, **attributes: Any) -> list[str]:
        number = len(self.nodes)
        names = [f"{kind}_{number}_{i}" for i in range(count)]
        self.nodes.append(
            helper.make_node(kind, [self._name(value) for value in inputs], names, f"{kind}_{number}", **attributes)
        )
        return names

    def _name(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        array = np.asarray(value, None if isinstance(value, np.ndarray) else "float32")
        key: Any = str(array.dtype), array.shape, array.tobytes()
        if isinstance(value, keras.Variable):
            key = value.path.partition("/")[2]  # Keras numbers the models of a process
        if key not in self._known:
            name = key if isinstance(key, str) else f"constant_{len(self.constants)}"
            self._known[key] = name
            self.constants.append(numpy_helper.from_array(array, name))
        return self._known[key]

    def dense(self, x: str, layer: Any) -> str:
        """x W + b, and the layer's activation."""
        x = self("MatMul", x, layer.kernel)
        return self("Add", x, layer.bias) if layer.use_bias else x

    def norm(self, x: str, layer: Any) -> str:
        if not layer.weights:  # an identity
            return x
        weights = [layer.gamma, *([layer.beta] if layer.center else [])]
        return self("LayerNormalization", x, *weights, axis=-1, epsilon=layer.epsilon)

    def gelu(self, x: str, config: BertConfig) -> str:
        if config.hidden_act == "gelu_erf":
            inner = self("Erf", self("Div", x, np.float32(math.sqrt(2.0))))
            return self("Mul", self("Mul", x, self("Add", inner, np.float32(1.0))), np.float32(0.5))
        cubic = self("Mul", self("Pow", x, np.float32(3.0)), np.float32(0.044715))
        inner = self("Tanh", self("Mul", self("Add", x, cubic), np.float32(math.sqrt(2.0 / math.pi))))
        return self("Mul", self("Mul", x, np.float32(0.5)), self("Add", inner, np.float32(1.0)))

    def range(self, like: str) -> str:
        """0, 1, ..., T - 1 for an input [B, T], int64 [T]."""
        length = self("Squeeze", self("Shape", like, start=1, end=2))
        return self("Range", np.array(0), length, np.array(1))


def _encoder(graph: _Graph, backbone: BertBackbone, ids: str, mask: str, segments: str | None) -> str:
    config, embeddings = backbone.config, backbone.embeddings
    if config.relative_attention != "none":
        raise InputError("model.relative_attention is not written as ONNX; keep the model as bert-tfx")
    x = graph("Gather", embeddings.word_embeddings.embeddings, ids)
    if config.type_vocab_size:
        table = embeddings.token_type_embeddings.embeddings
        x = graph("Add", x, graph("Gather", table, segments) if segments else np.asarray(table)[0])
    positions = graph.range(ids)
    if config.position_embedding == "learned":
        x = graph("Add", x, graph("Gather", embeddings.position_embeddings.embeddings, positions))
    x = graph.norm(x, embeddings.layer_norm)
    if backbone.embeddings_project is not None:
        x = graph.dense(x, backbone.embeddings_project)
    views = {
        is_local: _view(graph, config, mask, positions, is_local)
        for is_local in {config.is_local(layer) for layer in range(config.num_hidden_layers)}
    }
    for number, layer in enumerate(backbone.encoder_layers):
        x = _layer(graph, config, layer, x, *views[config.is_local(number)])
    return graph.norm(x, backbone.final_layer_norm) if backbone.final_layer_norm is not None else x


def _view(graph: _Graph, config: BertConfig, mask: str, positions: str, is_local: bool) -> tuple[str, Any]:
    """The bias of the scores, [B, 1, 1 or T, T], and cosines and sines [T, D] of rotary positions (or None)."""
    attended = graph("Cast", graph("Unsqueeze", mask, np.array([1, 2])), to=TensorProto.FLOAT)
    if config.causal or is_local:
        ahead = graph("Sub", positions, graph("Unsqueeze", positions, np.array([1])))  # [query, key]
        if config.causal:
            seen = graph("LessOrEqual", ahead, np.array(0))
            attended = graph("Mul", attended, graph("Cast", seen, to=TensorProto.FLOAT))
        if is_local:
            seen = graph("LessOrEqual", graph("Abs", ahead), np.array(config.local_attention // 2))
            attended = graph("Mul", attended, graph("Cast", seen, to=TensorProto.FLOAT))
    bias = graph("Mul", graph("Sub", np.float32(1.0), attended), np.float32(MASKED_SCORE))
    if config.position_embedding != "rotary":
        return bias, None
    size, base = config.hidden_size // config.num_attention_heads, config.rotary_base
    frequencies = (config.local_rotary_base if is_local else base) ** -(np.arange(0, size, 2) / size)
    angles = graph("Cast", graph("Unsqueeze", positions, np.array([1])), to=TensorProto.FLOAT)
    angles = graph("Mul", angles, frequencies.astype("float32"))  # [T, D / 2]
    cos, sin = graph("Cos", angles), graph("Sin", angles)
    return bias, (graph("Concat", cos, cos, axis=-1), graph("Concat", graph("Neg", sin), sin, axis=-1))


def _layer(graph: _Graph, config: BertConfig, layer: EncoderLayer, x: str, bias: str, rotary: Any) -> str:
    def attend(x: str) -> str:
        return _attention(graph, config, layer.attention, x, bias, rotary)

    def feed_forward(x: str) -> str:
        x = graph.dense(x, layer.intermediate)
        if config.gated_feed_forward:
            x, gate = graph.several(2, "Split", x, axis=-1)
            x = graph("Mul", graph.gelu(x, config), gate)
        else:
            x = graph.gelu(x, config)
        return graph.dense(x, layer.output_dense)

    for function, norm in ((attend, layer.attention_layer_norm), (feed_forward, layer.output_layer_norm)):
        if config.norm_place == "pre":
            x = graph("Add", function(graph.norm(x, norm)), x)
        else:
            x = graph.norm(graph("Add", function(x), x), norm)
    return x


def _attention(graph: _Graph, config: BertConfig, layer: Any, x: str, bias: str, rotary: Any) -> str:
    heads = config.num_attention_heads
    size = config.hidden_size // heads
    three = layer.query, layer.key, layer.value  # in one product
    x = graph("MatMul", x, np.concatenate([dense.kernel for dense in three], axis=1))
    if config.use_bias:
        x = graph("Add", x, np.concatenate([dense.bias for dense in three]))
    split = (graph("Reshape", part, np.array([0, 0, heads, size])) for part in graph.several(3, "Split", x, axis=-1))
    query, key, value = (graph("Transpose", part, perm=[0, 2, 1, 3]) for part in split)  # [B, A, T, D]
    if rotary is not None:
        query, key = _rotate(graph, query, *rotary), _rotate(graph, key, *rotary)
    key = graph("Transpose", key, perm=[0, 1, 3, 2])
    scores = graph("Div", graph("MatMul", query, key), np.float32(math.sqrt(size)))
    probabilities = graph("Softmax", graph("Add", scores, bias), axis=-1)
    context = graph("Transpose", graph("MatMul", probabilities, value), perm=[0, 2, 1, 3])
    return graph.dense(graph("Reshape", context, np.array([0, 0, heads * size])), layer.output_dense)


def _rotate(graph: _Graph, x: str, cos: str, sin: str) -> str:
    first, second = graph.several(2, "Split", x, axis=-1)
    turned = graph("Mul", graph("Concat", second, first, axis=-1), sin)
    return graph("Add", graph("Mul", x, cos), turned)


def _heads(
    graph: _Graph, model: Any, x: str, mask: str, ids: str, untrained: Collection[Part]
) -> dict[str, tuple[str, list]]:
    """The outputs of the pooler and of the heads, with their shapes. `ids` is the input of the whole graph."""
    backbone = backbone_of(model)
    config, kind = backbone.config, type(model).__name__
    outputs: dict[str, tuple[str, list]] = {}
    by_token, by_text = ["batch", "length"], ["batch"]
    x = _pooler(graph, backbone, x) if getattr(model, "pools_tokens", False) else x
    if kind not in _PER_TOKEN and backbone.has_pooler and "pooler" not in untrained:
        outputs["pooler_output"] = _pooled(graph, backbone, x, mask), [*by_text, config.hidden_size]
    if kind == "BertForSpanExtraction":
        parts = graph.several(2, "Split", graph.dense(x, model.classifier), axis=-1)
        squeezed = [graph("Squeeze", part, np.array([2])) for part in parts]
        outputs |= {name: (part, by_token) for name, part in zip(_SPAN, squeezed, strict=True)}
    elif kind == "BertForTokenClassification":
        outputs["logits"] = graph.dense(x, model.classifier), [*by_token, model.num_labels]
    elif hasattr(model, "classifier"):
        logits = graph.dense(outputs["pooler_output"][0], model.classifier)
        outputs["logits"] = logits, [*by_text, model.classifier.units]
        if kind == "BertForMultipleChoice":
            rows = graph("Shape", ids, start=0, end=2)
            outputs["logits"] = graph("Reshape", logits, rows), ["batch", "choices"]
        elif kind == "BertForRegression":
            outputs["logits"] = graph("Squeeze", logits, np.array([1])), by_text
    elif hasattr(model, "head_dense"):
        logits = graph.dense(graph.gelu(graph.dense(x, model.head_dense), config), model.head_output)
        outputs["logits"] = graph("Squeeze", logits, np.array([2])), by_token
    elif (head := getattr(model, "mlm_head", getattr(model, "lm_head", None))) and "masked-LM head" not in untrained:
        hidden = graph.norm(graph.gelu(graph.dense(x, head.dense), config), head.layer_norm)
        table = graph("Transpose", backbone.embeddings.word_embeddings.embeddings, perm=[1, 0])
        outputs["logits"] = (
            graph("Add", graph("MatMul", hidden, table), head.output_bias),
            [*by_token, config.vocab_size],
        )
    if hasattr(model, "nsp_head") and "pooler_output" in outputs and "next-sentence head" not in untrained:
        outputs["seq_relationship_logits"] = graph.dense(outputs["pooler_output"][0], model.nsp_head), [*by_text, 2]
    return outputs


def _pooled(graph: _Graph, backbone: BertBackbone, x: str, mask: str) -> str:
    """The pooler's output [B, H], of the first token, in a causal model of the last."""
    if backbone.config.causal:
        last = graph("Sub", graph("ReduceSum", mask, np.array([1]), keepdims=1), np.array(1))
        x = graph("GatherND", x, graph("Max", last, np.array(0)), batch_dims=1)
    elif backbone.head == "norm_mean":
        x = _mean(graph, x, mask)
    else:
        x = graph("Gather", x, np.array(0), axis=1)
    return _pooler(graph, backbone, x)


def _pooler(graph: _Graph, backbone: BertBackbone, x: str) -> str:
    """The function of `bert_keras.models.backbone.Pooler`."""
    if not backbone.has_pooler:
        return x
    x = graph.dense(x, backbone.pooler)
    if backbone.head in ("tanh", "relu"):
        return graph(backbone.head.capitalize(), x)
    exact = dataclasses.replace(backbone.config, hidden_act="gelu_erf")
    x = graph.gelu(x, exact if backbone.head == "gelu" else backbone.config)
    return graph.norm(x, backbone.pooler.norm) if backbone.pooler.norm is not None else x


def _mean(graph: _Graph, x: str, mask: str) -> str:
    """The mean of the vectors [B, T, H] of the tokens, [B, H]."""
    weights = graph("Cast", graph("Unsqueeze", mask, np.array([1])), to=TensorProto.FLOAT)  # [B, 1, T]
    total = graph("Squeeze", graph("MatMul", weights, x), np.array([1]))
    return graph("Div", total, graph("ReduceSum", weights, np.array([2]), keepdims=0))


def _embedding(graph: _Graph, x: str, mask: str, settings: EmbeddingSettings) -> str:
    """The signature `embed` (`bert_keras.saved_model.text_inputs.embed`)."""
    x = _mean(graph, x, mask) if settings.pooling == "mean" else graph("Gather", x, np.array(0), axis=1)
    if not settings.normalize:
        return x
    square = graph("Max", graph("ReduceSumSquare", x, axes=[1], keepdims=1), np.float32(1e-12))
    return graph("Div", x, graph("Sqrt", square))
