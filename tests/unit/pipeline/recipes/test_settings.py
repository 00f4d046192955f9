"""`--set`: applied, or refused in one line that names the setting and the nearest known one."""

import dataclasses
import re
import typing

import pytest

from bert_keras.errors import InputError
from pipeline.examples.generate import ExampleJob
from pipeline.recipes.bert import ten_million_words, tiny_cpu
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.pretraining import RECIPES
from pipeline.recipes.settings import _keys, settings_of, with_settings


def refusal(*settings):
    with pytest.raises(InputError) as caught:
        with_settings(tiny_cpu(), settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_kind_of_value():
    recipe = with_settings(
        tiny_cpu(),
        [
            "model.hidden_size=256",
            "training.learning_rate=1e-4",
            "vocabulary.lower_case=false",
            "corpus.language=de",
            "corpus.documents=files",
            "examples.masking.masked_lm_prob = 0.2 ",
        ],
    )
    assert recipe.model.hidden_size == 256
    assert recipe.training.learning_rate == 1e-4
    assert recipe.vocabulary.lower_case is False
    assert recipe.corpus.language == "de" and recipe.corpus.documents == "files"
    assert recipe.examples.masking.masked_lm_prob == 0.2
    # Everything else stays, also in the nested dataclasses.
    before = tiny_cpu()
    assert recipe.examples == dataclasses.replace(before.examples, masking=recipe.examples.masking)
    assert recipe.examples.masking == dataclasses.replace(before.examples.masking, masked_lm_prob=0.2)
    assert recipe.gate == before.gate


def test_a_bound_can_be_lifted_by_none():
    bounded = with_settings(tiny_cpu(), ["gate.max_forgetting=0.1"])
    assert bounded.gate.max_forgetting == 0.1
    for nothing in ("None", "none", "null"):
        assert with_settings(bounded, [f"gate.max_forgetting={nothing}"]).gate.max_forgetting is None
    assert "gate.max_forgetting must be a number, or None; " in refusal("gate.max_forgetting=low")
    assert "gate.max_forgetting is -1.0; it must be above -1" in refusal("gate.max_forgetting=-1")
    assert "training.seed is -1; it must be at least 0" in refusal("training.seed=-1")


def test_a_budget_and_a_number_of_steps_are_refused():
    assert with_settings(tiny_cpu(), ["training.budget=16 core-hours"]).training.budget == "16 core-hours"
    assert with_settings(tiny_cpu(), ["training.budget=None", "training.num_train_steps=600"]).training.budget is None
    expected = ": it decides the number of steps; leave training.num_train_steps out, or set training.budget=None"
    assert refusal("training.num_train_steps=600", "training.budget=2h") == f"training.budget is 2h{expected}"
    with pytest.raises(InputError, match=f"^training.budget is 16 core-hours{expected}$"):
        with_settings(ten_million_words(), ["training.num_train_steps=600"])
    with_settings(ten_million_words(), ["training.num_train_steps=600", "training.budget=None"])
    assert "training.budget is '2 days'; it must be a number above 0 with h, min or s" in refusal(
        "training.budget=2 days"
    )


def test_a_bound_of_minimal_pairs_needs_pairs():
    recipe = with_settings(tiny_cpu(), ["gate.minimal_pairs=a.jsonl,b/*", "gate.min_minimal_pairs=0.6"])
    assert (recipe.gate.minimal_pairs, recipe.gate.min_minimal_pairs) == (("a.jsonl", "b/*"), 0.6)
    assert "gate.min_minimal_pairs needs pairs; give their files as gate.minimal_pairs" in refusal(
        "gate.min_minimal_pairs=0.6"
    )
    assert "gate.min_minimal_pairs is 60.0; it must be in [0, 1]" in refusal("gate.min_minimal_pairs=60")
    assert "gate.min_share_of_teacher is 0.0; it must be above 0" in refusal("gate.min_share_of_teacher=0")


def test_the_last_setting_wins_and_checks_run_on_the_result():
    recipe = with_settings(
        tiny_cpu(),
        [
            "training.num_train_steps=5",
            "training.num_train_steps=7",
            "training.num_warmup_steps=7",
        ],
    )
    assert (recipe.training.num_train_steps, recipe.training.num_warmup_steps) == (7, 7)
    with_settings(tiny_cpu(), ["examples.max_seq_length=256", "model.max_position_embeddings=256"])


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("model.hiden_size", "model.hidden_size"),
        ("hidden_size", "model.hidden_size"),
        ("training.train_steps", "training.num_train_steps"),
        ("examples.masking.mask_lm_prob", "examples.masking.masked_lm_prob"),
        ("gate.max_perplexity", "gate.max_mlm_perplexity"),
    ],
)
def test_an_unknown_key_names_the_nearest(wrong, nearest):
    assert refusal(f"{wrong}=1") == f"--set {wrong}=1: {wrong} is not a setting; the nearest one is {nearest}"


