"""A task's official files to a served model through the command line, for one task of each kind."""

import dataclasses
import functools
import json
import types

import pytest

from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import RobertaForMaskedLM
from bert_keras.tasks.submissions.prediction_files import read_predictions
from bert_keras.tasks.table import task_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.task_example_gen.readers import read_rows
from pipeline.recipes.relatives import modern_tiny
from pipeline.runs.lineage import latest_run
from serving.server import Server
from tests.support.models import trained_bert
from tests.support.models.model_folders import write_huggingface
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe
from tests.support.pipeline.command_line import bert_tfx, refusal, set_words, summary_of
from tests.support.pipeline.task_files import EVAL_ROWS, WORDS, write_task
from tests.support.serving.task_client import TaskClient

pytestmark = pytest.mark.usefixtures("served_here")
EVAL_FILES = {
    "sst-2": "dev.tsv",
    "sts-b": "dev.tsv",
    "codah": "dev.tsv",
    "squad1.1": "dev-v1.1.json",
    "ner": "valid.txt",
}
# What a guess gets, on the scale of the task's first score: of 2 labels, ranks, 4 choices, spans, entities.
GUESS = {"sst-2": 0.55, "sts-b": 0.1, "codah": 0.3, "squad1.1": 5.0, "ner": 0.1}

ANSWER = {
    "classification": "label",
    "regression": "score",
    "multiple_choice": "choice",
    "span": "answer",
    "tagging": "tags",
}


def words_of(task, init, data, run_dir, **changes):
    settings = {
        "training.num_train_epochs": 4,
        "training.train_batch_size": 16,
        "training.learning_rate": 2e-3,
        "training.jit_compile": "false",
        "task.max_seq_length": 32,
        "task.max_query_length": 8,
        "task.doc_stride": 8,
        "gate.min_score": GUESS[task],
        # Every question has the same answer, so always giving it is right.
        "gate.allow_chance": task == "squad1.1",
    } | {name.replace("__", "."): value for name, value in changes.items()}
    words = ["finetune", task, "--data", data, "--init", init, "--run-dir", run_dir]
    return words + set_words(settings)


def write_untrained(family, folder):
    """A small model that knows nothing, in Hugging Face's format; RoBERTa and ModernBERT with byte-level BPE."""
    tokenizer = BertTokenizer([*SPECIAL_TOKENS, *WORDS, "error"], True) if family == "bert" else tiny_byte_bpe()
    sizes = {"max_position_embeddings": 64, "initializer_range": 0.1, "hidden_act": "gelu_erf"}
    config = BertConfig(len(tokenizer.vocabulary), 64, 2, 2, 128, **sizes)
    if family != "bert":
        config = dataclasses.replace(config, type_vocab_size=1)
    if family == "modernbert":
        config = dataclasses.replace(config, **modern_tiny().model.variations())
    model = BertBackbone(config, name="bert", seed=1) if family == "bert" else RobertaForMaskedLM(config, seed=1)
    model.build(None)
    write_huggingface(model, tokenizer, str(folder))
    return folder


@pytest.fixture(scope="module")
def init(tmp_path_factory):
    """`init(family)` is the folder of an initial model, made once."""

    @functools.cache
    def made(family):
        folder = tmp_path_factory.mktemp("init") / family
        # Six layers of the trained model cost more than they show.
        return trained_bert.write_first_layers(2, folder) if family == "trained" else write_untrained(family, folder)

    return made


@pytest.fixture(scope="module")
def fine_tune(init, tmp_path_factory):
    """`fine_tune(task, family)` is a run of a task, made once: its directory, data, summary, what it printed."""

    @functools.cache
    def made(name, family):
        root = tmp_path_factory.mktemp(name)
        data = write_task(name, root / "data")
        begins = {"trained": {"training__learning_rate": 2e-4}, "bert": {}}.get(family, {"task__max_seq_length": 60})
        code, out, err = bert_tfx(*words_of(name, init(family), data, root / "run", **begins))
        assert code == 0, out + err
        return types.SimpleNamespace(dir=root / "run", data=data, summary=summary_of(root / "run"), out=out)

    return made


