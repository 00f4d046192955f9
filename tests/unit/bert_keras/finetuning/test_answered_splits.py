"""Files written for the answers to a split, with unanswerable questions."""

import json

import pytest

from bert_keras.finetuning.finetune import answer
from bert_keras.finetuning.training import TrainedTask
from bert_keras.models.config import BertConfig
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.submissions.prediction_files import read_predictions
from bert_keras.tasks.submissions.squad import read_null_odds
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer

TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "who", "sat", "?", "the", "cat", "dog", "on", "a", "mat"], True)
TASK = task_of("squad2.0")


def row(number, context, answer=None):
    answers = [{"text": answer, "answer_start": context.index(answer)}] if answer else []
    return TaskRow(f"q{number}", {"question": "who sat?", "context": context}, {"answers": answers})


ROWS = [row(0, "the cat sat on a mat", "the cat"), row(1, "a dog on the mat"), row(2, "a dog sat", "a dog")]


@pytest.fixture(scope="module")
def trained():
    config = BertConfig.size(1, 64, vocab_size=len(TOKENIZER.vocabulary), max_position_embeddings=32)
    settings = TaskSettings(max_seq_length=24, max_query_length=8, doc_stride=8)
    model = task_type_of(TASK).create_model(config, TASK, settings, 3)
    model.build()
    return TrainedTask(model, TASK, settings, TOKENIZER)


def test_answers_null_odds_and_n_best_lists_agree(trained, tmp_path):
    scores = answer(trained, ROWS, 2, str(tmp_path), "eval")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"predictions.json", "null_odds.json", "nbest_predictions.json"}
    answers = read_predictions(TASK, ROWS, str(tmp_path / "predictions.json"))
    odds = read_null_odds(ROWS, answers, str(tmp_path / "null_odds.json"))
    best = json.loads((tmp_path / "nbest_predictions.json").read_text())
    for one, said, difference in zip(ROWS, answers, odds, strict=True):
        candidates = best[one.row_id]
        assert sum(candidate["probability"] for candidate in candidates) == pytest.approx(1)
        texts = [candidate["text"] for candidate in candidates if candidate["text"]]
        # run_squad.py: no answer if its score exceeds the best answer's by more than the threshold, 0.
        assert said == ("" if difference > 0 else texts[0])
        assert texts[0] in one.inputs["context"]
    assert scores == score(TASK, [one.gold for one in ROWS], answers, odds)
    assert scores["best_f1"] >= scores["f1"] and scores["NoAns_total"] == 1


def test_rows_without_golds_are_answered_and_not_scored(trained, tmp_path):
    asked = [TaskRow(one.row_id, one.inputs) for one in ROWS]
    assert answer(trained, asked, 2, str(tmp_path), "test") is None
    assert len(json.loads((tmp_path / "predictions.json").read_text())) == 3
