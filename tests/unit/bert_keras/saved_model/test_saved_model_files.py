"""Cost of an export."""

import dataclasses

from bert_keras.models.config import BertConfig
from bert_keras.saved_model.task_answers import label_answers
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer


def test_answers_are_traced_once_for_all_signatures(tmp_path, monkeypatch):
    """Tracing is most of the time: serving_default, classify, evaluate and the warm-up requests share one trace."""
    traces = []

    def counted(*arguments):
        made = label_answers(*arguments)
        return dataclasses.replace(made, answer=lambda *texts: traces.append(texts) or made.answer(*texts))

    monkeypatch.setattr("bert_keras.saved_model.task_signatures.label_answers", counted)
    tokenizer, task, settings = BertTokenizer([*SPECIAL_TOKENS, "a"], True), task_of("mrpc"), TaskSettings(16)
    model = task_type_of(task).create_model(BertConfig(len(tokenizer.vocabulary), 16, 1, 1, 16), task, settings, 1)
    model.build()
    export_task_model(model, task, settings, tokenizer, str(tmp_path))
    assert len(traces) == 1
