"""Answers of a signature row by row, as the embedded server gives them, without a server."""

import glob
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from apache_beam.io.filesystems import FileSystems

from bert_keras.errors import InputError
from components.io.shards import make_folder, matching, open_file
from pipeline.engines import engines
from serving.api.json_tensors import ROWS, request_inputs, serializable
from serving.errors import ServingError
from serving.middleware.settings import LimitSettings
from serving.models.servable import SAVED_MODEL_FILE, Servable
from serving.protos import SavedModel, SignatureDef
from serving.scheduling.row_load import budget_of, is_varying, marker, row_widths, sizes

# Of a call: a window of rows, which engines compute by length; every mask becomes scores for the whole vocabulary.
_BUDGET = budget_of(2048)._replace(masks=budget_of(32).masks)
# Upper bound of the outputs of one call, such as the vectors of all tokens.
_ANSWER_BYTES = 64 << 20
_Arrays = dict[str, np.ndarray]


def find_model(model: str, engine: str) -> str:
    """The folder that an engine loads: `model` itself, or the highest version in it; InputError if there is none."""
    model, files = model.rstrip("/"), list(engines(engine))
    if any(FileSystems.exists(f"{model}/{file}") for file in files):
        return model
    folders = [found.path.rpartition("/")[0] for file in files for found in matching(f"{glob.escape(model)}/*/{file}")]
    versions = {int(name): folder for folder in folders if re.fullmatch("[0-9]+", name := folder.rpartition("/")[2])}
    if not versions:
        raise InputError(
            f"{model}: no {' or '.join(files)}, and no version that has one; give a pushed or converted model"
        )
    return versions[max(versions)]


def read_signature(model: str, engine: str, name: str) -> SignatureDef:
    """A signature of the model in a folder; that of a SavedModel is read without TensorFlow.

    InputError: it has no such signature, or one without an answer for each row.
    """
    if _file_of(model, engine) == SAVED_MODEL_FILE:
        with open_file(f"{model}/{SAVED_MODEL_FILE}") as file:
            graphs = SavedModel.FromString(file.read()).meta_graphs
        signatures = next(graph for graph in graphs if "serve" in graph.meta_info_def.tags).signature_def
    else:
        signatures = load(model, engine).signature_defs
    known = sorted(key for key in signatures if not key.startswith("__"))
    if name not in known:
        raise InputError(f"{model}: has no signature {name!r}, but {', '.join(known)}; choose one with --signature")
    infos = {**signatures[name].inputs, **signatures[name].outputs}
    if without := [key for key, info in infos.items() if sizes(info)[:1] != [-1]]:
        raise InputError(f"{model}: {name}: {', '.join(sorted(without))} has no rows; choose another --signature")
    return signatures[name]


def load(model: str, engine: str) -> Servable:
    """A model from a folder, local or in a store."""
    with tempfile.TemporaryDirectory() as folder:
        return engines(engine, _BUDGET)[_file_of(model, engine)]("model", 0, Path(_local(model, folder)), None)


class RowModel:
    """A signature of a model. Thread-safe.

    Rows of similar length are computed together (`serving.scheduling`).
    """

    def __init__(self, servable: Servable, signature_name: str):
        self._servable = servable
        self._name = signature_name
        self._signature = servable.signature(signature_name)
        self._marker = marker(self._signature)
        self._varying = {key for key, info in self._signature.outputs.items() if self._marker and is_varying(info)}

    def answers(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | str]:
        """For each row the outputs by name, for `serving.api.json_tensors.dumps`, or the reason why there are none.

        Rows are as the "instances" of a REST request. ServingError: other errors than invalid rows.
        """
        results: list[dict[str, Any] | str] = [""] * len(rows)
        try:
            together: _Arrays | None = self._inputs(rows)
        except ServingError:
            together = None
        if together is not None:
            self._answer(np.arange(len(rows)), together, results)
            return results
        alike: dict[tuple, list[tuple[int, _Arrays]]] = {}
        for number, row in enumerate(rows):
            try:
                arrays = self._inputs([row])
            except ServingError as error:
                results[number] = str(error)
                continue
            # All rows of a request need the same number of choices.
            alike.setdefault(tuple((key, arrays[key].shape) for key in sorted(arrays)), []).append((number, arrays))
        for members in alike.values():
            numbers, of_rows = zip(*members, strict=True)
            inputs = {key: np.concatenate([arrays[key] for arrays in of_rows]) for key in of_rows[0]}
            self._answer(np.array(numbers), inputs, results)
        return results

    def _inputs(self, rows: Sequence[Mapping[str, Any]]) -> _Arrays:
        return request_inputs({ROWS: rows}, self._signature, LimitSettings())

    def _answer(self, numbers: np.ndarray, inputs: _Arrays, results: list[dict[str, Any] | str]) -> None:
        half = len(numbers) // 2
        try:
            request = self._servable.prepare(self._name, inputs)
            outputs = request.run() if half == 0 or request.answer_bytes <= _ANSWER_BYTES else None
        except ServingError as error:
            if error.code is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
            if half == 0:
                results[numbers[0]] = str(error)
                return
            outputs = None
        if outputs is None:
            for part in (slice(half), slice(half, None)):
                self._answer(numbers[part], {key: array[part] for key, array in inputs.items()}, results)
            return
        # As wide as if the row were alone.
        widths = row_widths(self._marker, outputs[self._marker]) if self._varying else [None] * len(numbers)
        for place, (number, width) in enumerate(zip(numbers, widths, strict=True)):
            results[number] = {
                key: _json(key, array[place][:width] if key in self._varying else array[place])
                for key, array in outputs.items()
            }


def _json(name: str, value: Any) -> Any:
    """An output of a row; `dumps` writes null for NaN and infinity, which JSON lines do not have."""
    if isinstance(value, bytes) or value.dtype == object:
        return serializable(name, value)
    return np.ascontiguousarray(value) if value.ndim else value


def _file_of(model: str, engine: str) -> str:
    return next(file for file in engines(engine) if FileSystems.exists(f"{model}/{file}"))


def _local(model: str, folder: str) -> str:
    """A local folder with the model: TensorFlow reads no store without extra packages."""
    if "://" not in model:
        return model
    for file in matching(f"{glob.escape(model)}/**"):
        path = f"{folder}/{file.path.removeprefix(model).lstrip('/')}"
        make_folder(path.rpartition("/")[0])
        with open_file(file.path) as source, open(path, "wb") as copy:
            while block := source.read(1 << 24):
                copy.write(block)
    return folder
