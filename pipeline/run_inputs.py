"""The files of a run, found before TFX is imported: a wrong path is told at once."""

from __future__ import annotations

import dataclasses
import os

import typer

from bert_keras.errors import InputError
from components.corpus_gen.inputs import InputFile, find_inputs
from pipeline.run_request import RunRequest


@dataclasses.dataclass(frozen=True)
class RunInputs:
    """What a run reads.

    Attributes:
        text: of pre-training, the corpus.
        vocabulary: of pre-training, a vocabulary to use; None: it is learned.
        splits: of fine-tuning, the files of each split.
    """

    text: list[InputFile] = dataclasses.field(default_factory=list)
    vocabulary: InputFile | None = None
    splits: dict[str, list[str]] = dataclasses.field(default_factory=dict)


def find_run_inputs(request: RunRequest) -> RunInputs:
    """The files that a request means; without a corpus, the docstrings of the installed libraries are written.

    Raises:
        InputError: a recipe, setting or path that cannot be used.
    """
    recipe = request.resolved
    if request.pretrains:
        vocabulary = _vocabulary(request.vocab) if request.vocab else None
        corpus = request.corpus or [_docstrings(request.run_dir)]
        return RunInputs(find_inputs(corpus, recipe.corpus), vocabulary)  # type: ignore[union-attr]  # it pre-trains
    from bert_keras.interchange.any_format import format_of
    from components.task_example_gen.files import find_splits

    if request.init is None:
        raise InputError(f"{request.recipe}: give the model to begin with, --init DIR")
    given = {"train": request.train, "eval": request.held_out, "test": request.test}
    splits = find_splits(recipe.row, request.data, given)  # type: ignore[union-attr]  # it fine-tunes
    format_of(request.init)
    return RunInputs(splits=splits)


def _vocabulary(path: str) -> InputFile:
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file; --vocab takes a vocab.txt")
    return InputFile(os.path.abspath(path), os.path.getsize(path))


def _docstrings(run_dir: str) -> str:
    from pipeline.docstrings import CORPUS_BYTES, write_docstring_corpus

    typer.echo("reading the docstrings of the installed libraries")
    path = os.path.join(run_dir, "corpus", "docstrings.txt")
    write_docstring_corpus(path, CORPUS_BYTES)
    return path