@pytest.mark.parametrize("wrong", ["model", "examples.masking", "name", ""])
def test_sections_and_the_recipe_s_name_are_not_settings(wrong):
    assert "is not a setting; the nearest one is " in refusal(f"{wrong}=1")


def test_a_setting_without_a_value_is_refused():
    assert refusal("model.hidden_size") == (
        "--set model.hidden_size: is not section.field=value; the nearest one is model.hidden_size"
    )


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("model.hidden_size=wide", "a whole number"),
        ("model.hidden_size=1.5", "a whole number"),
        ("model.hidden_size=", "a whole number"),
        ("training.learning_rate=fast", "a number"),
        ("training.learning_rate=nan", "a number"),
        ("gate.max_mlm_perplexity=inf", "a number"),
        ("vocabulary.lower_case=perhaps", "true or false"),
    ],
)
def test_a_wrong_type_names_the_right_one(setting, expected):
    key = setting.partition("=")[0]
    assert refusal(setting).startswith(f"--set {setting}: {key} must be {expected}")


def test_the_choices_are_named_once():
    choices = "one_device, mirrored, multi_worker, tpu"
    refused = refusal("training.strategy=many")
    assert refused == f"--set training.strategy=many: training.strategy must be one of {choices}"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("model.hidden_size=0", "model.hidden_size is 0"),
        ("examples.masking.mask_fraction=0.95", "their sum must be at most 1"),
        ("training.train_batch_size=0", "training.train_batch_size is 0"),
        ("gate.min_mlm_accuracy=40", "gate.min_mlm_accuracy is 40.0; it must be in [0, 1]"),
        ("gate.min_nsp_accuracy=-1", "gate.min_nsp_accuracy is -1.0; it must be in [0, 1]"),
        ("gate.max_mlm_perplexity=0.5", "gate.max_mlm_perplexity is 0.5; it must be at least 1"),
        ("gate.max_mlm_perplexity_increase=-1", "gate.max_mlm_perplexity_increase is -1.0; it must be above -1"),
        (
            "examples.masking.held_out_prob=0.4",
            "held_out_prob is 0.4, but data.min_masked_fraction is 0.1 and data.max",
        ),
        ("examples.max_seq_length=4096", "above model.max_position_embeddings"),
    ],
)
def test_values_out_of_range_are_refused(setting, reason):
    message = refusal(setting)
    assert message.startswith(f"--set {setting}: ") and reason in message


def test_objectives_without_masks_have_no_limit_on_their_share():
    settings = ["examples.masking.masked_lm_prob=0.3"]
    assert with_settings(RECIPES["left_to_right_tiny"](), settings).pretraining_objective == "left_to_right"
    with pytest.raises(
        InputError, match=r"masked_lm_prob is 0\.3, but data\.min_masked_fraction is 0\.1 and data\.max"
    ):
        with_settings(RECIPES["bert_base"](), settings)
    # What is not stored masked is not in the data's figures.
    with_settings(
        RECIPES["bert_base"](), [*settings, "examples.masking.when=dynamic", "examples.masking.held_out_prob=0.15"]
    )


def test_every_listed_setting_can_be_set_to_its_value():
    recipe = RECIPES["bert_base"]()
    settings = settings_of(recipe)
    assert settings["examples.masking.max_predictions_per_seq"] == 20
    assert len(settings) > 40
    said = {key: ",".join(map(str, of)) if isinstance(of, tuple) else of for key, of in settings.items()}
    assert with_settings(recipe, [f"{key}={value}" for key, value in said.items()]) == recipe
    assert with_settings(recipe, ["slices.lengths="]).slices.lengths == ()