def served_answers(client, task, rows):
    """The answers over gRPC, in the form of golds, to all rows in batches of 50."""
    inputs = {name: [row.inputs[name] for row in rows] for name in rows[0].inputs}
    answers = []
    for first in range(0, len(rows), 50):
        batch = {name: values[first : first + 50] for name, values in inputs.items()}
        if task.kind == "classification":
            answers += [labels[0][0] for labels in client.classify(batch["text"])]
        elif task.kind == "regression":
            answers += client.regress(batch["text"], batch["text_pair"])
        elif task.kind == "multiple_choice":
            answers += [choice for choice, _ in client.choose(batch["text"], batch["choices"])]
        elif task.kind == "span":
            answers += [found.text for found in client.answer(batch["question"], batch["context"])]
        else:
            answers += [[word.tag for word in words] for words in client.tag(batch["text"])]
    return answers


# test_task_signatures.py has every kind over gRPC, test_task_gate.py each one's official score through the gate,
# test_prediction_files.py their files, test_roberta_tasks.py a RoBERTa from its folder to what is pushed.
SLOW = [(name, "trained") for name in EVAL_FILES if name != "sst-2"]
SLOW += [("sst-2", "roberta"), ("sst-2", "modernbert")]


@pytest.mark.parametrize("name, family", [("sst-2", "bert"), *(pytest.param(*x, marks=pytest.mark.slow) for x in SLOW)])
def test_a_task_is_learned_evaluated_pushed_and_served_with_equal_answers(fine_tune, name, family):
    task, fine_tuned = task_of(name), fine_tune(name, family)
    summary = fine_tuned.summary
    assert summary["blessed"] and summary["rows"]["eval"] == EVAL_ROWS
    assert [p.name for p in (fine_tuned.dir / "serving").iterdir()] == [summary["pushed_version"]]
    first = task.metrics[0]
    assert summary["scores"][first] > GUESS[task.name]
    for word in (task.name, first, "blessed", summary["pushed_version"]):
        assert word in fine_tuned.out

    # What the evaluation wrote down, what the official scorer makes of it, and what the server says: all the same.
    gold = fine_tuned.data / EVAL_FILES[task.name]
    rows = list(read_rows(task, str(gold)))
    (predictions,) = [path for path in summary["predictions"]["eval"] if "nbest" not in path and "odds" not in path]
    written = read_predictions(task, rows, predictions)
    code, out, _ = bert_tfx("score", task.name, gold, predictions)
    assert code == 0
    # STS-B's file has three decimals.
    assert json.loads(out)[first] == pytest.approx(summary["scores"][first], abs=1e-3)
    with Server(str(fine_tuned.dir / "serving"), grpc_port=0, rest_port=0) as server:
        assert server.wait_until_available(60)
        with TaskClient(f"{server.host}:{server.grpc_port}") as client:
            answers = served_answers(client, task, rows)
            address = f"{server.host}:{server.grpc_port}"
            asked = rows[0].inputs.values()
            words = [word for value in asked for word in ([value] if isinstance(value, str) else value)]
            code, out, err = bert_tfx("predict", *words, "--server", address)
    assert code == 0, err
    if task.kind == "regression":
        # The official file is within the task's range.
        answers = [min(max(answer, task.label_from), task.label_to) for answer in answers]
        assert answers == pytest.approx(written, abs=1e-3)
    else:
        assert answers == written
    page = (fine_tuned.dir / "report.html").read_text()
    assert f"Blessed and pushed as version {summary['pushed_version']}" in page
    if task.kind in ("classification", "multiple_choice"):
        wrong = sum(row.gold != answer for row, answer in zip(rows, written, strict=True))
        assert f"Answered wrongly: {wrong} of {EVAL_ROWS} held-out rows" in page
    said = json.loads(out)
    answer = said[ANSWER[task.kind]]
    assert answer == (pytest.approx(answers[0], abs=1e-3) if task.kind == "regression" else written[0])


