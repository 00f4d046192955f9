"""A recipe with an initial model: its architecture and vocabulary win, and settings that contradict it are refused."""

import dataclasses
import shutil

import pytest

from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator
from bert_keras.tasks.table import TASKS
from bert_keras.tokenizers.unicode_tables import Normalization
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.initial_model import with_initial_model
from pipeline.recipes.pretraining import RECIPES
from pipeline.runs import resolve
from pipeline.runs.request import RunRequest
from pipeline.runs.resolve import without_inputs
from pipeline.runs.served_versions import write_labels
from pipeline.runs.spec import RunSpec
from tests.support.models.model_folders import write
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe

VOCABULARY = [*SPECIAL_TOKENS, "[unused0]", "[unused1]", *"abc"]
CONFIG = BertConfig.size(1, 64, vocab_size=len(VOCABULARY), max_position_embeddings=32, hidden_dropout_prob=0.2)


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    """A cased model of 32 positions."""
    directory = str(tmp_path_factory.mktemp("init") / "bert")
    model = BertBackbone(CONFIG)
    model.build()
    tokenizer = BertTokenizer(VOCABULARY, False, tokenize_chinese_chars=False)
    write("hf", model, tokenizer, directory, "bert")
    return directory


SHORT = ("examples.max_seq_length=32",)


def test_architecture_vocabulary_and_case_are_the_initial_models(init):
    recipe = with_initial_model(RECIPES["tiny_cpu"](), init, None, [*SHORT, "training.seed=7"])
    # Of the Hugging Face folder, whose gelu is named; the rest is the recipe's.
    assert recipe.model == dataclasses.replace(CONFIG, hidden_act=recipe.model.hidden_act)
    assert recipe.vocabulary.normalization == Normalization(False, False, False)
    assert (recipe.training.seed, recipe.training.learning_rate) == (7, 1e-2)


def test_a_model_of_few_positions_is_no_setting_of_the_user(init):
    with pytest.raises(InputError, match=r"^examples\.max_seq_length is 64, above model\.max_position_embeddings, 32"):
        with_initial_model(RECIPES["tiny_cpu"](), init, None, [])


@pytest.mark.parametrize(("words", "size"), [(1, len(VOCABULARY)), (2, len(VOCABULARY)), (5, len(VOCABULARY) + 3)])
def test_new_words_enlarge_the_vocabulary_after_the_unused_places(init, words, size):
    recipe = with_initial_model(RECIPES["tiny_cpu"](), init, None, [*SHORT, f"vocabulary.extend={words}"])
    assert recipe.model.vocab_size == size


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.hidden_size=128"], r"--set model\.hidden_size: .* has 64; remove the setting"),
        (
            ["model.vocab_size=8000"],
            rf"--set model\.vocab_size: .* has {len(VOCABULARY)}; remove the setting",
        ),
        (["vocabulary.lower_case=true"], r"--set vocabulary\.lower_case: .* has False; remove the setting"),
        (["vocabulary.strip_accents=true"], r"--set vocabulary\.strip_accents: .* has False; remove the setting"),
    ],
)
def test_a_setting_that_contradicts_is_refused_by_name(init, settings, message):
    with pytest.raises(InputError, match=message):
        with_initial_model(RECIPES["tiny_cpu"](), init, None, [*SHORT, *settings])


@pytest.fixture(scope="module")
def electra(tmp_path_factory):
    """An ELECTRA whose embeddings are narrower than its layers."""
    directory = str(tmp_path_factory.mktemp("init") / "electra")
    shape = dataclasses.replace(CONFIG, hidden_act="gelu_erf")
    model = ElectraDiscriminator(ElectraConfig(shape, 16, 1.0))
    model.build()
    write("hf", model, BertTokenizer(VOCABULARY, False), directory, "electra")
    return directory


