"""RunInference's handler: a range of input in, its shard of answers written.

A range leaves two files; each exists only whole:

    answers-00003-of-00020.jsonl    a line of JSON per row: kept columns, then outputs
    work.part/00003.json            {"rows": 812, "units": [{"records": 813, "bad": [[17, "has no 'text'"]]}]}; the last
                                    one written, so it marks a finished range; units are those of the range
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import ModelHandler

from bert_keras.files import json_text
from components.corpus_gen.readers import ReadUnit
from components.io.shards import whole_file, write_json
from components.task_example_gen.readers.records import RowError
from pipeline.apply.row_model import RowModel, load
from pipeline.apply.rows import read_rows
from serving.api.json_tensors import dumps, text_value

# Rows sorted by length before they are batched, and their characters, for bounded memory.
WINDOW_ROWS, WINDOW_CHARACTERS = 2048, 1 << 22


@dataclasses.dataclass(frozen=True)
class ApplyJob:
    """A signature of a model, and the columns it is applied to.

    Of several `columns` an input is the list of their values; `keep` are columns that are copied to the answers, by
    their names there. `model` and `output_dir` are local or in a store; `engine` is as in `pipeline.engines`.
    """

    model: str
    engine: str
    signature: str
    columns: Mapping[str, Sequence[str]]
    keep: Mapping[str, str]
    output_dir: str
    ranges: int

    @property
    def work_dir(self) -> str:
        return f"{self.output_dir}/work.part"

    @property
    def needed(self) -> set[str]:
        """All columns that are read."""
        return {column for many in self.columns.values() for column in many} | {*self.keep.values()}

    def shard(self, index: int) -> str:
        """Path of the answers to a range."""
        return f"{self.output_dir}/answers-{index:05d}-of-{self.ranges:05d}.jsonl"

    def marker(self, index: int) -> str:
        """Path of the counts of a range."""
        return f"{self.work_dir}/{index:05d}.json"


class ShardHandler(ModelHandler[tuple[int, list[ReadUnit]], int, RowModel]):
    """Answers the rows of a range, and writes its shard; returns the range's index.

    The threads of a process share its model.
    """

    def __init__(self, job: ApplyJob):
        super().__init__(min_batch_size=1, max_batch_size=1)
        self._job = job

    def load_model(self) -> RowModel:
        return RowModel(load(self._job.model, self._job.engine), self._job.signature)

    def run_inference(
        self,
        batch: Sequence[tuple[int, list[ReadUnit]]],
        model: RowModel,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[int]:
        for index, units in batch:
            # A runner may repeat a bundle: what is finished is not computed again.
            if not FileSystems.exists(self._job.marker(index)):
                self._write(index, units, model)
        return [index for index, _ in batch]

    def _write(self, index: int, units: list[ReadUnit], model: RowModel) -> None:
        tally: list[dict[str, Any]] = [{"records": 0, "bad": []} for _ in units]
        rows = 0
        with whole_file(self._job.shard(index), self._job.work_dir) as file:
            for window in _windows(self._read(units, tally)):
                for row, answer in zip(window, model.answers([row.inputs for row in window]), strict=True):
                    line = answer if isinstance(answer, str) else _line(row.kept, answer)
                    if isinstance(line, bytes):
                        file.write(line)
                        rows += 1
                    else:
                        tally[row.unit]["bad"].append([row.number, line])
        for unit in tally:
            unit["bad"].sort()
        write_json(self._job.marker(index), {"rows": rows, "units": tally})

    def _read(self, units: list[ReadUnit], tally: list[dict[str, Any]]) -> "Iterator[_InputRow]":
        """Rows with all inputs; numbers and reasons of the others go to `tally`, one entry per unit."""
        for index, unit in enumerate(units):
            for number, values in read_rows(unit, self._job.needed):
                tally[index]["records"] = number
                try:
                    if isinstance(values, RowError):
                        raise values
                    if values is not None:
                        kept = {name: values.get(column) for name, column in self._job.keep.items()}
                        yield _InputRow(index, number, self._inputs(values), kept)
                except RowError as error:
                    tally[index]["bad"].append([number, str(error)])

    def _inputs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        inputs = {}
        for name, columns in self._job.columns.items():
            given = [values.get(column) for column in columns]
            if None in given:
                raise RowError(f"has no {columns[given.index(None)]!r}")
            inputs[name] = given[0] if len(given) == 1 else given
        return inputs


class _InputRow(NamedTuple):
    """A row: position of its unit in the range, number in the unit, JSON values of the inputs, kept columns."""

    unit: int
    number: int
    inputs: dict[str, Any]
    kept: dict[str, Any]


def _windows(rows: Iterable[_InputRow]) -> Iterator[list[_InputRow]]:
    window: list[_InputRow] = []
    characters = 0
    for row in rows:
        window.append(row)
        characters += len(str(row))
        if len(window) == WINDOW_ROWS or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def _line(kept: Mapping[str, Any], answer: Mapping[str, Any]) -> bytes | str:
    """A line of JSON, or the reason why there is none."""
    try:
        columns = {name: json_text(value, ensure_ascii=False, default=_plain).encode() for name, value in kept.items()}
    except UnicodeEncodeError:
        return "a kept column holds half of a surrogate pair"
    return dumps({**{name: orjson.Fragment(text) for name, text in columns.items()}, **answer}) + b"\n"


def _plain(value: object) -> Any:
    """JSON of a value that only Parquet has: bytes, a date, a decimal number."""
    return text_value(value) if isinstance(value, bytes) else str(value)
