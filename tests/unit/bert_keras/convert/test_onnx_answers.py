"""A converted folder answers raw text as the SavedModel does: every task type, both tokenizers, the server."""

import dataclasses
import json
import shutil
import urllib.request

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.onnx.answers import OnnxModel
from bert_keras.convert.onnx.folder import write_onnx
from bert_keras.data.example_format import ExampleLayout
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import mlm_nsp
from bert_keras.saved_model.pretrained import ServedBert
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.saved_model.task_signatures import ServedTask
from bert_keras.tasks.settings import TaskSettings, TaskSpec
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from pipeline.apply.row_model import RowModel
from pipeline.engines import engines
from serving.client import Client, ClientError
from serving.models.engine_servable import EngineServable
from serving.scheduling.batching_parameters import BatchingSettings
from serving.server import Server
from tests.support.models.pushed_folders import lazily_traced
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe

LETTERS = "abcdefghijklmnopqrstuvwxyz漢.,'?"
WORDPIECE = BertTokenizer([*SPECIAL_TOKENS, "the", "cat", *LETTERS, *("##" + letter for letter in LETTERS)], True)
MEAN = EmbeddingSettings("mean", max_seq_length=9)
TASKS = {
    "classification": task_of("mrpc"),
    "multi_label": dataclasses.replace(task_of("text-labels"), labels=("joy", "love", "é")),
    "regression": task_of("sts-b"),
    "multiple_choice": task_of("codah"),
    "tagging": dataclasses.replace(task_of("ner"), labels=("B-person", "I-person", "O")),
    "span": task_of("squad2.0"),
}
SETTINGS = TaskSettings(max_seq_length=24, max_query_length=8, doc_stride=6, truncation="head_tail")
TEXTS = ["", "\x00\u200b", "Café 漢字, The CAT's", "the " * 40 + "end", "What cat?", "Obama, (the) -cat- ..."]
INPUTS = {
    "text": TEXTS,
    "text_pair": TEXTS[::-1],
    "question": TEXTS,
    "context": [TEXTS[3], *TEXTS[:5]],
    "choices": [["a cat", text, "the"] for text in TEXTS],
}
TOLERANCE = 1e-4


def drawn(model):
    model.build()
    rng = np.random.default_rng(0)
    around = [float(v.path.endswith("gamma")) for v in model.weights]
    model.set_weights([one + rng.normal(0, 0.2, v.shape) for one, v in zip(around, model.weights, strict=True)])
    return model


def sizes(tokenizer):
    return BertConfig(len(tokenizer.vocabulary), 32, 1, 2, 64, max_position_embeddings=24)


def pretrained(tokenizer):
    return drawn(BertForPreTraining(sizes(tokenizer)))


def inputs_of(servable, name):
    if servable.signature(name).inputs.keys() != {"inputs"}:
        return {of: np.array(encoded(INPUTS[of]), object) for of in servable.signature(name).inputs}
    examples = []
    for row in range(len(TEXTS)):
        example = tf.train.Example()
        for of in ("text", "text_pair"):
            example.features.feature[of].bytes_list.value.append(INPUTS[of][row].encode())
        examples.append(example.SerializeToString())
    return {"inputs": np.array(examples, object)}


def encoded(texts):
    return [encoded(text) if isinstance(text, list) else text.encode() for text in texts]


def assert_equal(servable, signatures, name, inputs):
    wanted = {
        key: value.numpy()
        for key, value in signatures[name](**{key: tf.constant(value) for key, value in inputs.items()}).items()
    }
    found = servable.predict(name, inputs)
    assert set(found) == set(wanted) == set(servable.signature(name).outputs)
    for key, value in wanted.items():
        info = servable.signature(name).outputs[key]
        assert tf.dtypes.as_dtype(info.dtype).as_numpy_dtype == value.dtype == found[key].dtype, (name, key)
        sizes_of_graph = [size or -1 for size in signatures[name].structured_outputs[key].shape]
        assert [dim.size for dim in info.tensor_shape.dim] == sizes_of_graph
        if value.dtype.kind == "f":
            kept = np.s_[:]
            if key == "sequence_output":  # of padding the graph promises nothing
                kept = ~np.isin(found["tokens"], [b"[PAD]", b"<pad>"])
                assert not found[key][~kept].any()
            np.testing.assert_allclose(found[key][kept], value[kept], atol=TOLERANCE, err_msg=f"{name} {key}")
        else:
            np.testing.assert_array_equal(found[key], value, f"{name} {key}")
    empty = servable.predict(name, {key: value[:0] for key, value in inputs.items()})
    assert {key: (value.dtype, value.ndim, len(value)) for key, value in empty.items()} == {
        key: (value.dtype, value.ndim, 0) for key, value in wanted.items()
    }


def servable_of(folder):
    return EngineServable("bert", 1, folder, OnnxModel(str(folder)).signatures, BatchingSettings())