def test_an_electra_needs_a_recipe_of_its_own(electra):
    with pytest.raises(InputError, match=r"only an ELECTRA takes: --set pretraining\.model_family=electra"):
        with_initial_model(RECIPES["tiny_cpu"](), electra, None, SHORT)
    family = [*SHORT, "pretraining.model_family=electra", "examples.objective=segment_pair"]
    recipe = with_initial_model(RECIPES["tiny_cpu"](), electra, None, family)
    assert (recipe.pretraining.embedding_size, recipe.pretraining.generator_size) == (16, 0.25)
    with pytest.raises(InputError, match=r"--set pretraining\.embedding_size: .* has 16; remove the setting"):
        with_initial_model(RECIPES["tiny_cpu"](), electra, None, [*family, "pretraining.embedding_size=32"])


def test_a_berts_encoder_gives_its_width_to_the_embeddings_of_an_electra(init):
    family = [*SHORT, "pretraining.model_family=electra", "examples.objective=segment_pair"]
    recipe = with_initial_model(RECIPES["tiny_cpu"](), init, None, family)
    assert recipe.pretraining.embedding_size == CONFIG.hidden_size


def test_a_roberta_brings_its_vocabulary(tmp_path):
    tokenizer = tiny_byte_bpe()
    shape = dataclasses.replace(CONFIG, vocab_size=len(tokenizer.vocabulary), type_vocab_size=1, hidden_act="gelu_erf")
    model = BertBackbone(shape, has_pooler=False)
    model.build()
    init = str(tmp_path / "roberta")
    write("hf", model, tokenizer, init, "roberta")
    recipe = with_initial_model(RECIPES["continued"](), init, None, SHORT)
    assert recipe.vocabulary.algorithm == "byte_bpe" and recipe.model.vocab_size == len(tokenizer.vocabulary)
    assert with_initial_model(RECIPES["tiny_cpu"](), init, None, SHORT).vocabulary.algorithm == "byte_bpe"
    given = [*SHORT, "pretraining.model_family=electra"]
    assert with_initial_model(RECIPES["continued"](), init, None, given).pretraining_objective == "electra"
    with pytest.raises(InputError, match=r"--set vocabulary\.algorithm: .* has byte_bpe; remove the setting"):
        with_initial_model(RECIPES["continued"](), init, None, [*SHORT, "vocabulary.algorithm=wordpiece"])


def test_dropout_may_be_set(init):
    recipe = with_initial_model(RECIPES["tiny_cpu"](), init, None, [*SHORT, "model.hidden_dropout_prob=0"])
    assert recipe.model.hidden_dropout_prob == 0


def test_no_steps_are_refused_with_the_place_of_the_model_at_step_0(init):
    for settings in (["training.num_train_steps=0"], ["training.num_train_steps=5", " training.num_train_steps = 0"]):
        with pytest.raises(
            InputError, match=rf"convert --to bert-tfx` exports {init} .*RUN_DIR/artifacts/InitialModel"
        ):
            with_initial_model(RECIPES["tiny_cpu"](), init, None, [*SHORT, *settings])
    again = ["training.num_train_steps=0", "training.num_train_steps=3", "training.num_warmup_steps=0"]
    assert with_initial_model(RECIPES["tiny_cpu"](), init, None, [*SHORT, *again]).training.num_train_steps == 3


def test_the_recipe_that_continues_is_refused_without_a_model(init):
    """It would train a model of BERT-base's size from nothing."""
    with pytest.raises(InputError, match="continued: this recipe continues the training of a model: give it with"):
        with_initial_model(RECIPES["continued"](), None, None, [])
    assert with_initial_model(RECIPES["continued"](), init, None, SHORT).model.hidden_size == 64


def test_freezing_an_initial_model_needs_one(init):
    settings = (*SHORT, "training.freeze_initial=true")
    with pytest.raises(InputError, match=r"training\.freeze_initial: keeps the weights of an initial model; give it"):
        with_initial_model(RECIPES["tiny_cpu"](), None, None, settings)
    assert with_initial_model(RECIPES["tiny_cpu"](), init, None, settings).training.freeze_initial


