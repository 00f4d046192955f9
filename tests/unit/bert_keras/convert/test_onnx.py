"""`convert --to onnx`: ONNX Runtime computes the outputs of the Keras model, for every family, head and task type."""

import json
import re

import numpy as np
import onnx
import onnxruntime
import pytest
import tokenizers
from typer.testing import CliRunner

from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.onnx.answers import OnnxModel
from bert_keras.convert.onnx.folder import MODEL_FILE, write_onnx
from bert_keras.convert.onnx.graph import OPSET, onnx_model
from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, ExampleLayout
from bert_keras.errors import InputError
from bert_keras.models import task_models
from bert_keras.models.backbone import BertBackbone
from bert_keras.objectives import next_token
from bert_keras.saved_model.pretrained import export_saved_model
from bert_keras.saved_model.settings import CONFIG_FILE, NO_EMBEDDING, EmbeddingSettings
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.settings import TaskSettings, TaskSpec
from bert_keras.tasks.table import task_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from pipeline.cli import app
from tests.support.models.every_model import CASES, LEFT_TO_RIGHT, MODERN, TINY, Case, features, named, random_model
from tests.support.models.model_folders import read_huggingface
from tests.support.models.pushed_folders import without_graph
from tests.support.models.trained_bert import DIRECTORY
from tests.support.models.trained_bert import features as features_of_texts

runner = CliRunner()
PUSHED = ("--from", "bert-tfx", "--to", "onnx")
# Of 12 layers of float32, in values of about 1.
TOLERANCE = 1e-4
MODELS = {
    **{
        name: case
        for name, case in CASES.items()
        if name not in ("bilm", "features", "bilm's features", "similarity")
        and not re.search("packed|deberta|mpnet", name)
    },
    "encoder": Case(lambda: BertBackbone(TINY, embedding_size=12), features, None),
    "modern classification": Case(lambda: task_models.BertForSequenceClassification(MODERN, 3), features, None),
    "causal regression": Case(lambda: task_models.BertForRegression(LEFT_TO_RIGHT), features, None),
    "electra tags": Case(lambda: task_models.BertForTokenClassification(TINY, 3, embedding_size=12), features, None),
}
NAMES = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids"}


def computed(proto, *inputs):
    """The outputs of ONNX Runtime for each of the inputs, by name; without its optimisations they are the same."""
    onnx.checker.check_model(proto, full_check=True)
    content, by_level = proto.SerializeToString(), []
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(content, options)
        names = {value.name for value in session.get_inputs()}
        feeds = [{there: x[here].astype(np.int64) for here, there in NAMES.items() if there in names} for x in inputs]
        outputs = [value.name for value in session.get_outputs()]
        by_level.append([dict(zip(outputs, session.run(None, feed), strict=True)) for feed in feeds])
    for plain, optimised in zip(*by_level, strict=True):
        for name, value in plain.items():
            np.testing.assert_allclose(optimised[name], value, atol=TOLERANCE)
    return by_level[1]


def expected(model, x):
    """The model's outputs under the names of the graph."""
    inputs = {name: x[name] for name in NAMES}
    if hasattr(model, "classifier"):
        outputs = model(inputs)
        return outputs if isinstance(outputs, dict) else {"logits": outputs}
    outputs = getattr(model, "backbone", model)(inputs)
    sequence, found = outputs["sequence_output"], {"last_hidden_state": outputs["sequence_output"]}
    if getattr(model, "backbone", model).has_pooler:
        found["pooler_output"] = outputs["pooled_output"]
    head = getattr(model, "mlm_head", getattr(model, "lm_head", None))
    if head is not None:
        found["logits"] = head(sequence, None, model.backbone.embeddings.word_embeddings.embeddings)
    elif hasattr(model, "head_dense"):
        found["logits"] = model(inputs)["discriminator_logits"]
    if hasattr(model, "nsp_head"):
        found["seq_relationship_logits"] = model.nsp_head(outputs["pooled_output"])
    return found


