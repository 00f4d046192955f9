"""The weights of an ELECTRA, or of a BERT, in an ELECTRA to train: which networks are kept, which are drawn."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.formats import FORMATS, read_folder
from bert_keras.convert.initial_weights import check_family, electra_sizes, initial_folder, initialize
from bert_keras.data.example_format import ExampleLayout
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraForPreTraining
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import electra
from bert_keras.saved_model.pretrained import export_saved_model
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from bert_keras.tokenizers.wordpiece_extension import extend
from tests.support.models.golden_folders import SIZES, write_golden
from tests.support.models.model_folders import write
from tests.support.models.pushed_folders import without_graph

VOCABULARY = [*SPECIAL_TOKENS, "[unused0]", *"abcdef", *(f"##{letter}" for letter in "abcdef"), "."]
BERT = BertConfig.size(2, 128, vocab_size=len(VOCABULARY), max_position_embeddings=16, hidden_act="gelu_erf")
# Embeddings narrower than the encoder, as in ELECTRA-small.
ELECTRA = ElectraConfig(BERT, 32, 1 / 2)
TOKENIZER = BertTokenizer(VOCABULARY, True)
INPUTS = {
    "input_ids": np.array([[2, 6, 4, 8, 3, 0]]),
    "input_mask": np.array([[1, 1, 1, 1, 1, 0]]),
    "segment_ids": np.zeros((1, 6), "int64"),
}


def built(kind, config, seed=1):
    model = kind(config, seed=seed)
    model.build()
    for number, variable in enumerate(model.weights):  # biases too, which begin as zeros
        variable.assign(np.random.default_rng([seed, number]).normal(size=variable.shape, scale=0.1))
    return model


def folder_of(tmp_path, model, name, family="electra"):
    write("hf", model, TOKENIZER, str(tmp_path / name), family)
    return str(tmp_path / name)


def assert_same(found, expected):
    outputs, theirs = found(INPUTS), expected(INPUTS)
    for name in ("sequence_output", *({"discriminator_logits", "mlm_logits"} & theirs.keys())):
        np.testing.assert_allclose(outputs[name], theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def source():
    return built(ElectraForPreTraining, ELECTRA)


@pytest.fixture(scope="module")
def with_generator(source, tmp_path_factory):
    """A folder of its discriminator, with that of its generator in it."""
    base = tmp_path_factory.mktemp("both")
    directory = folder_of(base, source.discriminator, "electra")
    folder_of(base, source.generator, "electra/generator")
    return directory


def test_a_discriminator_is_kept_and_the_generator_drawn(source, tmp_path):
    directory, model = folder_of(tmp_path, source.discriminator, "electra"), built(ElectraForPreTraining, ELECTRA, 2)
    before = [np.array(value) for value in model.generator.backbone.encoder_layers[0].weights]
    result = initialize(model, directory, None, TOKENIZER)
    assert result.trained == ("encoder", "discriminator head") and result.untrained == ("generator",)
    assert_same(model.discriminator, source.discriminator)
    for own, drawn in zip(model.generator.backbone.encoder_layers[0].weights, before, strict=True):
        np.testing.assert_array_equal(own, drawn)


def test_a_discriminator_of_transformers_answers_as_there(tmp_path):
    """Recorded outputs of `transformers`, of a model whose embeddings are narrower than its layers."""
    golden = write_golden("electra_discriminator", tmp_path)
    tokens = [*SPECIAL_TOKENS, *(f"token{i}" for i in range(len(SPECIAL_TOKENS), SIZES["vocab_size"]))]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    outline, tokenizer = initial_folder(str(tmp_path), cased=True)
    config = ElectraConfig(outline.config, generator_size=0.5, **electra_sizes(outline))
    model = built(ElectraForPreTraining, config)
    assert initialize(model, str(tmp_path), True, tokenizer).untrained == ("generator",)
    outputs = model.discriminator(golden.inputs)
    golden.assert_close(outputs["sequence_output"], outputs["discriminator_logits"])


def test_a_folder_with_the_generator_gives_both_networks(source, with_generator):
    sizes = {"embedding_size": 32, "generator_size": 0.5, "generator_layers": 0}
    assert electra_sizes(initial_folder(with_generator)[0]) == sizes
    model = built(ElectraForPreTraining, ELECTRA, 2)
    result = initialize(model, with_generator, None, TOKENIZER)
    assert result.trained == ("encoder", "discriminator head", "generator") and not result.untrained
    assert_same(model.discriminator, source.discriminator)
    assert_same(model.generator, source.generator)


def test_rows_of_new_tokens_are_means_in_the_generator_too(source, with_generator):
    tokens = extend(VOCABULARY, ["abc", "fe"])
    shape = dataclasses.replace(BERT, vocab_size=len(tokens))
    model = built(ElectraForPreTraining, dataclasses.replace(ELECTRA, discriminator=shape), 2)
    assert initialize(model, with_generator, None, BertTokenizer(tokens, True)).new_tokens == 2
    assert_same(model.discriminator, source.discriminator)
    f, e = VOCABULARY.index("f"), VOCABULARY.index("##e")
    for own, theirs in (
        (model.embeddings.word_embeddings.embeddings, source.embeddings.word_embeddings.embeddings),
        (model.generator.mlm_head.output_bias, source.generator.mlm_head.output_bias),
    ):
        own, theirs = np.array(own), np.array(theirs)
        np.testing.assert_allclose(own[-1], (theirs[f] + theirs[e]) / 2, rtol=1e-6)


def test_a_berts_encoder_begins_a_discriminator(tmp_path):
    bert, wide = built(BertForPreTraining, BERT), ElectraConfig(BERT, BERT.hidden_size, 1 / 2)
    directory, model = folder_of(tmp_path, bert, "bert", "bert"), built(ElectraForPreTraining, wide, 2)
    result = initialize(model, directory, None, TOKENIZER)
    assert result.trained == ("encoder",) and result.untrained == ("discriminator head", "generator")
    outputs = model.discriminator(INPUTS)["sequence_output"]
    np.testing.assert_allclose(outputs, bert(INPUTS)["sequence_output"], rtol=1e-5, atol=1e-6)


def test_models_that_do_not_fit_are_refused(source, tmp_path):
    directory = folder_of(tmp_path, source.discriminator, "electra")
    with pytest.raises(InputError, match=r"only an ELECTRA takes: --set pretraining\.model_family=electra"):
        initialize(built(BertForPreTraining, BERT), directory, None, TOKENIZER)
    narrow = built(ElectraForPreTraining, dataclasses.replace(ELECTRA, embedding_size=16))
    with pytest.raises(InputError, match=r"has embedding_size 32, .* has pretraining\.embedding_size=16"):
        initialize(narrow, directory, None, TOKENIZER)
    generator = folder_of(tmp_path, source.generator, "generator")
    with pytest.raises(InputError, match=r"an ELECTRA's generator; give .* discriminator, with this one in it as"):
        check_family(initial_folder(generator)[0], True)


def test_the_generator_of_another_model_is_refused(source, tmp_path):
    directory = folder_of(tmp_path, source.discriminator, "electra")
    folder_of(tmp_path, built(ElectraForPreTraining, ELECTRA, 3).generator, "electra/generator")
    with pytest.raises(InputError, match=r"electra/generator: its embeddings are not those of .*electra"):
        initialize(built(ElectraForPreTraining, ELECTRA, 2), directory, None, TOKENIZER)
    folder_of(tmp_path, source.discriminator, "electra/generator")
    with pytest.raises(InputError, match=r"electra/generator: has no masked-LM head, so it is no generator; give .*a$"):
        initial_folder(directory)
    directory = folder_of(tmp_path, source.discriminator, "second")
    deeper = dataclasses.replace(ELECTRA, discriminator=dataclasses.replace(BERT, num_hidden_layers=3))
    folder_of(tmp_path, built(ElectraForPreTraining, deeper).generator, "second/generator")
    with pytest.raises(InputError, match=r"config\.json: is not the generator of .*: it must differ .* in width only"):
        initial_folder(directory)


def test_a_deberta_with_disentangled_sharing_is_pushed_written_and_trained_on(tmp_path):
    """Every folder has whole tables; a model that is trained on has the generator's, and what is added to it."""
    fields = {"position_embedding": "none", "relative_attention": "disentangled", "relative_buckets": 4}
    encoder = dataclasses.replace(BERT, type_vocab_size=0, max_relative_distance=8, **fields)
    config = ElectraConfig(encoder, BERT.hidden_size, 1.0, 1, "gdes")
    trained, pushed = built(ElectraForPreTraining, config), str(tmp_path / "pushed")
    states = trained.discriminator(INPUTS)["sequence_output"]
    layout = ExampleLayout.bert(16, 3)
    with without_graph() as signatures:
        export_saved_model(trained, TOKENIZER, pushed, layout, electra.OBJECTIVE)
        assert FORMATS["bert-tfx"].write(read_folder(pushed), str(tmp_path / "again")).untrained == ()
    for directory in (pushed, str(tmp_path / "again")):
        read = read_folder(directory)
        assert (read.family, read.untrained, read.config) == ("deberta-v2", (), encoder)
        assert_same(read.model, trained.discriminator)
        assert_same(read.generator, trained.generator)
    served = signatures[0]["encode"](tf.constant(["a b."]))["sequence_output"]
    inputs = {name: value[:, : served.shape[1]] for name, value in read.inputs(["a b."]).items()}
    np.testing.assert_allclose(served, trained.discriminator(inputs)["sequence_output"], rtol=1e-5, atol=1e-6)

    written = FORMATS["hf"].write(read, str(tmp_path / "hf"))
    dropped = [remark.split(" is dropped")[0] for remark in written.remarks]
    assert dropped == ["the discriminator head", "the generator"]
    np.testing.assert_allclose(
        read_folder(str(tmp_path / "hf")).model(INPUTS)["sequence_output"], states, rtol=0, atol=1e-5
    )

    sizes = {"embedding_size": 128, "generator_size": 1.0, "generator_layers": 1, "embedding_sharing": "gdes"}
    assert electra_sizes(read) == sizes
    model = built(ElectraForPreTraining, config, 2)
    initialize(model, pushed, None, TOKENIZER)
    assert_same(model.discriminator, trained.discriminator)
    assert_same(model.generator, trained.generator)
    # Without a generator, its table begins as the encoder's.
    initialize(model, str(tmp_path / "hf"), None, TOKENIZER)
    np.testing.assert_array_equal(model.discriminator.backbone.embeddings.word_embeddings.embeddings, 0)
    np.testing.assert_allclose(model.discriminator(INPUTS)["sequence_output"], states, rtol=0, atol=1e-5)
