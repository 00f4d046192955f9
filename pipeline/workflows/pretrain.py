"""Workflow of a pre-training: text to a pushed encoder."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from bert_keras.data.mixture import check_names
from bert_keras.errors import InputError
from bert_keras.files import atomic_write
from pipeline.runs.request import RunRequest

if TYPE_CHECKING:
    from tfx.orchestration.pipeline import Pipeline

    from components.corpus_gen.inputs import InputFile
    from pipeline.recipes.settings import Recipe
    from pipeline.runs.lineage import Run


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The files of a pre-training.

    Attributes:
        corpus: text to train on.
        vocabulary: a vocabulary file; None: learn the vocabulary.
        reference: text that is only scored.
        replay: general text, a share of every batch.
        earlier: folder of the documents that were read before; "": read all.
        leaks: path of the table of evaluation sets (`corpus.decontaminate`); "": the corpus is not checked.
        pairs: path of the minimal pairs (`gate.minimal_pairs`); "": there are none.
    """

    corpus: list[InputFile] = dataclasses.field(default_factory=list)
    vocabulary: InputFile | None = None
    reference: list[InputFile] = dataclasses.field(default_factory=list)
    replay: list[InputFile] = dataclasses.field(default_factory=list)
    earlier: str = ""
    leaks: str = ""
    pairs: str = ""


class PretrainWorkflow:
    """The `Workflow` of the recipes of `pipeline.recipes.pretraining`."""

    name = "pretrain"
    inputs: tuple[str, ...] = ("corpus", "reference_corpus", "replay", "vocab", "init", "cased")
    tuned: Mapping[str, str] = {
        "num_train_steps": "training.num_train_steps",
        "max_mlm_perplexity": "gate.max_mlm_perplexity",
        "min_mlm_accuracy": "gate.min_mlm_accuracy",
        "min_nsp_accuracy": "gate.min_nsp_accuracy",
    }

    def find_inputs(self, request: RunRequest) -> Inputs:
        """Find the files; without a corpus write one from the docstrings of the installed libraries."""
        from apache_beam.io.filesystems import FileSystems
        from apache_beam.options.pipeline_options import PipelineOptions

        from components.corpus_gen.inputs import find_inputs
        from components.evaluator.minimal_pairs import read_pairs, write_pairs
        from components.task_example_gen.evaluation_sets import with_leak_table
        from pipeline.runs.run_dir import inputs_dir

        if request.init:
            vocabulary: InputFile | None = _initial_vocabulary(request)
        else:
            vocabulary = _vocabulary(request.vocab) if request.vocab else None
        recipe: Any = request.resolved
        if recipe.vocabulary.extend and not vocabulary:
            raise InputError("vocabulary.extend adds words to a vocabulary: give --init or --vocab")
        if request.reference_corpus and not request.init:
            raise InputError("--reference-corpus: shows what an initial model forgets; give --init, or leave it out")
        if recipe.gate.max_forgetting is not None and not request.reference_corpus:
            raise InputError("gate.max_forgetting: is measured on general text; give it with --reference-corpus")
        FileSystems.set_options(PipelineOptions(list(request.beam_args)))
        reference, replay = (
            find_inputs(patterns, recipe.corpus) if patterns else []
            for patterns in (request.reference_corpus, request.replay)
        )
        if named := [file.source_name for file in (*reference, *replay) if file.source_name]:
            raise InputError(f"{named[0]}=: only --corpus has sources with names; leave the name out")
        earlier = ""
        if request.reads_only_new:
            from pipeline.runs.lineage import documents_of_version

            earlier = documents_of_version(request)
        text = find_inputs(request.corpus or [_docstrings(request.run_dir)], recipe.corpus)
        # Before hours of making examples.
        check_names(sorted({file.source_name for file in text}), recipe.training.source_numbers)
        tables = inputs_dir(request.run_dir)
        (leaks,) = with_leak_table(recipe.corpus, tables).decontaminate or ("",)
        pairs = ""
        if recipe.gate.minimal_pairs:
            found = read_pairs(recipe.gate.minimal_pairs, "gate.minimal_pairs")
            pairs = write_pairs(found, tables)
        return Inputs(text, vocabulary, reference, replay, earlier, leaks, pairs)

    def parameters(self, request: RunRequest) -> dict[str, Any]:
        return {"corpus": list(request.corpus), **({"init": request.init} if request.init else {})}

    def create_pipeline(self, request: RunRequest, inputs: Inputs | None, beam_args: Sequence[str]) -> Pipeline:
        from pipeline.dags.pretrain import create_pipeline, earlier_documents, initial_source
        from pipeline.runs.corpus_checks import checked_sets

        recipe: Any = request.resolved
        found = inputs or Inputs()
        corpus = dataclasses.replace(recipe.corpus, decontaminate=(found.leaks,) if found.leaks else ())
        gate = dataclasses.replace(
            recipe.gate,
            minimal_pairs=(found.pairs,) if found.pairs else (),
            min_minimal_pairs=recipe.gate.min_minimal_pairs if found.pairs else None,
        )
        initial = initial_source(request.init, read=inputs is not None) if request.init else None
        return create_pipeline(
            dataclasses.replace(recipe, corpus=corpus, gate=gate),
            found.corpus,
            request.run_dir,
            request.pipeline_name,
            beam_args,
            found.vocabulary,
            initial,
            request.cased,
            reference=found.reference if request.reference_corpus else None,
            earlier=earlier_documents(found.earlier) if request.reads_only_new else None,
            replay=found.replay if request.replay else None,
            checked=checked_sets(found.leaks, request.init),
        )

    def summarize(self, run: Run, recipe: Recipe, run_dir: str) -> dict[str, Any]:
        from pipeline.summaries.pretrain import summarize

        return summarize(run, recipe, run_dir)

    def print_summary(self, summary: dict[str, Any], run_dir: str) -> None:
        from pipeline.summaries.pretrain import print_summary

        print_summary(summary, run_dir)

    def render(self, run: Run, summary: Mapping[str, Any], run_dir: str, baseline: Mapping[str, float] | None) -> str:
        from pipeline.report.pretrain_page import render

        return render(run, summary, run_dir, baseline)