def test_the_same_command_again_is_served_from_the_cache(fine_tune, init):
    run = fine_tune("sst-2", "bert")
    code, _, _ = bert_tfx(*words_of("sst-2", init("bert"), run.data, run.dir))
    assert code == 0
    states = {name: stage.state for name, stage in latest_run(str(run.dir)).stages.items()}
    assert states.pop("Baseline") == "COMPLETE" and set(states.values()) == {"CACHED"}
    assert f"{len(states)} of them cached" in (run.dir / "report.html").read_text()


def test_a_student_of_one_layer_is_judged_beside_its_teacher_and_the_model_that_is_served(fine_tune, tmp_path):
    """It learns nothing, so it is refused for both reasons; then both limits allow it."""
    run = fine_tune("sst-2", "bert")
    teacher, student = run.dir / "serving" / run.summary["pushed_version"], tmp_path / "student"
    code, _, err = bert_tfx("convert", teacher, student, "--from", "bert-tfx", "--to", "hf", "--layers", "1")
    assert code == 0, err
    rows = [line.rpartition("\t")[0] for line in (run.data / "train.tsv").read_text().splitlines()]
    (tmp_path / "test.tsv").write_text(
        "\n".join(["index\tsentence", *(f"{n}\t{row}" for n, row in enumerate(rows[1:41]))])
    )
    slow = {"training__learning_rate": 1e-9, "training__num_train_epochs": 1}
    words = words_of("sst-2", student, run.data, run.dir, **slow, gate__min_score=0, gate__allow_chance=True)
    words += ["--teacher", teacher, "--unlabelled", tmp_path / "test.tsv"]
    code, out, err = bert_tfx(*words, "--set", "gate.min_share_of_teacher=1.5")
    assert code == 3 and f"version {run.summary['pushed_version']} stays served" in err, out + err
    summary = summary_of(run.dir)
    failures = {failure["kind"]: failure for failure in summary["gate_failures"]}
    assert failures.keys() == {"change", "teacher"}
    assert {failure["metric"] for failure in failures.values()} == {"accuracy"}
    assert failures["change"]["value"] < failures["change"]["baseline"] == run.summary["scores"]["accuracy"]
    assert failures["teacher"]["baseline"] == pytest.approx(run.summary["scores"]["accuracy"])
    assert "of the teacher's" in err + out and "gate.min_share_of_teacher" in err + out
    assert summary["rows"]["unlabelled"] == 40
    page = (run.dir / "report.html").read_text()
    assert "Beside its teacher" in page and "Labelled by the teacher" in page
    costs = summary["teacher"]["costs"]
    assert 0 < costs["model"]["megabytes"] < costs["teacher"]["megabytes"]

    allowed = ("--set", "gate.min_share_of_teacher=0.2", "--set", "gate.max_score_decrease=0.9")
    code, out, err = bert_tfx(*words, *allowed)
    assert code == 0, out + err
    assert latest_run(str(run.dir)).stages["Trainer"].state == "CACHED"


@pytest.mark.slow  # test_finetune.py: test_the_exported_model_starts_another_run
def test_a_fine_tuned_model_can_be_fine_tuned_again(fine_tune, tmp_path):
    run = fine_tune("sst-2", "bert")
    version = run.dir / "serving" / run.summary["pushed_version"]
    data = write_task("ner", tmp_path / "ner")
    changes = {"training__num_train_epochs": 1, "gate__min_score": 0, "gate__allow_chance": True}
    code, out, err = bert_tfx(*words_of("ner", version, data, tmp_path / "run", **changes))
    assert code == 0, out + err


@pytest.mark.parametrize("line", ["a good array\t2", "no label here"])
def test_a_bad_row_is_one_line_with_file_and_line(init, tmp_path, line):
    data = write_task("sst-2", tmp_path / "data")
    path = data / "train.tsv"
    header, first, _, *rest = path.read_text().splitlines()
    path.write_text("\n".join([header, first, line, *rest]) + "\n")
    err = refusal(*words_of("sst-2", init("bert"), data, tmp_path / "run"))
    assert "train.tsv, line 3: " in err and "data.on_bad_row=skip" in err
    assert not (tmp_path / "run").exists()
