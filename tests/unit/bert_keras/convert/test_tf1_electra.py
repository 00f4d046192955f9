"""Checkpoints of google-research/electra: both networks of one checkpoint, under the original's names."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.formats import export, format_of, read_folder
from bert_keras.convert.initial_weights import check_family, electra_sizes, initial_folder, initialize
from bert_keras.errors import InputError
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining, ElectraGenerator
from tests.support.models.model_folders import put, read_any, without
from tests.support.pipeline.command_line import bert_tfx
from tests.unit.bert_keras.convert.test_initial_electra import ELECTRA, TOKENIZER, VOCABULARY, assert_same, built

LAYER = {
    "attention/query/": "attention/self/query/",
    "attention/key/": "attention/self/key/",
    "attention/value/": "attention/self/value/",
    "attention/output/": "attention/output/dense/",
    "attention_layer_norm/": "attention/output/LayerNorm/",
    "intermediate/": "intermediate/dense/",
    "output/": "output/dense/",
    "output_layer_norm/": "output/LayerNorm/",
}


def original_name(path):
    """The original's name of a weight of this project (`run_pretraining.py`; modeling.py, `BertModel`)."""
    scope, _, name = path.partition("/")
    if scope == "embeddings":
        return "electra/embeddings/" + name.removesuffix("/embeddings").replace("layer_norm", "LayerNorm")
    network = {"discriminator": "electra", "generator": "generator"}[scope]
    layer, _, rest = name.removeprefix(f"{network}/").partition("/")
    if layer == "embeddings_project":
        return f"{network}/{layer}/{rest}"
    if layer.startswith("layer_"):
        inner, _, kind = rest.rpartition("/")
        return f"{network}/encoder/{layer}/{LAYER[inner + '/']}{kind}"
    rest = rest.replace("transform/", "dense/").replace("layer_norm", "LayerNorm")
    return {
        "generator_predictions": f"generator_predictions/{rest}",
        "discriminator_predictions_dense": f"discriminator_predictions/dense/{rest}",
        "discriminator_predictions_output": f"discriminator_predictions/dense_1/{rest}",
    }[layer]


def tensors_of(model):
    named = {original_name(v.path.partition("/")[2]): np.asarray(v) for v in model.trainable_variables}
    assert len(named) == len(model.trainable_variables)
    return named


