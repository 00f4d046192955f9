"""Text -> documents -> vocabulary -> examples, on any Beam runner, without the rest of the pipeline.

`bert-tfx examples` runs the transforms of CorpusGen, VocabGen and PretrainExampleGen, without TFX, ML Metadata or
TensorFlow. What lies in the output folder is what PretrainExampleGen's artifact holds, so the same readers take it:

    Split-train/ Split-eval/     TFRecord shards
    vocab.txt vocab_spec.json    the vocabulary that made them
    corpus.json                  what was read, dropped and kept of the corpus
    example_spec.json            what the examples are, and counts; written last: where it is, all is
    work.part/                   documents, while it runs
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import resource
import time
from collections.abc import Callable, Iterator, Sequence

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from bert_keras.errors import InputError
from bert_keras.features import EXAMPLE_SPEC_FILE
from components.corpus_gen.inputs import find_inputs
from components.corpus_gen.readers import read_units
from components.corpus_gen.runs import SPLITS
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.transforms import COUNTS_FILE, generate_documents, remove_intermediate
from components.pretrain_example_gen.generate import generate_examples
from components.pretrain_example_gen.settings import TRAIN, ExampleSettings
from components.shards import open_file, remove_folders, remove_temporary, shard_paths, whole_file
from components.vocab_gen.files import bring_vocabulary
from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import MakeVocabulary
from pipeline.progress import StageProgress

# Named, because Beam's default first tries to download a runner of another language.
BEAM_PIPELINE_ARGS = ("--runner=FnApiRunner",)


@dataclasses.dataclass(frozen=True)
class ExampleJob:
    """What `bert-tfx examples` makes of a corpus.

    Attributes:
        corpus: text -> documents.
        vocabulary: documents -> vocabulary.
        examples: documents and vocabulary -> examples.
    """

    corpus: CorpusSettings = dataclasses.field(default_factory=CorpusSettings)
    vocabulary: VocabularySettings = dataclasses.field(default_factory=VocabularySettings)
    examples: ExampleSettings = dataclasses.field(default_factory=ExampleSettings)


def generate(
    patterns: Sequence[str],
    output_dir: str,
    job: ExampleJob,
    *,
    vocab_file: str | None,
    vocab_size: int,
    beam_args: Sequence[str],
) -> dict:
    """Makes the examples of a corpus in `output_dir`; returns the figures that the command prints.

    Args:
        patterns: files, folders or globs of text.
        vocab_file: the vocabulary to use; None: one of at most `vocab_size` tokens is learned.
        beam_args: runner and workers, as Beam takes them.

    Raises:
        InputError: no text, a vocabulary that cannot be used, a folder that holds examples, or bad records.
    """
    output_dir = output_dir.rstrip("/")
    _claim(output_dir)
    inputs = find_inputs(patterns, job.corpus)
    work_dir = f"{output_dir}/work.part"
    documents_dir = f"{work_dir}/documents"
    seconds: dict[str, float] = {}

    def run(name: str, folder: str, expand: Callable[[beam.Pipeline], None]) -> None:
        started = time.monotonic()
        with StageProgress(name, folder), _input_errors(), _beam_pipeline(beam_args) as pipeline:
            expand(pipeline)
        seconds[name] = round(time.monotonic() - started, 2)

    try:
        units = read_units(inputs, job.corpus)
        run(
            "documents",
            documents_dir,
            lambda pipeline: generate_documents(pipeline, units, job.corpus, documents_dir),
        )
        remove_intermediate(documents_dir)
        _copy(f"{documents_dir}/{COUNTS_FILE}", f"{output_dir}/{COUNTS_FILE}")
        if vocab_file is None:
            shards = shard_paths(f"{documents_dir}/Split-{TRAIN}")
            run(
                "vocabulary",
                output_dir,
                lambda pipeline: (
                    pipeline
                    | beam.Create(shards, reshuffle=False)
                    | MakeVocabulary(output_dir, vocab_size, job.vocabulary, exact=False)
                ),
            )
        else:
            bring_vocabulary(vocab_file, output_dir, job.vocabulary)
        run(
            "examples",
            output_dir,
            lambda pipeline: generate_examples(pipeline, documents_dir, output_dir, job.examples, output_dir),
        )
        remove_temporary(output_dir)
    finally:
        remove_folders(work_dir)
    return _figures(output_dir, seconds)


def _claim(output_dir: str) -> None:
    """Refuses a folder that holds examples; removes what a killed run has left in it."""
    if FileSystems.exists(f"{output_dir}/{EXAMPLE_SPEC_FILE}"):
        raise InputError(f"{output_dir}: holds examples already; remove it, or give another --output")
    for split in SPLITS:
        remove_folders(f"{output_dir}/Split-{split}")
    remove_temporary(output_dir)
    remove_folders(f"{output_dir}/work.part")


@contextlib.contextmanager
def _beam_pipeline(beam_args: Sequence[str]) -> Iterator[beam.Pipeline]:
    """A pipeline that runs at the end of the block."""
    with beam.Pipeline(options=PipelineOptions([*BEAM_PIPELINE_ARGS, *beam_args])) as pipeline:
        yield pipeline


@contextlib.contextmanager
def _input_errors() -> Iterator[None]:
    """An `InputError` in a worker process reaches this one as text; it is one again."""
    try:
        yield
    except Exception as error:  # each runner has its own
        if found := re.findall(rf"{InputError.__module__}\.InputError: (.*)", str(error)):
            raise InputError(found[-1]) from error
        raise


def _copy(source: str, target: str) -> None:
    with open_file(source) as file, whole_file(target, os.path.dirname(target)) as copy:
        copy.write(file.read())


def _figures(output_dir: str, seconds: dict[str, float]) -> dict:
    """What the command prints: counts of both splits together, shares, seconds and memory."""
    with open_file(f"{output_dir}/{EXAMPLE_SPEC_FILE}") as file:
        by_split = json.load(file)["counts"]
    with open_file(f"{output_dir}/{COUNTS_FILE}") as file:
        corpus = json.load(file)
    counts = {name: sum(of[name] for of in by_split.values()) for name in by_split[TRAIN]}

    def share(part: str, whole: str) -> float | None:
        return round(counts[part] / counts[whole], 6) if counts.get(whole) else None

    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "output": output_dir,
        "documents": counts["documents"],
        "corpus": corpus,
        "tokens": counts["tokens"],
        "instances": counts["instances"],
        "fill": share("real_tokens", "slots"),
        "fill_without_packing": share("real_tokens", "unpacked_slots"),
        "random_next": share("random_next", "sequences"),
        "masked": share("masked", "real_tokens"),
        "unknown_tokens": share("unknown_tokens", "tokens"),
        "seconds_by_stage": seconds,
        # Linux counts kilobytes. Of this process or its largest worker, whichever was larger.
        "peak_memory_bytes": peak * 1024,
    }
