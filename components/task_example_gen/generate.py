"""Writes shards of rows and `task_spec.json` from the files of each split."""

import dataclasses
from collections.abc import Mapping, Sequence

from bert_keras.data.tfrecord import bytes_example
from bert_keras.errors import InputError
from bert_keras.notices import notify
from bert_keras.tasks.metrics.scores import POSITIVE
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSpec
from bert_keras.tasks.table import Task
from components.io.shards import shard_name, write_file, write_shard
from components.task_example_gen.readers import LocatedRow, ReadReport, read_located
from components.task_example_gen.settings import TaskDataSettings
from components.task_example_gen.split_files import EVAL, EVAL_MISMATCHED, LABELLED, SPLITS, TRAIN, UNLABELLED
from components.task_example_gen.splits import hold_out, sample, sample_by_text

# Gives shards of some megabytes; thirty for SQuAD, whose contexts repeat.
ROWS_PER_SHARD = 20_000
PREFIX = "examples"
_PURPOSE = {TRAIN: "train on", EVAL: "evaluate on", EVAL_MISMATCHED: "evaluate on"}


def generate_rows(
    task: Task, files: Mapping[str, Sequence[str]], settings: TaskDataSettings, output_dir: str
) -> TaskSpec:
    """Write `OUTPUT_DIR/Split-NAME/examples-*.tfrecord` for each split, and `task_spec.json`; returns its content.

    A task without labels gets those of its training rows; all other rows must have one of its labels. Without files of
    eval rows, some of the training rows are held out. InputError: a file cannot be used, a row is malformed (and
    `settings.on_bad_row` is "fail"), or there are none.
    """
    report = ReadReport()
    train = _read(task, TRAIN, files[TRAIN], settings, report)
    if not task.labels and task.has_labels:
        task = dataclasses.replace(task, labels=_labels(task, [located.row for _, located in train], files[TRAIN]))
    if task.kind == "classification" and "f1" in task.metrics and POSITIVE not in task.labels:
        raise InputError(
            f"{task.name}: f1 is of label {POSITIVE!r}; rename one of {', '.join(task.labels)}, or take another score"
        )
    rows = {
        split: [located.row for _, located in _read(task, split, files[split], settings, report)]
        for split in SPLITS
        if split in files and split != TRAIN
    }
    held_out = ""
    if EVAL in rows:
        rows[TRAIN] = [located.row for _, located in train]
    else:
        by_text = task.kind in ("ranking", "retrieval")
        rows[TRAIN], rows[EVAL] = hold_out(train, settings.eval_fraction, settings.seed, by_text)
        held_out = f"{settings.eval_fraction} by seed {settings.seed}{', whole queries' if by_text else ''}"
    _separate(rows)
    if task.contrastive:
        _check_contrastive(task, rows)
    if task.kind == "ranking":
        _check_ranking(rows)
    for line in report.lines():
        notify(line)
    return _write(task, rows, settings, report, output_dir, held_out)


def _separate(rows: dict[str, list[TaskRow]]) -> None:
    """Leave unlabelled rows out that are eval rows, which a teacher would answer; say it of labelled rows."""
    judged = {repr(row.inputs) for split in (EVAL, EVAL_MISMATCHED) for row in rows.get(split, ())}
    for split in [split for split in (TRAIN, UNLABELLED) if split in rows]:
        others = [row for row in rows[split] if repr(row.inputs) not in judged]
        if known := len(rows[split]) - len(others):
            notify(f"{known:,} {split} rows are eval rows, too{': left out' if split == UNLABELLED else ''}")
        if split == UNLABELLED:
            rows[split] = others


def _read(
    task: Task, split: str, paths: Sequence[str], settings: TaskDataSettings, report: ReadReport
) -> list[tuple[str, LocatedRow]]:
    """(path, row) pairs of a split's files."""
    labelled = split in LABELLED
    rows = [
        (path, located)
        for path in paths
        for located in read_located(task, path, settings.on_bad_row, report, settings.columns, labelled)
    ]
    if not rows:
        skipped = sum(report.skipped[path] for path in paths)
        raise InputError(
            f"{', '.join(paths)}: no rows to {_PURPOSE.get(split, 'predict')} ({skipped:,} malformed rows skipped); "
            f"give a file of {task.name} with rows"
        )
    return rows