LEFT_TO_RIGHT = ("examples.objective=left_to_right", "examples.masking.when=static")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([*LEFT_TO_RIGHT], "model.causal is False, but .* 'left_to_right': set model.causal=true"),
        (["model.causal=true"], "model.causal is True, but .* 'mlm_nsp': set model.causal=false"),
        (["pretraining.model_family=electra"], "model_family is 'electra', which does not .*objective='mlm_nsp'"),
        (["model.encoder=bilm"], "model.encoder is 'bilm', which .*: set examples.objective=left_to_right, "),
        (["model.encoder=bilm", *LEFT_TO_RIGHT], "model.encoder is 'bilm', which .* pretraining.head_start=false and"),
    ],
)
def test_settings_that_training_refuses_are_refused_before_the_examples_are_made(changes, reason):
    with pytest.raises(InputError, match=reason):
        with_settings(tiny_cpu(), changes)
    if not changes[0].startswith(("model.", "pretraining.")):  # `bert-tfx examples` accepts them
        assert with_settings(ExampleJob(), changes) != ExampleJob()


CHOICES = {
    name: {
        key: typing.get_args(kind)
        for key, kind in _keys(RECIPES[name]()).items()
        if typing.get_origin(kind) is typing.Literal
    }
    for name in (
        "tiny_cpu",
        "bert_base",
        "left_to_right_tiny",
        "elmo_tiny",
        "roberta_tiny",
        "spanbert_tiny",
        "modern_tiny",
        "electra_tiny",
        "albert_tiny",
    )
}


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_is_accepted_or_refused_with_what_to_set_instead(name):
    """Each value of each enumerated setting, alone: none is there for later."""
    assert CHOICES[name]["pretraining.model_family"] == ("bert", "gpt_bert", "spanbert", "electra")
    assert CHOICES[name]["vocabulary.algorithm"] == ("wordpiece", "byte_bpe", "sentencepiece")
    assert {f"examples.masking.{field}" for field in ("unit", "rounding", "when", "random_tokens")} <= {*CHOICES[name]}
    accepted = refused = 0
    for key, values in CHOICES[name].items():
        for value in values:
            try:
                changed = with_settings(RECIPES[name](), [f"{key}={value}"])
            except InputError as error:
                message = str(error).removeprefix(f"--set {key}={value}: ")
                assert "\n" not in message and not re.search(r"\byet\b|not (supported|implemented)", message)
                # It names another setting, and the values that go together.
                assert re.search(r"set '?[a-z]|with '[a-z_]+'|also set|needs|for one", message), message
                refused += 1
            else:
                assert settings_of(changed)[key] == value
                accepted += 1
    assert accepted > 25 and refused <= 18


@pytest.mark.parametrize("masked", ["unit", "rounding", "when", "random_tokens"])
@pytest.mark.parametrize("name", ["tiny_cpu", "roberta_tiny", "spanbert_tiny", "electra_tiny", "albert_tiny"])
def test_every_family_takes_every_masking(name, masked):
    for value in CHOICES[name][f"examples.masking.{masked}"]:
        assert with_settings(RECIPES[name](), [f"examples.masking.{masked}={value}"])


ONNX = ["export.quantize=int8", "export.engine=onnx", "serving.max_difference=0.5"]


@pytest.mark.parametrize(
    "settings, message",
    [
        (ONNX[:1], "export.quantize=int8 is for export.engine=onnx; set both"),
        (ONNX[:2], "below what export.quantize=int8 rounds off; also set serving.max_difference, to 0.5 for example"),
        (ONNX[1:2], "below what export.engine=onnx rounds off"),
        ([*ONNX, "restarts.count=3", "restarts.ensemble=2"], "onnx serves one model without a BiLSTM"),
        ([*ONNX, "task.bilstm=true"], "onnx serves one model without a BiLSTM"),
    ],
)
def test_what_another_engine_needs(settings, message):
    with pytest.raises(InputError, match=message):
        with_settings(finetuning("sst-2"), settings)
    assert with_settings(finetuning("sst-2"), ONNX).export.quantize == "int8"
    assert "export.engine=onnx is for `bert-tfx finetune`" in refusal(*ONNX)