def _vocabulary(path: str) -> InputFile:
    from components.corpus_gen.inputs import InputFile

    if not os.path.isfile(path):
        raise InputError(
            f"{path}: no such file; --vocab takes a vocab.txt (or a vocab.json, with merges.txt beside it)"
        )
    return InputFile(os.path.abspath(path), os.path.getsize(path))


def _initial_vocabulary(request: RunRequest) -> InputFile:
    """Write the vocabulary of the initial model to the run directory, to a folder named by its content."""
    from bert_keras.convert.initial_weights import initial_folder
    from bert_keras.tokenizers.vocabulary_files import vocabulary_files
    from pipeline.runs.run_dir import inputs_dir

    if request.vocab:
        raise InputError("--vocab and --init: the vocabulary is the initial model's; give one of them")
    _, tokenizer = initial_folder(str(request.init), request.cased)
    # Texts: SentencePiece's model is no vocabulary to train on with.
    contents = {name: str(content) for name, content in vocabulary_files(tokenizer).items()}
    digest = hashlib.sha256("\0".join(contents.values()).encode()).hexdigest()[:16]
    folder = os.path.join(inputs_dir(request.run_dir), f"vocab-{digest}")
    os.makedirs(folder, exist_ok=True)
    for name, content in contents.items():
        with atomic_write(os.path.join(folder, name)) as file:
            file.write(content)
    return _vocabulary(os.path.join(folder, next(iter(contents))))  # the merges are read beside it


def _docstrings(run_dir: str) -> str:
    from pipeline.examples.demo_corpus import CORPUS_BYTES, write_docstring_corpus

    typer.echo("reading the docstrings of the installed libraries")
    path = os.path.join(run_dir, "corpus", "docstrings.txt")
    write_docstring_corpus(path, CORPUS_BYTES)
    return path