def _check_contrastive(task: Task, rows: Mapping[str, Sequence[TaskRow]]) -> None:
    scored = "scored pairs (text, text_pair, label)" if task.kind == "similarity" else "pairs (text, text_pair)"
    for split, split_rows in rows.items():
        for row in split_rows:
            if split == TRAIN and task.kind == "similarity" and row.gold is not None:
                raise InputError(
                    f"row {row.row_id} of the training rows has a score; {task.name} trains on texts, or on pairs that "
                    "belong together: leave the others and the column out, and give scored pairs with --eval FILE"
                )
            if split in (TRAIN, UNLABELLED):
                continue
            if "text_pair" not in row.inputs or (row.gold is None and split in LABELLED):
                raise InputError(
                    f"row {row.row_id} of the {split} rows is not one of {scored}, by which {task.name} is judged; "
                    f"give a file of them with --{split} FILE"
                )


def _check_ranking(rows: Mapping[str, Sequence[TaskRow]]) -> None:
    if len({row.gold[1] > 0 for row in rows[TRAIN]}) < 2:
        raise InputError(
            "the training rows are all relevant, or all not (label 0); give rows of both, such as those of "
            "`bert-tfx hard-negatives`"
        )
    relevant = {row.gold[0] for row in rows[EVAL] if row.gold[1] > 0}
    for row in rows[EVAL]:
        if row.gold[0] not in relevant:
            raise InputError(
                f"row {row.row_id} of the eval rows: no passage of its query is relevant, {row.gold[0]!r}; give one "
                "with a label above 0, or leave the query out"
            )


def _labels(task: Task, rows: Sequence[TaskRow], paths: Sequence[str]) -> tuple[str, ...]:
    """Labels of rows, sorted; for tagging, B- and I- of every type: rare ones may be missing in small data."""
    if task.kind == "tagging":
        types = {tag[2:] for row in rows for tag in row.gold if tag != "O"}
        return tuple(sorted({"O"} | {f"{part}-{entity}" for entity in types for part in "BI"}))
    several = task.kind == "multi_label"
    labels = tuple(sorted({label for row in rows for label in (row.gold if several else [row.gold])}))
    if len(labels) < 2:
        raise InputError(f"{', '.join(paths)}: the only labels are {list(labels)}; give rows of two labels or more")
    first: dict[str, str] = {}
    for label in labels:
        if (other := first.setdefault(_plain(label), label)) != label:
            notify(f"{', '.join(paths)}: {other!r} and {label!r} are two labels; write them in one way if they are one")
    return labels


def _plain(label: str) -> str:
    """The label without case, a number in one form."""
    try:
        return str(float(label))
    except ValueError:
        return label.casefold()


def _write(
    task: Task,
    rows: dict[str, list[TaskRow]],
    settings: TaskDataSettings,
    report: ReadReport,
    output_dir: str,
    held_out: str,
) -> TaskSpec:
    most = {TRAIN: settings.max_train_rows, EVAL: settings.max_eval_rows, EVAL_MISMATCHED: settings.max_eval_rows}
    counts = {}
    for split in [split for split in SPLITS if rows.get(split)]:
        draw = sample_by_text if task.kind == "ranking" and split != TRAIN else sample
        chosen = draw(rows[split], most.get(split, 0), settings.seed)
        starts = range(0, len(chosen), ROWS_PER_SHARD)
        for index, start in enumerate(starts):
            records = (bytes_example({**row.to_features()}) for row in chosen[start : start + ROWS_PER_SHARD])
            write_shard(f"{output_dir}/Split-{split}/{shard_name(PREFIX, index, len(starts))}", records)
        counts[split] = len(chosen)
    spec = TaskSpec(task, counts, dict(report.skipped), held_out)
    write_file(f"{output_dir}/{TASK_SPEC_FILE}", spec.to_json().encode())
    return spec
