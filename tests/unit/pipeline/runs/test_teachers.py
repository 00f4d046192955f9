"""The teacher of a pre-training: its vocabulary, its fingerprint, and what is refused before any stage."""

import re
from pathlib import Path

import pytest

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.settings import with_settings
from pipeline.runs.request import RunRequest
from pipeline.runs.resolve import resolve
from tests.support.models.model_folders import write
from tests.support.models.small_training import built


@pytest.fixture
def inputs_of(tmp_path):
    """`inputs_of(*settings, **request)`: the inputs of a pre-training on one sentence."""
    (tmp_path / "text.txt").write_text("A sentence.")
    given = {"corpus": (f"{tmp_path}/text.txt",)}
    return lambda *settings, **request: (
        resolve(RunRequest("tiny_cpu", str(tmp_path / "run"), settings=settings, **given, **request), "1").inputs
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The folder of a masked-LM model with a vocabulary of its own."""
    directory, tokenizer = tmp_path_factory.mktemp("models") / "large", BertTokenizer([*SPECIAL_TOKENS, *"abc"], True)
    write(
        "hf",
        built(BertForPreTraining, BertConfig.size(2, 64, vocab_size=8, max_position_embeddings=32)),
        tokenizer,
        directory,
    )
    return str(directory)


STUDENT = ("model.hidden_size=64", "model.num_attention_heads=1", "examples.max_seq_length=32")


def test_a_student_has_the_vocabulary_of_its_teacher(inputs_of, large):
    inputs = inputs_of(*STUDENT, teacher=large)
    assert Path(inputs.vocabulary.path).read_text().split() == [*SPECIAL_TOKENS, *"abc"]
    assert inputs.teacher.source == large
    assert inputs.fingerprints["Teacher large: sha256 of its files"] == inputs.teacher.sha256
    assert inputs_of(*STUDENT, teacher=large, init=large).initial_model.source == large


@pytest.mark.parametrize(
    ("settings", "given", "line"),
    [
        ((), {}, "has hidden_size 64, the student is wider, 128; give a larger teacher"),
        (STUDENT[:2], {}, "has max_position_embeddings 32, the examples are longer, 64"),
        ((*STUDENT, "vocabulary.extend=3"), {}, "vocabulary.extend: a teacher does not know new words"),
        ((*STUDENT, "pretraining.model_family=electra", "examples.objective=full_sentences"), {}, "objective is elec"),
        ((*STUDENT, "distillation.relations_weight=1", "distillation.relation_heads=48"), {}, "both divide by 48"),
        (STUDENT, {"vocab": "vocab.txt"}, "--vocab and --teacher: the vocabulary is the teacher's; give one of them"),
        (STUDENT, {"teacher": "nowhere"}, "nowhere: no such folder; give the folder of a model"),
        (("gate.min_share_of_teacher=0.9",), {"teacher": None}, "gate.min_share_of_teacher: needs a teacher; give its"),
    ],
)
def test_a_teacher_that_cannot_teach_is_refused_before_any_stage(inputs_of, large, settings, given, line):
    with pytest.raises(InputError, match=re.escape(line)):
        inputs_of(*settings, **{"teacher": large, **given})


def test_a_task_learns_no_relations():
    with pytest.raises(InputError, match=r"distillation\.relations_weight is for `bert-tfx pretrain` and `train`"):
        with_settings(finetuning("sst-2"), ["distillation.relations_weight=1"])