@pytest.mark.parametrize("kind", TASKS)
def test_every_task_type(kind, tmp_path):
    task = TASKS[kind]
    model = drawn(task_type_of(task).create_model(sizes(WORDPIECE), task, SETTINGS, 0))
    folder = ModelFolder.in_memory(model, WORDPIECE, embedding=MEAN, task=task, settings=SETTINGS)
    write_onnx(folder, str(tmp_path), "none")
    served, servable = ServedTask(model, WORDPIECE, task, SETTINGS, MEAN), servable_of(tmp_path)
    with lazily_traced():
        signatures = served.signatures()
    assert set(servable.signature_defs) == set(signatures) - {"evaluate"}
    of_encoder = {"encode", "encode_pair", "embed"} if kind != "tagging" else set()
    for name in sorted(set(signatures) - {"evaluate"} - of_encoder, reverse=True):
        assert_equal(servable, signatures, name, inputs_of(servable, name))
    if kind == "tagging":  # a word may look like padding
        rows = RowModel(servable, "serving_default").answers([{"text": text} for text in ("see [PAD]", "a b c", "a")])
        assert [row["words"] for row in rows] == [["see", "[PAD]"], ["a", "b", "c"], ["a"]]


def test_a_tagger_of_bytes_answers_a_text_without_words(tmp_path):
    """Its tokenizer has a token for a word without characters."""
    tokenizer, task = tiny_byte_bpe(), TASKS["tagging"]
    model = drawn(task_type_of(task).create_model(sizes(tokenizer), task, SETTINGS, 0))
    write_onnx(ModelFolder.in_memory(model, tokenizer, task=task, settings=SETTINGS), str(tmp_path), "none")
    rows = RowModel(servable_of(tmp_path), "serving_default").answers([{"text": ""}, {"text": "a b"}, {"text": ""}])
    assert [row["words"] for row in rows] == [[], ["a", "b"], []]


@pytest.mark.parametrize(
    "tokenizer", [WORDPIECE, pytest.param(tiny_byte_bpe(), marks=pytest.mark.slow)], ids=["wordpiece", "byte_bpe"]
)
def test_a_pretrained_model(tokenizer, tmp_path):
    model, mask = pretrained(tokenizer), tokenizer.vocabulary[tokenizer.mask_id]
    write_onnx(ModelFolder.in_memory(model, tokenizer, embedding=MEAN), str(tmp_path), "none")
    servable = servable_of(tmp_path)
    layout = ExampleLayout.bert(24, 2)
    with lazily_traced():
        signatures = ServedBert(model, tokenizer, layout, mlm_nsp.OBJECTIVE, embedding=MEAN).signatures()
    assert set(servable.signature_defs) == set(signatures) - {"evaluate"} and servable.mask == mask
    masked = [f"{mask} the cat", f"a {mask}, {mask}{mask}", f"Σ {mask}Σ  {mask}"]
    for name in set(signatures) - {"evaluate"}:
        inputs = inputs_of(servable, name)
        if name in ("fill_mask", "serving_default"):
            inputs = {"text": np.array(encoded(masked), object)}
        assert_equal(servable, signatures, name, inputs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("versions")
    write_onnx(ModelFolder.in_memory(pretrained(WORDPIECE), WORDPIECE, embedding=MEAN), str(base / "1"), "none")
    return base


def test_behind_the_server(folder):
    with Server(folder, grpc_port=0, rest_port=0, engines=engines("auto")) as server:
        assert server.wait_until_available(60)
        with Client(f"127.0.0.1:{server.grpc_port}") as client:
            tokens = client.fill_mask(["the [MASK]"])
            with pytest.raises(ClientError, match=r"text 1 has no \[MASK\]: write \[MASK\] where"):
                client.fill_mask(["the [MASK]", "the cat"])
            with pytest.raises(ClientError, match=r"has a \[MASK\] beyond what the model reads, its first 22 word"):
                client.fill_mask(["the " * 30 + "[MASK]"])
        body = json.dumps({"model": "bert", "input": ["the cat", "a"]}).encode()
        url = f"http://127.0.0.1:{server.rest_port}/v1/embeddings"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request))
        assert answer["usage"]["prompt_tokens"] == 7 and len(answer["data"][0]["embedding"]) == 32
    assert tokens


def test_an_engine_sees_its_own_versions_only(folder, tmp_path):
    with Server(folder, grpc_port=0, rest_port=0, engines=engines("tensorflow")) as server:
        assert not server.store.has_versions()
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    with Server(tmp_path, grpc_port=0, rest_port=0, engines=engines("onnx")) as server:
        assert not server.store.has_versions()


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("bert_config.json", {"max_seq_length": "many"}, "max_seq_length is 'many'"),
        ("bert_config.json", {"max_seq_length": 3}, "max_seq_length is 3 .*at least 8"),
        ("task_settings.json", {"dropout": 2}, "task.dropout is 2"),
        ("task_settings.json", {"unknown": 1}, "unknown"),
    ],
)
def test_a_damaged_setting_is_named_with_its_file(file, change, said, folder, tmp_path):
    shutil.copytree(folder / "1", tmp_path / "1")
    settings = dataclasses.asdict(SETTINGS)
    if file == "task_settings.json":
        spec = TaskSpec(TASKS["classification"], counts={}).to_json()
        (tmp_path / "1" / "task_spec.json").write_text(spec)
    else:
        settings = json.loads((tmp_path / "1" / file).read_text())
    (tmp_path / "1" / file).write_text(json.dumps({**settings, **change}))
    with pytest.raises(InputError, match=f"{file}: .*{said}.*; write the model again"):
        OnnxModel(str(tmp_path / "1"))