def save(folder, tensors, name="electra_small"):
    """A checkpoint with its optimizer's slots and its step, as the original's."""
    state = {f"{name}/adam_m": np.zeros_like(value) for name, value in tensors.items()}
    tensors = {**tensors, **state, "global_step": np.int64(7)}
    folder.mkdir(exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=str(folder / name),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return str(folder)


@pytest.fixture(scope="module")
def source():
    """Embeddings of 32 under layers of 128, and a generator of 64."""
    return built(ElectraForPreTraining, ELECTRA)


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    return save(tmp_path_factory.mktemp("electra") / "electra_small", tensors_of(source))


def test_the_names_are_the_originals(source):
    """As in the checkpoints that were released (transformers: modeling_electra.py, `load_tf_weights_in_electra`)."""
    shapes = {name: value.shape for name, value in tensors_of(source).items()}
    for name, shape in {
        "electra/embeddings/word_embeddings": (19, 32),
        "electra/embeddings/LayerNorm/gamma": (32,),
        "electra/embeddings_project/kernel": (32, 128),
        "electra/encoder/layer_1/attention/output/LayerNorm/beta": (128,),
        "generator/embeddings_project/bias": (64,),
        "generator/encoder/layer_0/attention/self/value/kernel": (64, 64),
        "generator/encoder/layer_1/output/dense/kernel": (256, 64),
        "generator_predictions/dense/kernel": (64, 32),
        "generator_predictions/LayerNorm/gamma": (32,),
        "generator_predictions/output_bias": (19,),
        "discriminator_predictions/dense/bias": (128,),
        "discriminator_predictions/dense_1/kernel": (128, 1),
    }.items():
        assert shapes[name] == shape


def test_both_networks_answer_as_their_source(source, folder):
    assert format_of(folder) == "tf1"
    found = read_any(folder)
    assert isinstance(found.model, ElectraDiscriminator) and isinstance(found.generator, ElectraGenerator)
    assert (found.family, found.untrained) == ("electra", ())
    assert_same(found.model, source.discriminator)
    assert_same(found.generator, source.generator)


def test_the_sizes_are_read_off_the_tensors(folder):
    outline = read_any(folder)
    # Of the source's configuration, what a checkpoint does not hold has the original's values.
    assert outline.config == ELECTRA.discriminator
    assert electra_sizes(outline) == {"embedding_size": 32, "generator_size": 0.5, "generator_layers": 0}
    assert not outline.is_generator


def test_an_electra_is_trained_on_with_both_networks(source, folder):
    model = built(ElectraForPreTraining, ELECTRA, 2)
    result = initialize(model, folder, False, TOKENIZER)
    assert result.trained == ("encoder", "discriminator head", "generator") and not result.untrained
    assert_same(model.discriminator, source.discriminator)
    assert_same(model.generator, source.generator)
    with pytest.raises(InputError, match="give --cased or --uncased"):
        initial_folder(folder)


def test_it_is_converted_with_its_generator(source, folder, tmp_path):
    code, out, err = bert_tfx("convert", folder, tmp_path / "hf", "--from", "tf1", "--to", "hf", "--uncased")
    assert code == 0, err
    assert out.strip() == f"{tmp_path / 'hf'}: 2 layers, 128 wide, 19 tokens; with its generator"
    export(read_folder(str(tmp_path / "hf")), str(tmp_path / "tf1"), "tf1")
    for to in ("hf", "tf1"):
        found = read_any(str(tmp_path / to))
        assert found.config == ELECTRA.discriminator
        assert_same(found.model, source.discriminator)
        assert_same(found.generator, source.generator)


def test_a_generator_of_full_width_and_wide_embeddings(tmp_path):
    """As ELECTRA-Small was released (google-research/electra, issue 39), without projections."""
    wide = built(ElectraForPreTraining, ElectraConfig(ELECTRA.discriminator, 128, 1.0))
    tensors = tensors_of(wide)
    assert not any("project" in name for name in tensors)
    found = read_any(save(tmp_path / "wide", tensors))
    assert_same(found.model, wide.discriminator)
    assert_same(found.generator, wide.generator)


def test_of_several_checkpoints_the_newest_is_read(source, tmp_path):
    other = built(ElectraForPreTraining, ELECTRA, 3)
    for name, model in (("model.ckpt-10", other), ("model.ckpt-9", source)):
        directory = save(tmp_path / "run", tensors_of(model), name)
    with pytest.raises(InputError, match=r"run has 2 checkpoints and no file `checkpoint`; convert one of them"):
        read_any(directory)
    Path(directory, "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    assert_same(read_any(directory).model, source.discriminator)


TABLE = "generator/embeddings/word_embeddings"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("electra/embeddings_project/bias"), r"embeddings_project/bias \[128\] of the encoder is missing"),
        (without("electra/encoder/layer_0/intermediate"), r"layer_0/intermediate/dense/kernel is missing"),
        (without("generator/encoder/layer_1"), r"the generator: it must differ from the discriminator in width only"),
        (without("generator_predictions/dense/bias"), r"dense/bias \[32\] of the masked-LM head is"),
        (put(TABLE, np.zeros((19, 32), "float32")), rf"the generator has embeddings of its own \({TABLE}\)"),
        (put("electra/other", np.zeros((9, 2), "float32")), r"electra/other \[9, 2\] is not part of an ELECTRA"),
    ],
)
def test_wrong_tensors_are_refused_by_name(source, tmp_path, change, message):
    directory = save(tmp_path / "wrong", change(tensors_of(source)))
    with pytest.raises(InputError, match=message):
        initial_folder(directory, cased=False)


def test_a_discriminator_alone_and_a_generator_alone(source, tmp_path):
    found = read_any(save(tmp_path / "alone", without("generator")(tensors_of(source))))
    assert found.generator is None
    assert_same(found.model, source.discriminator)
    tensors = without("electra/enc", "electra/embeddings_p", "disc")(tensors_of(source))
    tensors = {name.replace("generator/", "electra/"): value for name, value in tensors.items()}
    with pytest.raises(InputError, match="holds an ELECTRA's generator"):
        check_family(initial_folder(save(tmp_path / "generator", tensors), cased=False)[0], True)


def test_damage_is_found_before_anything_is_read(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "cut")
    data = tmp_path / "cut" / "electra_small.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"cut/electra_small is damaged or incomplete \(its data files have 1,000"):
        initial_folder(str(tmp_path / "cut"), cased=False)
    (tmp_path / "cut" / "vocab.txt").write_text("a\n")
    shutil.copy(Path(folder, data.name), data)
    with pytest.raises(InputError, match=r"vocab.txt has 1 tokens, but the word embeddings have 19 rows .*electra"):
        initial_folder(str(tmp_path / "cut"), cased=False)


def test_another_shape_of_model_is_refused(folder):
    narrow = built(ElectraForPreTraining, dataclasses.replace(ELECTRA, embedding_size=16))
    with pytest.raises(InputError, match=r"has embedding_size 32, .* has pretraining\.embedding_size=16"):
        initialize(narrow, folder, False, TOKENIZER)
