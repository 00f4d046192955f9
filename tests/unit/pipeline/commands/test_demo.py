"""`bert-tfx demo`: its request to the served model, and its refusals before anything is trained."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert_keras.tasks.rows import TaskRow
from pipeline.commands.demo import DEMO_SENTENCE, DEMO_TEXT, _ask, _fine_tuning
from tests.support.pipeline.command_line import bert_tfx
from tests.support.pipeline.task_files import write_task


@pytest.mark.parametrize(
    ("signatures", "told"),
    [
        (["encode", "fill_mask"], [DEMO_SENTENCE, "  array                 50.00%"]),
        (["encode"], [DEMO_TEXT, "  encoded as 9 vectors of 32 numbers, one per token"]),
    ],
)
def test_a_mask_is_filled_by_a_model_that_fills_masks(signatures, told, capsys):
    client = SimpleNamespace(
        metadata=lambda: dict.fromkeys(signatures),
        fill_mask=lambda texts: [[[("array", 0.5)]]],
        encode=lambda texts: {"sequence_output": np.zeros((len(texts), 9, 32))},
    )
    _ask(client, "[MASK]", ())
    assert capsys.readouterr().out.splitlines() == told


def test_a_fine_tuned_model_is_asked_for_the_inputs_it_takes(capsys):
    asked = []
    client = SimpleNamespace(
        # The signatures of a fine-tuned model include `encode`.
        metadata=lambda: {"serving_default": SimpleNamespace(inputs={"text": None}), "encode": None},
        predict=lambda inputs: asked.append(inputs) or {"label": np.array([b"good", b"bad"], object)},
    )
    _ask(
        client,
        "[MASK]",
        [TaskRow("0", {"text": "a" * 201, "negative": "x"}), TaskRow("1", {"text": "b", "negative": "y"})],
    )
    assert asked == [{"text": ["a" * 201, "b"]}]
    assert capsys.readouterr().out.splitlines() == [
        "a" * 200 + "... | x",
        "b | y",
        '{"label": "good"}',
        '{"label": "bad"}',
    ]


def test_the_fine_tuning_has_its_settings_its_folder_and_rows_of_the_last_split(tmp_path):
    data = write_task("sst-2", tmp_path / "data")
    request, rows = _fine_tuning(f"sst2={data}", ["training.seed=7"], str(tmp_path / "run"))
    assert (request.recipe, request.data, request.settings) == ("sst-2", str(data), ("training.seed=7",))
    assert request.run_dir == str(tmp_path / "run" / "sst-2")
    assert [row.inputs["text"] for row in rows] == [
        line.split("\t")[1] for line in (data / "test.tsv").read_text().splitlines()[1:4]
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "sst-2"], "--task sst-2: must be NAME=DIR, such as sst-2=SST-2/"),
        (["--task", "sst-3=there"], "sst-3: no such task"),
        (["--task", "sst-2=there"], "there"),
        (["--task", "sst-2=there", "--task-set", "task.length=3"], "task.length"),
        (["--task-set", "task.max_seq_length=32"], "--task-set task.max_seq_length=32: give --task NAME=DIR too"),
    ],
)
def test_a_wrong_task_is_refused_before_the_pretraining(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = bert_tfx("demo", *words)
    assert code == 2 and said in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())