def test_latest_is_the_served_version(tmp_path):
    request = RunRequest("tiny_cpu", str(tmp_path), init="latest")
    for version in ("3", "20"):
        (tmp_path / "serving" / version).mkdir(parents=True)
    assert resolve.with_version(request).init == str(tmp_path / "serving" / "20")
    write_labels(str(tmp_path / "serving"), {"stable": 3})
    found = resolve.with_version(request)
    assert (found.init, found.latest) == (str(tmp_path / "serving" / "3"), "3")
    given = RunRequest("tiny_cpu", str(tmp_path), init="bert")
    assert resolve.with_version(given) is given


def test_only_latest_leaves_out_what_was_read(tmp_path):
    """Before it is resolved, as for the nodes of Airflow's DAG, and after."""

    def reads_only_new(recipe="tiny_cpu", **request):
        return without_inputs(RunRequest(recipe, str(tmp_path), **request)).reads_only_new

    assert reads_only_new(init="latest") and reads_only_new(init="/nowhere", latest="3")
    assert not reads_only_new(init="/nowhere") and not reads_only_new()
    assert not reads_only_new(init="latest", settings=("corpus.reread=true",))
    assert not reads_only_new("sst-2", init="latest")


def test_a_request_resolves_to_the_initial_model_where_its_folder_is(init):
    request = RunRequest("tiny_cpu", "/runs", init=init, settings=SHORT)
    assert without_inputs(request).recipe.model.max_position_embeddings == 32
    # On the machine that compiles for a cluster.
    elsewhere = dataclasses.replace(request, init="/nowhere/bert")
    assert without_inputs(elsewhere).recipe.model == RECIPES["tiny_cpu"]().model


@pytest.mark.parametrize("cased", [True, False, None])
def test_a_given_vocabulary_has_the_given_case(cased):
    request = RunRequest("tiny_cpu", "/runs", vocab="vocab.txt", cased=cased)
    assert without_inputs(request).recipe.vocabulary.lower_case == (not cased)
    request = dataclasses.replace(request, settings=("vocabulary.lower_case=false",))
    assert not without_inputs(request).recipe.vocabulary.lower_case
    # A task has no vocabulary of its own: its command says so.
    assert without_inputs(RunRequest("sst-2", "/runs", vocab="vocab.txt", cased=cased)).request.vocab


def test_a_compiled_run_keeps_the_recipe_that_it_ran_with(init, tmp_path):
    """Also once the initial model's folder is gone, of which the recipe has the sizes."""
    gone = shutil.copytree(init, tmp_path / "gone")
    request = RunRequest("tiny_cpu", str(tmp_path), init=str(gone), settings=SHORT)
    spec = without_inputs(request)
    spec.write("run")
    shutil.rmtree(gone)
    assert RunSpec.read(str(tmp_path), "run") == spec
    assert without_inputs(request).recipe != spec.recipe


def test_every_recipe_survives_its_file(tmp_path):
    for name in (*RECIPES, *TASKS):
        recipe = RECIPES[name]() if name in RECIPES else finetuning(name)
        spec = RunSpec(RunRequest(name, str(tmp_path)), recipe)
        spec.write("run")
        assert RunSpec.read(str(tmp_path), "run") == spec


def test_the_vocabulary_is_the_teachers_without_an_initial_model(init):
    """The architecture stays the recipe's; the initial model's vocabulary wins."""
    recipe = with_initial_model(RECIPES["tiny_cpu"](), None, None, [], init)
    assert recipe.vocabulary.normalization == Normalization(False, False, False)
    assert recipe.model == dataclasses.replace(RECIPES["tiny_cpu"]().model, vocab_size=len(VOCABULARY))
    with pytest.raises(InputError, match=r"--set vocabulary\.lower_case: the teacher .* has False; remove the setting"):
        with_initial_model(RECIPES["tiny_cpu"](), None, None, ["vocabulary.lower_case=true"], init)
    assert with_initial_model(RECIPES["tiny_cpu"](), init, None, SHORT, "unread").model.hidden_size == 64
