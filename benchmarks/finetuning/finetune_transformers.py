"""Fine-tune a case of finetune_cases.py with the Trainer of `transformers` on torch, the baseline of bert-tfx.

    BERT_DATA_DIR=../shared/data .venv-bench/bin/python -m benchmarks.finetuning.finetune_transformers mrpc --seed 1

prints one JSON object: metrics in per cent, seconds and CPU seconds from reading the data to the last answer, settings.
`transformers` tokenizes the rows and pads them to the longest of a batch. The seed determines the order of the rows and
the initial output layer as in bert-tfx (`--own-draws`: both as in the Trainer); dropout is the Trainer's own. SQuAD's
windows and the answers from logits use bert-tfx's code: `transformers` has neither. Scores are those of scikit-learn,
SciPy and seqeval.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from benchmarks.finetuning.finetune_cases import (
    CASES,
    EVAL_BATCH_SIZE,
    case_rows,
    report_of,
    run_command,
    training_config,
    weights_directory,
    write_case,
)
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.training.config import TrainingConfig

# The label that torch ignores in the loss, also the Trainer's padding of logits.
IGNORED = -100


class Baseline(NamedTuple):
    """Model, features and scores of a task type for the Trainer.

    Attributes:
        model: name of the class of `transformers`, and its arguments besides the weights.
        examples: rows -> unpadded inputs of the model, one dictionary per example.
        answers: (the Trainer's logits, rows) -> answers, in the form of the rows' `gold`.
        scores: (golds, answers) -> fractions by name.
    """

    model: Callable[[Task], tuple[str, dict[str, Any]]]
    examples: Callable[[Any, Sequence[TaskRow], Task, TaskSettings], list[dict]]
    answers: Callable[[Any, Any, Sequence[TaskRow], Task, TaskSettings], list]
    scores: Callable[[Task, list, list], dict[str, float]]


# ---------------------------------------------------------------------- a label, or a number, of a text or a pair


def _text_examples(tokenizer, rows, task, settings):
    examples = []
    for row in rows:
        texts = [row.inputs[name] for name in ("text", "text_pair") if name in row.inputs]
        encoded = tokenizer(*texts, truncation="longest_first", max_length=settings.max_seq_length)
        label = float(row.gold) if task.kind == "regression" else task.labels.index(row.gold)
        examples.append({**encoded, "labels": label})
    return examples


def _classification_scores(task, golds, answers):
    from sklearn import metrics

    scores = {"accuracy": metrics.accuracy_score(golds, answers)}
    if "f1" in task.metrics:
        scores["f1"] = metrics.f1_score(golds, answers, pos_label="1")
    if "matthews_correlation" in task.metrics:
        scores["matthews_correlation"] = metrics.matthews_corrcoef(golds, answers)
    return scores


def _regression_scores(task, golds, answers):
    from scipy import stats

    return {name: getattr(stats, f"{name}r")(golds, answers).statistic for name in ("pearson", "spearman")}


# ---------------------------------------------------------------------- a tag a word


def _tagging_encoded(tokenizer, rows, settings):
    """For each row: the model's inputs, and word and position of each first token that was not truncated."""
    for row in rows:
        encoded = tokenizer(
            row.inputs["text"].split(" "), is_split_into_words=True, truncation=True, max_length=settings.max_seq_length
        )
        first = {}
        for position, word in enumerate(encoded.word_ids()):
            if word is not None:
                first.setdefault(word, position)
        yield encoded, first


def _tagging_examples(tokenizer, rows, task, settings):
    examples = []
    for row, (encoded, first) in zip(rows, _tagging_encoded(tokenizer, rows, settings), strict=True):
        labels = [IGNORED] * len(encoded["input_ids"])
        for word, position in first.items():
            labels[position] = task.labels.index(row.gold[word])
        examples.append({**encoded, "labels": labels})
    return examples


def _tagging_answers(logits, tokenizer, rows, task, settings):
    answers = []
    for row_logits, row, (_, first) in zip(logits, rows, _tagging_encoded(tokenizer, rows, settings), strict=True):
        # A word that was cut off, or has no piece, is in no entity: a miss, not left out.
        tags = ["O"] * len(row.gold)
        for word, position in first.items():
            tags[word] = task.labels[row_logits[position].argmax()]
        answers.append(tags)
    return answers


def _tagging_scores(task, golds, answers):
    from seqeval import metrics

    names = {"f1": "f1_score", "precision": "precision_score", "recall": "recall_score", "accuracy": "accuracy_score"}
    return {name: getattr(metrics, function)(golds, answers) for name, function in names.items()}


# ---------------------------------------------------------------------- a span of a text


def _windows(rows, settings):
    from bert_keras.tasks.span.features import span_features
    from bert_keras.tokenizers.wordpiece import BertTokenizer

    tokenizer = BertTokenizer.from_file(str(Path(weights_directory()) / "vocab.txt"), lower_case=True)
    return span_features(rows, settings, tokenizer)


def _span_examples(tokenizer, rows, task, settings):
    arrays = _windows(rows, settings).arrays
    examples = []
    for i, length in enumerate(arrays["input_mask"].sum(1).tolist()):
        found = arrays["weights"][i] > 0
        examples.append(
            {
                "input_ids": arrays["input_ids"][i, :length].tolist(),
                "attention_mask": [1] * length,
                "token_type_ids": arrays["segment_ids"][i, :length].tolist(),
                # The model leaves positions beyond the sequence out of the loss.
                "start_positions": int(arrays["start_positions"][i]) if found else settings.max_seq_length,
                "end_positions": int(arrays["end_positions"][i]) if found else settings.max_seq_length,
            }
        )
    return examples


def _span_answers(logits, tokenizer, rows, task, settings):
    from bert_keras.tasks.span.answers import span_answers

    outputs = dict(zip(("start_logits", "end_logits"), logits, strict=True))
    return [answer.text for answer in span_answers(outputs, _windows(rows, settings), rows, task, settings)]


def _span_scores(task, golds, answers):
    from bert_keras.tasks.metrics.scores import score

    return {name: percent / 100 for name, percent in score(task, golds, answers).items()}


KINDS = {
    "classification": Baseline(
        lambda task: ("BertForSequenceClassification", {"num_labels": len(task.labels)}),
        _text_examples,
        lambda logits, tokenizer, rows, task, settings: [task.labels[best] for best in logits.argmax(-1)],
        _classification_scores,
    ),
    "regression": Baseline(
        lambda task: ("BertForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}),
        _text_examples,
        lambda logits, tokenizer, rows, task, settings: logits[:, 0].tolist(),
        _regression_scores,
    ),
    "tagging": Baseline(
        lambda task: ("BertForTokenClassification", {"num_labels": len(task.labels)}),
        _tagging_examples,
        _tagging_answers,
        _tagging_scores,
    ),
    "span": Baseline(lambda task: ("BertForQuestionAnswering", {}), _span_examples, _span_answers, _span_scores),
}


# ---------------------------------------------------------------------- training


def row_order(examples: int, config: TrainingConfig) -> list[int]:
    """The rows in the order of bert-tfx: `config`'s steps x batch of them, epoch after epoch."""
    from bert_keras.data.array_batches import epoch_order

    wanted = config.num_train_steps * config.train_batch_size
    epochs = range(-(-wanted // examples))
    return [i for epoch in epochs for i in epoch_order(config.seed, examples, epoch).tolist()][:wanted]


def init_same_head(model, task: Task, settings: TaskSettings, seed: int) -> None:
    """Initialise the output layer of a `transformers` model as in bert-tfx."""
    import torch

    from bert_keras.finetuning.init_checkpoint import InitCheckpoint
    from bert_keras.tasks.task_types import task_type_of

    bert_tfx = task_type_of(task).create_model(InitCheckpoint.read(weights_directory()).config, task, settings, seed)
    bert_tfx.build()
    layer = model.qa_outputs if task.kind == "span" else model.classifier
    for parameter, weight in zip(layer.parameters(), bert_tfx.classifier.get_weights(), strict=True):
        parameter.data = torch.from_numpy(weight.T.copy())


def training_arguments(config: TrainingConfig, directory: str, own_draws: bool):
    """The Trainer's settings equivalent to `config`."""
    import transformers

    return transformers.TrainingArguments(
        output_dir=directory,
        per_device_train_batch_size=config.train_batch_size,
        per_device_eval_batch_size=EVAL_BATCH_SIZE,
        max_steps=config.num_train_steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=config.num_warmup_steps,
        optim="adamw_torch",
        adam_beta1=config.beta_1,
        adam_beta2=config.beta_2,
        adam_epsilon=config.epsilon,
        weight_decay=config.weight_decay,
        max_grad_norm=config.clip_norm,
        seed=config.seed,
        use_cpu=True,
        bf16=config.mixed_precision == "mixed_bfloat16",
        dataloader_pin_memory=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        train_sampling_strategy="random" if own_draws else "sequential",
    )


def run(name: str, seed: int, own_draws: bool = False) -> dict[str, Any]:
    """Fine-tune and test; return the report."""
    import torch
    import transformers

    case = CASES[name]
    with tempfile.TemporaryDirectory() as directory:
        write_case(name, directory)
        task, train_rows, test_rows = case_rows(name, directory)
        kind, settings = KINDS[task.kind], case.task_settings
        config = training_config(case, len(train_rows), seed)
        transformers.utils.logging.disable_progress_bar()
        transformers.set_seed(seed)
        tokenizer = transformers.AutoTokenizer.from_pretrained(weights_directory())
        model, arguments = kind.model(task)
        model = getattr(transformers, model).from_pretrained(weights_directory(), **arguments)
        collator = transformers.DataCollatorWithPadding(tokenizer)
        if task.kind == "tagging":
            collator = transformers.DataCollatorForTokenClassification(tokenizer, label_pad_token_id=IGNORED)
        train = kind.examples(tokenizer, train_rows, task, settings)
        rows = train
        if not own_draws:
            rows = [train[i] for i in row_order(len(train), config)]
            init_same_head(model, task, settings, seed)
        trainer = transformers.Trainer(
            model, training_arguments(config, directory, own_draws), collator, train_dataset=rows
        )
        # Standard output is for the report.
        trainer.remove_callback(transformers.PrinterCallback)
        trained = trainer.train()
        logits = trainer.predict(kind.examples(tokenizer, test_rows, task, settings)).predictions
    answers = kind.answers(logits, tokenizer, test_rows, task, settings)
    scores = kind.scores(task, [row.gold for row in test_rows], answers)
    return report_of(
        name,
        config,
        {metric: 100 * scores[metric] for metric in task.metrics},
        (train_rows, test_rows),
        train_loss=round(trained.training_loss, 4),
        train_tokens_an_epoch=sum(len(example["input_ids"]) for example in train),
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
    )


def set_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


if __name__ == "__main__":
    run_command(__doc__, run, set_threads, own_draws="order and output layer as the Trainer draws them")