def assert_equal(found, model, x):
    wanted = {name: np.asarray(value) for name, value in expected(model, x).items()}
    extra = {"sentence_embedding", *(("last_hidden_state", "pooler_output") if hasattr(model, "classifier") else ())}
    assert set(wanted) <= set(found) <= set(wanted) | extra
    assert np.abs(wanted[max(wanted)]).max() > 0.1
    for name, value in wanted.items():
        # A padded query of a local layer sees padding alone, and which of it depends on the blocks that are read.
        kept = x["input_mask"] > 0 if value.shape[:2] == x["input_mask"].shape else np.s_[:]
        np.testing.assert_allclose(found[name][kept], value[kept], atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_every_family_and_head(name):
    case = MODELS[name]
    whole = random_model(case)
    x = case.features()
    for model in (whole.generator, whole.discriminator) if hasattr(whole, "generator") else (whole,):
        # Of other sizes, too: both axes are dynamic.
        sizes = x, {key: value[:2, ..., :7] for key, value in x.items()}
        for each, found in zip(sizes, computed(onnx_model(model, EmbeddingSettings("mean")), *sizes), strict=True):
            assert_equal(found, model, each)


def test_equal_models_of_one_process_give_the_same_bytes():
    first, second = (onnx_model(random_model(MODELS["encoder"]), NO_EMBEDDING).SerializeToString() for _ in range(2))
    assert first == second


def test_sentence_embeddings():
    model = random_model(MODELS["encoder"])
    x = features()
    sequence, mask = np.asarray(model(x)["sequence_output"]), x["input_mask"][:, :, None]
    mean = (sequence * mask).sum(axis=1) / mask.sum(axis=1)
    for pooling, vectors in (("mean", mean), ("cls", sequence[:, 0])):
        for normalize in (True, False):
            proto = onnx_model(model, EmbeddingSettings(pooling, normalize))
            wanted = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalize else vectors
            np.testing.assert_allclose(computed(proto, x)[0]["sentence_embedding"], wanted, atol=TOLERANCE)
    assert "sentence_embedding" not in computed(onnx_model(model, NO_EMBEDDING), x)[0]


def test_a_model_of_vectors_is_written_for_single_texts():
    case = CASES["similarity"]
    model, x = random_model(case), case.features()
    vectors = named(model(x))["logits"]
    texts = {name: value.reshape(-1, value.shape[-1]) for name, value in x.items() if name in NAMES}
    (found,) = computed(onnx_model(model, EmbeddingSettings("mean")), texts)
    assert found.keys() == {"last_hidden_state", "sentence_embedding"}
    np.testing.assert_allclose(found["sentence_embedding"], np.reshape(vectors, (-1, 16)), atol=TOLERANCE)


def test_untrained_parts_have_no_output():
    model = random_model(CASES["bert"])
    outputs = {o.name for o in onnx_model(model, NO_EMBEDDING, ["pooler", "masked-LM head"]).graph.output}
    assert outputs == {"last_hidden_state"}


def test_what_is_not_written_is_refused():
    for name in ("deberta", "mpnet, packed"):
        with pytest.raises(InputError, match=r"model\.relative_attention is not written as ONNX; keep the model as"):
            onnx_model(random_model(CASES[name]), NO_EMBEDDING)
    models = [random_model(CASES[name]) for name in ("features", "bilm", "bilm's features")]
    for model in (*models, task_models.BertForRegression(LEFT_TO_RIGHT, has_bilstm=True)):
        with pytest.raises(InputError, match="has LSTMs, which are not written as ONNX"):
            onnx_model(model, NO_EMBEDDING)


def test_a_trained_model_by_the_command(tmp_path):
    command = ["convert", DIRECTORY, str(tmp_path / "onnx"), "--from", "hf", "--to", "onnx"]
    assert f"opset {OPSET}" in runner.invoke(app, [*command, "--pooling", "mean"]).output
    assert 80 < (tmp_path / "onnx" / MODEL_FILE).stat().st_size >> 20 < 95
    read = read_huggingface(DIRECTORY)
    texts = ["A text.", "Another one: longer, with accents (café), 漢字 and numbers like 3.14."]
    x = features_of_texts(read.tokenizer, texts)
    (found,) = computed(onnx.load(tmp_path / "onnx" / MODEL_FILE), x)
    outputs = read.model(x)
    mask = x["input_mask"][:, :, None]
    states = (np.asarray(outputs["sequence_output"]) * mask).sum(axis=1)
    vectors = states / np.linalg.norm(states, axis=1, keepdims=True)
    np.testing.assert_allclose(found["sentence_embedding"], vectors, atol=TOLERANCE)
    kept = x["input_mask"] > 0
    states = np.asarray(outputs["sequence_output"])
    np.testing.assert_allclose(found["last_hidden_state"][kept], states[kept], atol=TOLERANCE)
    fast = tokenizers.Tokenizer.from_file(str(tmp_path / "onnx" / "tokenizer.json"))
    assert fast.encode(texts[1]).ids == x["input_ids"][1].tolist()
    answer = OnnxModel(str(tmp_path / "onnx")).signatures["embed"].answer(np.array([t.encode() for t in texts], object))
    np.testing.assert_allclose(answer["embedding"], vectors, atol=TOLERANCE)


def test_pushed_models_with_their_task_and_causal_ones(tmp_path):
    tokenizer = BertTokenizer([*SPECIAL_TOKENS, *map(chr, range(97, 122)), *"0123456789"], True)
    task, settings = task_of("sst-2"), TaskSettings(max_seq_length=12)
    model = random_model(Case(lambda: task_models.BertForSequenceClassification(TINY, 2), features, None))
    causal = random_model(CASES["left to right"])
    layout = ExampleLayout("left_to_right", 8, 0, 1, "static")
    with without_graph():
        export_task_model(model, task, settings, tokenizer, str(tmp_path / "task"))
        export_saved_model(causal, tokenizer, str(tmp_path / "causal"), layout, next_token.OBJECTIVE)
    # As a model that was pushed before its configuration had the length.
    config = tmp_path / "causal" / CONFIG_FILE
    fields = json.loads(config.read_text())
    assert fields.pop("max_seq_length") == 8
    config.write_text(json.dumps(fields))
    (tmp_path / "causal" / EXAMPLE_SPEC_FILE).write_text(json.dumps({"max_seq_length": 8}))
    for name, wanted in (("task", model), ("causal", causal)):
        said = runner.invoke(app, ["convert", str(tmp_path / name), str(tmp_path / f"{name}-onnx"), *PUSHED]).output
        assert said.endswith(f"2 layers, 16 wide, 40 tokens; opset {OPSET}\n"), said
        proto = onnx.load(tmp_path / f"{name}-onnx" / MODEL_FILE)
        x = features()
        (found,) = computed(proto, x)
        np.testing.assert_allclose(found["logits"], np.asarray(expected(wanted, x)["logits"]), atol=TOLERANCE)
    assert TaskSpec.load(str(tmp_path / "task-onnx")).task.labels == task.labels
    # Each reads as many tokens of a text as the pushed model does, though the second has positions for 12.
    for name, length in (("task", 12), ("causal", 8)):
        answer = OnnxModel(str(tmp_path / f"{name}-onnx")).signatures["encode"].answer(np.array([b"a b " * 20], object))
        assert answer["tokens"].shape == (1, length), name
    config.write_text(json.dumps({**fields, "max_seq_length": 13}))
    error = runner.invoke(app, ["convert", str(tmp_path / "causal"), str(tmp_path / "refused"), *PUSHED]).exception
    assert str(error) == f"{config}: max_seq_length is 13; it must be a whole number from 3 to 12"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--from", "onnx", "--to", "hf"], "onnx is written, not read"),
        (["--from", "hf", "--to", "hf", "--quantize", "int8"], "only onnx is quantized"),
        (["--from", "hf", "--to", "onnx", "--quantize", "int8"], "--quantize int8 and --calibration FILE, some"),
    ],
)
def test_what_the_command_refuses(arguments, message, tmp_path):
    result = runner.invoke(app, ["convert", str(tmp_path), str(tmp_path / "new"), *arguments])
    assert isinstance(result.exception, InputError) and message in str(result.exception)


def test_nothing_is_written_without_the_models_vocabulary(tmp_path):
    model = random_model(MODELS["encoder"])
    for tokenizer, message in ((None, "needs a vocabulary"), (BertTokenizer(SPECIAL_TOKENS, True), "40 rows")):
        with pytest.raises(InputError, match=message):
            write_onnx(ModelFolder.in_memory(model, tokenizer), str(tmp_path / "new"), "none")
    assert not (tmp_path / "new").exists()
