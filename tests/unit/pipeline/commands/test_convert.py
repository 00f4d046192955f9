"""`bert-tfx convert`: equal weights in every format, or an error of one line."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file
from tensorflow_serving.apis import prediction_log_pb2

import bert_keras
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS as BPE_TOKENS
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, byte_alphabet
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import read_huggingface, read_pushed, write_huggingface
from tests.support.models.pushed_folders import only_served, without_graph
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of
from tests.support.pipeline.command_line import bert_tfx

VOCABULARY = [*SPECIAL_TOKENS, "the", "cat", "sat", "##s", "."]
BYTES = ByteBpeTokenizer([*BPE_TOKENS, *byte_alphabet(), "Ġc"], [("Ġ", "c")])
CONFIG = BertConfig(len(VOCABULARY), 16, 2, 2, 32, max_position_embeddings=12)


def convert(source, target, from_, to, *words):
    return bert_tfx("convert", "--from", from_, "--to", to, source, target, *words)


def write(model, folder, lower_case=True):
    write_huggingface(model, BertTokenizer(VOCABULARY, lower_case), str(folder))
    return folder


@pytest.fixture(scope="module")
def model():
    model = BertForPreTraining(CONFIG, seed=1)
    model.build()
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape).astype("float32") for w in model.get_weights()])
    return model


def test_a_fine_tuned_head_is_refused_and_the_remedy_writes_the_encoder(model, tmp_path, capsys):
    source, target = write(model, tmp_path / "hf"), tmp_path / "hub"
    tensors = load_file(source / "model.safetensors")
    save_file({**tensors, "classifier.weight": np.ones((3, 16), "float32")}, source / "model.safetensors")
    code, out, err = convert(source, target, "hf", "tf1")
    assert (code, out, err.count("\n")) == (2, "", 1) and not target.exists()
    assert (
        "is a fine-tuned model: its head is left out (classifier.weight), since BertForPreTraining is no class" in err
    )
    exec(err[err.index("in Python: ") :].removeprefix("in Python: "), {"bert_keras": bert_keras})
    assert "its head is left out (classifier.weight)" in capsys.readouterr().err
    kernel = "bert/encoder/layer_0/intermediate/dense/kernel"
    written = tf.train.load_variable(str(target / "bert_model.ckpt"), kernel)
    np.testing.assert_array_equal(written, tensors["bert.encoder.layer.0.intermediate.dense.weight"].T)
    code, _, err = convert(target / "bert_model.ckpt", tmp_path / "again", "tf1", "hf", "--uncased")
    assert code == 0, err
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(np.array_equal(again[name], tensors[name]) for name in again)


@pytest.mark.parametrize("lower_case", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_round_trip_keeps_every_bit(model, tmp_path, lower_case):
    write(model, tmp_path / "hf", lower_case)
    case = "--uncased" if lower_case else "--cased"
    steps = [("hf", "tf1", ()), ("tf1", "bert-tfx", (case,)), ("bert-tfx", "tf1", ()), ("tf1", "hf", (case,))]
    source = tmp_path / "hf"
    for number, (from_, to, words) in enumerate(steps):
        with without_graph():
            code, out, err = convert(source, tmp_path / str(number), from_, to, *words)
        assert code == 0, err
        assert out.strip() == f"{tmp_path / str(number)}: 2 layers, 16 wide, 10 tokens"
        source = tmp_path / str(number)
    pushed = json.loads((tmp_path / "1" / "bert_config.json").read_text())
    assert (pushed["family"], pushed["origin"]) == ("bert", {"format": "tf1", "name": "0"})
    first, last = (load_file(folder / "model.safetensors") for folder in (tmp_path / "hf", source))
    assert set(first) == set(last)
    assert all(np.array_equal(first[name], last[name]) for name in first)
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        assert (tmp_path / "hf" / name).read_bytes() == (source / name).read_bytes()


def test_a_converted_model_takes_raw_text(model, tmp_path):
    with only_served("encode"):
        code, _, err = convert(write(model, tmp_path / "hf"), tmp_path / "served/1", "hf", "bert-tfx")
    assert code == 0, err
    served = tf.saved_model.load(str(tmp_path / "served/1"))
    answer = served.signatures["encode"](text=tf.constant(["The cats sat."]))
    ids = np.array([[2, 5, 6, 8, 7, 9, 3]])
    expected = model.backbone({"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)})
    assert_equal_but_for_rounding(answer["pooled_output"], expected["pooled_output"], depth_of(CONFIG, ids.size))
    assert read_pushed(str(tmp_path / "served/1")).tokenizer.normalization.lower_case


def test_missing_heads_are_reported(tmp_path):
    backbone = BertBackbone(CONFIG)
    backbone.build()
    code, out, err = convert(write(backbone, tmp_path / "hf"), tmp_path / "out", "hf", "bert-tfx")
    assert code == 0, err
    assert out.strip().endswith("untrained: masked-LM head, next-sentence head")
    # Signatures with untrained weights are left out; a server's warm-up does not ask for them either.
    served = tf.saved_model.load(str(tmp_path / "out"))
    assert set(served.signatures) == {"serving_default", "encode", "encode_pair"}
    text = tf.constant(["The cats sat."])
    default, encoded = (served.signatures[name](text=text) for name in ("serving_default", "encode"))
    np.testing.assert_array_equal(default["pooled_output"], encoded["pooled_output"])
    requests = [
        prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request.model_spec.signature_name
        for record in tf.data.TFRecordDataset(str(tmp_path / "out/assets.extra/tf_serving_warmup_requests"))
    ]
    assert requests == ["serving_default", "encode", "encode_pair"]
    found = read_pushed(str(tmp_path / "out"))
    assert found.untrained == ("masked-LM head", "next-sentence head")
    found = found.model
    for ours, theirs in zip(found.backbone.get_weights(), backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_one_vector_a_text_and_the_length_are_kept_on_the_way(model, tmp_path):
    source = tmp_path / "hf"
    write_huggingface(model, BertTokenizer(VOCABULARY, True), str(source), max_seq_length=10)
    with without_graph():
        code, out, err = convert(source, tmp_path / "1", "hf", "bert-tfx", "--pooling", "mean")
    assert code == 0 and out.endswith("; one vector a text: mean, normalised\n"), err
    code, out, err = convert(tmp_path / "1", tmp_path / "again", "bert-tfx", "hf", "--no-normalize")
    assert code == 0 and out.endswith("; one vector a text: mean\n"), err
    again = read_huggingface(str(tmp_path / "again"))
    assert (again.embedding, again.max_seq_length) == (EmbeddingSettings("mean", False, 10), 10)
    code, out, err = convert(tmp_path / "again", tmp_path / "tf1", "hf", "tf1")
    assert code == 0 and out.endswith("; tf1 has no sentence vectors\n"), err
    code, _, err = convert(source, tmp_path / "no", "hf", "bert-tfx", "--normalize")
    assert code == 2 and "does not say how a text gets one vector; add --pooling" in err


@pytest.mark.parametrize(
    ("dropped", "signatures", "pooled"),
    [
        (("cls.seq_relationship",), {"evaluate", "fill_mask"}, True),
        pytest.param(("cls.seq_relationship", "bert.pooler"), {"evaluate", "fill_mask"}, False, marks=pytest.mark.slow),
        (("cls.", "bert.pooler"), set(), False),
    ],
)
def test_only_signatures_with_trained_weights_are_exported(model, tmp_path, dropped, signatures, pooled):
    """A pooler without a next-sentence head may be trained; unknown modules of sentence-transformers are reported."""
    source = write(model, tmp_path / "hf")
    tensors = load_file(source / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if not name.startswith(dropped)}, source / "model.safetensors")
    (source / "modules.json").write_text("[]")
    with without_graph() as exported:
        code, out, err = convert(source, tmp_path / "out", "hf", "bert-tfx")
    assert code == 0, err
    assert "is a sentence-transformers model whose sentence vectors are not computed" in out and out.count("\n") == 1
    (served,) = exported
    assert set(served) == {"serving_default", "encode", "encode_pair"} | signatures
    assert ("pooled_output" in served["encode"].structured_outputs) == pooled


@pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is unset: no checkpoint of the original")
def test_a_checkpoint_of_the_original(tmp_path):
    source = Path(os.environ["BERT_DATA_DIR"], "tf1_checkpoint_tiny")
    code, out, err = convert(source, tmp_path / "hf", "tf1", "hf", "--uncased")
    assert code == 0, err
    assert out.startswith(f"{tmp_path}/hf: 2 layers, 4 wide, 15 tokens")


def test_an_impossible_conversion_is_one_line_and_writes_nothing(model, tmp_path):
    hf = write(model, tmp_path / "hf")
    assert convert(hf, tmp_path / "tf1", "hf", "tf1")[0] == 0

    def refusal(*words):
        code, _, err = convert(*words)
        assert code == 2 and err.count("\n") == 1
        return err

    out = tmp_path / "out"
    assert "does not say whether its vocabulary is lower-cased: give --cased or --uncased" in refusal(
        tmp_path / "tf1", out, "tf1", "hf"
    )
    assert "no such folder; SRC is the folder of a model" in refusal(tmp_path / "none", out, "hf", "tf1")
    assert "not empty; give a new folder" in refusal(hf, tmp_path / "tf1", "hf", "tf1")
    assert "bert_config.json is missing" in refusal(hf, out, "bert-tfx", "tf1")
    (hf / "vocab.txt").write_text("[PAD]\n")
    assert "vocab.txt has 1 tokens, but the word embeddings have 10 rows" in refusal(hf, out, "hf", "tf1")
    (hf / "vocab.txt").unlink()
    assert "needs a vocabulary" in refusal(hf, out, "hf", "bert-tfx")
    assert not out.exists() or not list(out.iterdir())


def test_weights_of_another_model_are_named(model, tmp_path):
    with without_graph():
        assert convert(write(model, tmp_path / "hf"), tmp_path / "a", "hf", "bert-tfx")[0] == 0
    text = (tmp_path / "a/bert_config.json").read_text().replace('"intermediate_size": 32', '"intermediate_size": 64')
    (tmp_path / "a/bert_config.json").write_text(text)
    code, _, err = convert(tmp_path / "a", tmp_path / "b", "bert-tfx", "hf")
    assert code == 2 and "model.weights.h5: the weights do not fit bert_config.json beside it" in err


def write_variants(folder):
    """A RoBERTa and an ELECTRA, a folder of Hugging Face each."""
    shape = dataclasses.replace(CONFIG, hidden_act="gelu_erf")
    roberta = dataclasses.replace(shape, vocab_size=len(BYTES.vocabulary), type_vocab_size=1, layer_norm_eps=1e-5)
    models = {
        "roberta": (RobertaForMaskedLM(roberta), BYTES),
        "electra": (ElectraDiscriminator(ElectraConfig(shape, 8, 1.0)), BertTokenizer(VOCABULARY, True)),
    }
    for name, (model, tokenizer) in models.items():
        model.build()
        write_huggingface(model, tokenizer, str(folder / name))
    return models


def test_a_roberta_around_keras_hub_is_the_same(tmp_path):
    pytest.importorskip("keras_hub")
    model, _ = write_variants(tmp_path)["roberta"]
    segments = model.backbone.embeddings.token_type_embeddings.embeddings
    segments.assign(np.zeros(segments.shape))  # as in published models
    write_huggingface(model, BYTES, str(tmp_path / "hf"))
    for source, target in (("hf", "keras-hub"), ("keras-hub", "again")):
        code, out, err = convert(tmp_path / source, tmp_path / target, source, target.replace("again", "hf"))
        assert code == 0, err
        assert out.strip() == f"{tmp_path / target}: 2 layers, 16 wide, 262 tokens"
    for name in ("config.json", "vocab.json", "merges.txt", "tokenizer_config.json", "model.safetensors"):
        assert (tmp_path / "hf" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_parts_without_a_counterpart_in_keras_hub_are_reported(tmp_path):
    pytest.importorskip("keras_hub")
    write_variants(tmp_path)
    code, out, err = convert(tmp_path / "electra", tmp_path / "out", "hf", "keras-hub")
    assert code == 0, err
    head, drawn, gelu, dropped, why = out.strip().split("; ")
    assert head == f"{tmp_path / 'out'}: 2 layers, 16 wide, 10 tokens"
    assert drawn == f"NOT in {tmp_path / 'electra'}, untrained: pooler"
    assert "ElectraBackbone computes gelu_tanh, the model was trained with gelu_erf" in gelu
    assert (dropped, why) == ("dropped: discriminator head", "keras-hub has no equivalent")


def test_a_target_that_cannot_hold_the_family_is_one_line_with_the_remedy(tmp_path):
    write_variants(tmp_path)
    code, _, err = convert(tmp_path / "roberta", tmp_path / "out", "hf", "tf1")
    assert code == 2 and err.count("\n") == 1
    whose = "checkpoints of google-research/bert"
    assert f"{whose} cannot hold a model of RoBERTa; write it with --to hf" in err
    # google-research/electra has heads of 64 alone.
    code, _, err = convert(tmp_path / "electra", tmp_path / "out", "hf", "tf1", "--uncased")
    assert code == 2 and err.count("\n") == 1
    assert "model.num_attention_heads is 2, but google-research/electra computes with 1 and stores none" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_roberta_is_served_and_comes_back(tmp_path):
    write_variants(tmp_path)
    code, out, err = convert(tmp_path / "roberta", tmp_path / "pushed", "hf", "bert-tfx")
    assert code == 0, err
    assert out.strip() == f"{tmp_path / 'pushed'}: 2 layers, 16 wide, 262 tokens"
    served = tf.saved_model.load(str(tmp_path / "pushed"))
    assert set(served.signatures) == {"serving_default", "fill_mask", "encode", "encode_pair", "evaluate"}
    assert "pooled_output" not in served.signatures["encode"].structured_outputs
    assert convert(tmp_path / "pushed", tmp_path / "again", "bert-tfx", "hf")[0] == 0
    for name in ("config.json", "vocab.json", "merges.txt", "tokenizer_config.json", "model.safetensors"):
        assert (tmp_path / "roberta" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


@pytest.mark.slow
def test_an_electra_is_served_with_its_generator_and_comes_back(tmp_path):
    """The generator fills masks, the discriminator encodes; the discriminator alone is served without fill_mask."""
    sizes = {"vocab_size": len(VOCABULARY), "max_position_embeddings": 12, "hidden_act": "gelu_erf"}
    shape = ElectraConfig(BertConfig.size(2, 128, **sizes), 32, 0.5)
    networks = [ElectraForPreTraining(shape, seed=seed) for seed in (1, 2)]
    for network in networks:
        network.build()
    both, other = networks
    other.embeddings.set_weights(both.embeddings.get_weights())  # as one generator's beside another discriminator
    tokenizer = BertTokenizer(VOCABULARY, True)
    write_huggingface(both.discriminator, tokenizer, str(tmp_path / "hf"), generator=other.generator)
    code, out, err = convert(tmp_path / "hf", tmp_path / "pushed", "hf", "bert-tfx")
    assert code == 0, err
    assert out.strip() == f"{tmp_path / 'pushed'}: 2 layers, 128 wide, 10 tokens; with its generator"
    signatures = tf.saved_model.load(str(tmp_path / "pushed")).signatures
    assert set(signatures) == {"serving_default", "fill_mask", "encode", "encode_pair", "evaluate"}
    ids = np.array([[2, 5, 4, 3]])  # [CLS] the [MASK] [SEP]
    assert [VOCABULARY[i] for i in ids[0]][2] == "[MASK]"
    inputs = {"input_ids": ids, "input_mask": np.ones((1, 4)), "segment_ids": np.zeros((1, 4))}
    logits = np.asarray(other.generator(inputs)["mlm_logits"])[0, 2]
    filled = signatures["fill_mask"](text=tf.constant([f"{VOCABULARY[5]} [MASK]"]))
    expected = [VOCABULARY[i] for i in np.argsort(-logits)[:5]]
    assert [token.decode() for token in filled["tokens"].numpy()[0, 0]] == expected
    likely = np.sort(np.exp(logits) / np.exp(logits).sum())[::-1][:5]
    np.testing.assert_allclose(filled["scores"].numpy()[0, 0], likely, rtol=1e-5)
    # The default is the discriminator's.
    default = signatures["serving_default"](text=tf.constant([f"{VOCABULARY[5]} {VOCABULARY[6]}"]))
    inputs["input_ids"] = np.array([[2, 5, 6, 3]])
    np.testing.assert_allclose(
        default["sequence_output"], both.discriminator(inputs)["sequence_output"], rtol=0, atol=1e-5
    )
    # Through the checkpoint of google-research/electra too.
    for source, target, case in (("pushed", "tf1", ()), ("tf1", "again", ("--uncased",))):
        formats = {"pushed": "bert-tfx", "again": "hf"}
        words = formats.get(source, source), formats.get(target, target), *case
        code, out, err = convert(tmp_path / source, tmp_path / target, *words)
        assert code == 0, err
        assert out.strip() == f"{tmp_path / target}: 2 layers, 128 wide, 10 tokens; with its generator"
    for name in ("model.safetensors", "vocab.txt", "generator/model.safetensors", "generator/config.json"):
        assert (tmp_path / "hf" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    shutil.rmtree(tmp_path / "hf" / "generator")
    code, out, err = convert(tmp_path / "hf", tmp_path / "alone", "hf", "bert-tfx")
    assert code == 0 and "NOT in" in out and "untrained: generator" in out, out + err
    alone = tf.saved_model.load(str(tmp_path / "alone")).signatures
    assert set(alone) == {"serving_default", "encode", "encode_pair"}
    assert not (tmp_path / "alone" / "generator.weights.h5").exists()
    code, _, err = convert(tmp_path / "again" / "generator", tmp_path / "x", "hf", "bert-tfx", "--uncased")
    assert code == 2 and "an ELECTRA's generator is pushed with its discriminator" in err and err.count("\n") == 1
