"""Plans, resumes and sums up `bert-tfx apply`.

The output folder:

    answers-00003-of-00020.jsonl   the answers to a range, in the order of the input
    bad_rows.jsonl                 {"file": "a.jsonl", "record": 17, "reason": "has no 'text'"}
    apply.json                     the job, and counts of rows; written last, so it marks a complete folder
    work.part/                     of a running or killed command: job.json, counts of finished ranges
"""

import glob
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import RunInference

from bert_keras.errors import InputError
from bert_keras.files import locked
from bert_keras.notices import tell
from components.code_version import code_fingerprint
from components.corpus_gen.inputs import fingerprint, list_files
from components.corpus_gen.readers import ReadUnit, in_threads
from components.io.shards import matching, read_json, remove_folder, whole_file, write_json
from components.task_example_gen.task_files import files_below
from pipeline.apply.handler import ApplyJob, ShardHandler
from pipeline.apply.row_model import find_model, read_signature
from pipeline.apply.rows import plan, read_rows
from pipeline.examples.beam_jobs import beam_options, beam_pipeline, peak_memory_bytes, progress

BAD_ROWS_FILE, SPEC_FILE = "bad_rows.jsonl", "apply.json"


def apply(
    model: str,
    patterns: Sequence[str],
    output_dir: str,
    *,
    signature: str,
    engine: str,
    columns: Sequence[str],
    keep: Sequence[str],
    beam_args: Sequence[str],
) -> dict:
    """Answer all rows of the files; return the figures that the command prints.

    `columns` are INPUT=COLUMN for inputs whose column has another name; several for an input make a list. `keep` are
    columns to copy; NAME=COLUMN copies under another name. InputError: unusable model, signature, files or columns; a
    folder with other answers; no row was answered.
    """
    output_dir = output_dir.rstrip("/")
    # Beam sets these options when a pipeline is made, but file systems are used before the first one.
    FileSystems.set_options(beam_options(beam_args))
    model = find_model(model, engine)
    files = list_files(patterns, "--input")
    ranges = plan(files)
    job = _job(model, engine, signature, columns, keep, output_dir, len(ranges))
    identity = {
        "signature": signature,
        "engine": engine,
        "columns": {name: list(many) for name, many in job.columns.items()},
        "keep": dict(job.keep),
        "input": fingerprint(files),
        "model": fingerprint(files_below(model)),
        "code": code_fingerprint("pipeline.apply.handler"),
    }
    if done := _same_job(f"{output_dir}/{SPEC_FILE}", identity, output_dir):
        tell(f"{output_dir}: finished by an earlier command")
        return _figures(output_dir, done["counts"], 0, 0.0)
    _check_first_row(ranges, job)
    started = time.monotonic()
    with locked(job.work_dir, "--output"):
        if _same_job(f"{job.work_dir}/job.json", identity, output_dir) is None:
            write_json(f"{job.work_dir}/job.json", {"job": identity})
        finished = {file.path for file in matching(f"{glob.escape(job.work_dir)}/*.json")}
        todo = [(index, units) for index, units in enumerate(ranges) if job.marker(index) not in finished]
        if len(todo) < len(ranges):
            tell(f"{len(ranges) - len(todo)} of {len(ranges)} shards were finished by an earlier command")
        try:
            if todo:
                with progress("apply", output_dir), beam_pipeline(beam_args, "apply") as pipeline:
                    _ = pipeline | beam.Create(todo) | RunInference(ShardHandler(job))
        except BaseException:
            tell(f"finished shards are kept in {output_dir}: the same command resumes from there")
            raise
        counts = _sum_up(job, ranges)
        write_json(f"{output_dir}/{SPEC_FILE}", {"job": identity, "counts": counts})
        remove_folder(job.work_dir)
    return _figures(output_dir, counts, len(todo), time.monotonic() - started)


def _job(
    model: str, engine: str, signature: str, columns: Sequence[str], keep: Sequence[str], output_dir: str, ranges: int
) -> ApplyJob:
    declared = read_signature(model, engine, signature)
    given: dict[str, list[str]] = {}
    for name, column in _pairs(columns, "--column"):
        if name not in declared.inputs:
            raise InputError(
                f"--column {name}={column}: {signature} has no input {name!r}, but {', '.join(sorted(declared.inputs))}"
            )
        given.setdefault(name, []).append(column)
    kept = dict(_pairs([word if "=" in word else f"{word}={word}" for word in keep], "--keep"))
    if taken := sorted(set(kept) & set(declared.outputs)):
        raise InputError(f"--keep {taken[0]}: is an output's name; give --keep NAME={kept[taken[0]]} with another NAME")
    # An input with a default is read if it is named.
    inputs = {name: given.get(name, [name]) for name in sorted({*declared.inputs} - {*declared.defaults} | {*given})}
    return ApplyJob(model, engine, signature, inputs, kept, output_dir, ranges)


def _pairs(words: Sequence[str], option: str) -> Iterator[tuple[str, str]]:
    for word in words:
        name, _, column = word.partition("=")
        if not name or not column:
            raise InputError(f"{option} {word}: is not NAME=COLUMN")
        yield name, column


def _same_job(path: str, identity: Mapping[str, Any], output_dir: str) -> dict | None:
    """The record that an earlier command wrote to `path`, or None; InputError if it was for another job."""
    if not FileSystems.exists(path):
        return None
    earlier = read_json(path)
    if changed := [key for key in identity if earlier["job"].get(key) != identity[key]]:
        raise InputError(
            f"{output_dir}: contains answers of another job (changed: {', '.join(changed)}); "
            "remove it, or give another --output"
        )
    return earlier


def _check_first_row(ranges: Sequence[Sequence[ReadUnit]], job: ApplyJob) -> None:
    """Refuse a missing column at once, not in every row."""
    unit = ranges[0][0]
    rows = (row.values for row in read_rows(unit, job.needed))
    first = next((values for values in rows if isinstance(values, dict)), None)
    if first is not None and (missing := sorted(job.needed - {*first})):
        raise InputError(
            f"{unit.path}: its first row has no {missing[0]!r}, but {', '.join(map(repr, first))}; "
            "name it with --column INPUT=COLUMN"
        )


def _sum_up(job: ApplyJob, ranges: Sequence[Sequence[ReadUnit]]) -> dict[str, int]:
    """Write the file of bad rows, and return the counts; of one range at a time is more than a count in memory."""
    counts: Counter[str] = Counter(shards=len(ranges), rows=0, bad_rows=0)
    before: Counter[str] = Counter()  # records of a file in earlier ranges
    with whole_file(f"{job.output_dir}/{BAD_ROWS_FILE}", job.work_dir) as file:
        markers = in_threads(read_json, [job.marker(index) for index in range(len(ranges))])
        for units, marker in zip(ranges, markers, strict=True):
            counts["rows"] += marker["rows"]
            for unit, tally in zip(units, marker["units"], strict=True):
                for number, reason in tally["bad"]:
                    row = {"file": unit.path, "record": before[unit.path] + number, "reason": reason}
                    file.write((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))
                    counts["bad_rows"] += 1
                before[unit.path] += tally["records"]
    return dict(counts)


def _figures(output_dir: str, counts: Mapping[str, int], computed: int, seconds: float) -> dict:
    if counts["bad_rows"] and not counts["rows"]:
        raise InputError(f"{output_dir}/{BAD_ROWS_FILE}: no row could be answered; it has the reasons")
    return {
        "output": output_dir,
        **counts,
        "computed_shards": computed,
        "seconds": round(seconds, 2),
        "peak_memory_bytes": peak_memory_bytes(),
    }
