"""Byte-level BPE through training and export: a served model that fills `<mask>`, read again as a RoBERTa."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from bert_keras.convert.initial_weights import initial_folder
from bert_keras.data.example_format import ExampleSpec
from bert_keras.errors import InputError
from bert_keras.finetuning.init_checkpoint import read_init
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator
from bert_keras.models.pretraining_heads import RobertaForMaskedLM
from bert_keras.pretraining import load_tokenizer, pretrain
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer
from bert_keras.tokenizers.vocabulary_files import MERGES_FILE
from components.trainer.initial_model import export_initial_model
from tests.support.models.model_folders import assert_equal, read_any, write
from tests.support.models.pretrain_jobs import STANDING, change_spec, made_for, pretrain_job
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe

TOKENIZER = tiny_byte_bpe()
MODEL = BertConfig(
    len(TOKENIZER.vocabulary), 16, 1, 1, 64, max_position_embeddings=16, type_vocab_size=1, layer_norm_eps=1e-5,
    hidden_act="gelu_erf",
)  # fmt: skip
TEXTS = ["the <mask> sat.", "dog <mask> <mask>"]


@pytest.fixture(scope="module")
def job(examples, tmp_path_factory):
    """The ids of `conftest`'s examples are other tokens here, which training does not know."""
    folder = tmp_path_factory.mktemp("byte_bpe")
    root = folder / "examples"
    made_for("full_sentences", examples, root)
    content = "".join(f"{token}\n" for token in TOKENIZER.vocabulary)
    merges = "".join(f"{left} {right}\n" for left, right in TOKENIZER.merges)
    made = {"vocabulary_sha256": hashlib.sha256(content.encode()).hexdigest()}
    change_spec(root, **made, vocab_size=len(TOKENIZER.vocabulary))
    files = {
        "vocab.txt": content,
        MERGES_FILE: f"#version: 0.2\n{merges}",
        "vocab_spec.json": json.dumps({**made, "algorithm": "byte_bpe", "lower_case": False}),
    }
    for name, text in files.items():
        (root / name).write_text(text)
    return pretrain_job(root, folder, model=MODEL)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A random RoBERTa in Hugging Face's format."""
    model = RobertaForMaskedLM(MODEL, seed=5)
    model.build()
    for number, variable in enumerate(model.weights):  # biases too, which begin as zeros
        variable.assign(np.random.default_rng(number).normal(size=variable.shape, scale=0.3))
    folder = str(tmp_path_factory.mktemp("source") / "roberta")
    write("hf", model, TOKENIZER, folder, "roberta")
    return model, folder


@pytest.fixture(scope="module")
def exported(job, source):
    weights = export_initial_model(job, source[1])
    assert weights.trained == ("encoder", "masked-LM head") and weights.untrained == ("pooler", "next-sentence head")
    return job.output_dir


def filled(folder):
    served = tf.saved_model.load(folder).signatures
    assert {"fill_mask", "encode", "encode_pair", "evaluate", "serving_default"} == set(served)
    answer = served["fill_mask"](text=tf.constant(TEXTS))
    return answer["tokens"].numpy(), answer["scores"].numpy()


def probabilities(model, text):
    """Of each mask of a text, by the model alone, and a tokenizer as in `transformers`."""
    library = Tokenizer(
        models.BPE(vocab={token: i for i, token in enumerate(TOKENIZER.vocabulary)}, merges=[*TOKENIZER.merges])
    )
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    ids = np.array([[TOKENIZER.cls_id, *library.encode(text).ids, TOKENIZER.sep_id]])
    inputs = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}
    logits = np.asarray(model(inputs)["mlm_logits"], "float64")[ids == TOKENIZER.mask_id]
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def test_before_the_first_step_a_roberta_fills_masks_as_its_source(source, exported):
    tokens, scores = filled(exported)
    for row, text in enumerate(TEXTS):
        for mask, expected in enumerate(probabilities(source[0], text)):
            best = np.argsort(-expected)[:5]
            assert [token.decode() for token in tokens[row, mask]] == [TOKENIZER.token_texts[i] for i in best]
            np.testing.assert_allclose(scores[row, mask], expected[best], rtol=1e-5)
    assert tokens[0, 1].tolist() == [b""] * 5
    served = tf.saved_model.load(exported).signatures["fill_mask"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="text 1 has no <mask>: write <mask> where"):
        served(text=tf.constant(["a <mask>", "a [MASK]"]))


@pytest.mark.slow
def test_what_was_exported_is_a_roberta(source, exported, job, tmp_path):
    read = read_any(exported)
    assert (read.family, read.untrained) == ("roberta", ())
    assert isinstance(read.tokenizer, ByteBpeTokenizer)
    assert_equal(read.model, source[0])
    again = dataclasses.replace(job, output_dir=str(tmp_path / "again"))
    assert export_initial_model(again, exported).trained == ("encoder", "masked-LM head")
    np.testing.assert_allclose(filled(again.output_dir)[1], filled(exported)[1], rtol=1e-5)


@pytest.mark.slow
def test_training_begins_with_it(job, exported, tmp_path):
    places = {"output_dir": str(tmp_path / "model"), "logs_dir": str(tmp_path / "logs")}
    pretrain(dataclasses.replace(job, training=STANDING, init=exported, **places))
    np.testing.assert_allclose(filled(places["output_dir"])[1], filled(exported)[1], rtol=1e-4)


def test_another_vocabulary_is_refused(job, source, tmp_path):
    other = ByteBpeTokenizer(TOKENIZER.vocabulary, TOKENIZER.merges[:-1])
    write("hf", source[0], other, str(tmp_path / "other"), "roberta")
    with pytest.raises(InputError, match="its vocabulary is not the examples': make them with --init too"):
        export_initial_model(dataclasses.replace(job, output_dir=str(tmp_path / "model")), str(tmp_path / "other"))
    backwards = ByteBpeTokenizer(TOKENIZER.vocabulary, TOKENIZER.merges[::-1])
    write("hf", source[0], backwards, str(tmp_path / "backwards"), "roberta")
    with pytest.raises(InputError, match="give the merges in the order in which they were learned"):
        initial_folder(str(tmp_path / "backwards"))


def test_the_merges_are_read_beside_the_examples(job):
    folder = job.examples[0]
    found = load_tokenizer(folder, ExampleSpec.load(folder))
    assert (found.vocabulary, found.merges) == (TOKENIZER.vocabulary, TOKENIZER.merges)


@pytest.mark.slow
def test_an_electra_may_have_it(tmp_path):
    shape = ElectraConfig(dataclasses.replace(MODEL, type_vocab_size=2), embedding_size=8, generator_size=0.5)
    model = ElectraDiscriminator(shape)
    model.build()
    for format in ("hf", "bert-tfx"):
        folder = str(tmp_path / format)
        write(format, model, TOKENIZER, folder, "electra")
        read = read_any(folder)
        assert read.family == "electra" and read.tokenizer.merges == TOKENIZER.merges
        assert_equal(read.model, model)
    assert isinstance(read_init(folder).tokenizer, ByteBpeTokenizer)
    encoded = tf.saved_model.load(folder).signatures["encode"](text=tf.constant(["The cat"]))
    assert [token.decode() for token in encoded["tokens"].numpy()[0]] == ["<s>", *TOKENIZER.tokenize("The cat"), "</s>"]
