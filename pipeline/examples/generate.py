"""Text -> documents -> vocabulary -> examples, on any Beam runner, without TFX.

`bert-tfx examples` runs the transforms of CorpusGen, VocabGen and PretrainExampleGen, without TFX, ML Metadata or
TensorFlow. The output folder has the content of PretrainExampleGen's artifact, so the same readers read it:

    Split-train/ Split-eval/     TFRecord shards
    vocab.txt vocab_spec.json    the vocabulary
    corpus.json corpus_card.md   counts of documents read, dropped and kept, for programs and for people
    dropped/                     dropped documents, with corpus.keep_dropped
    example_shards.json          pass, records, bytes and checksum of each shard
    example_spec.json            settings and counts of the examples; written last, so it marks a complete folder
    work.part/                   of a running or killed command: documents-KEY, examples-KEY
"""

import contextlib
import dataclasses
import glob
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, SOURCE_RATES
from bert_keras.errors import InputError
from bert_keras.files import locked
from bert_keras.notices import tell
from components.code_version import code_fingerprint
from components.corpus_gen.inputs import check_sources, find_inputs, fingerprint
from components.corpus_gen.readers import in_threads, read_units
from components.corpus_gen.record.card import CARD_FILE, COUNTS_FILE
from components.corpus_gen.record.tally import DROPPED
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.sorted_runs import SPLITS
from components.corpus_gen.transforms import generate_documents, remove_intermediate
from components.io.shards import (
    make_folder,
    matching,
    open_file,
    read_json,
    remove_folder,
    rename,
    shard_paths,
    whole_file,
)
from components.pretrain_example_gen.settings import TRAIN, ExampleSettings
from components.pretrain_example_gen.transforms import generate_examples
from components.task_example_gen.evaluation_sets import with_leak_table
from components.vocab_gen.files import MERGES_FILE, VOCABULARY_SPEC_FILE, given_tokenizer, import_vocabulary, read_given
from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import MakeVocabulary
from pipeline.examples.beam_jobs import beam_options, beam_pipeline, peak_memory_bytes, progress

_MOVED_AT_A_TIME = 100


@dataclasses.dataclass(frozen=True)
class ExampleJob:
    """Settings of `bert-tfx examples`: text -> documents -> vocabulary -> examples."""

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
    """Make the examples of a corpus in `output_dir`; return the figures that the command prints.

    The name of a stage's work folder is a hash of all that its result depends on. So stages finished by an earlier
    command are reused, and an orphaned job writes the same content or writes elsewhere. Without `vocab_file` a
    vocabulary of at most `vocab_size` tokens is learned.

    InputError: no text, an unusable vocabulary, bad records, a folder that has examples or is in use.
    """
    output_dir = output_dir.rstrip("/")
    # Beam sets these options when a pipeline is made, but file systems are used before the first one.
    FileSystems.set_options(beam_options(beam_args))
    work_dir = f"{output_dir}/work.part"
    _refuse_examples(output_dir)
    if os.path.isdir(output_dir) and os.listdir(output_dir) and not os.path.isdir(work_dir):
        raise InputError(f"{output_dir}: has other files; give a new or empty --output")
    if job.vocabulary.extend and not vocab_file:
        raise InputError("vocabulary.extend adds words to a vocabulary: give --vocab")
    if vocab_file:
        read_given(vocab_file, job.vocabulary)  # before hours of reading text
    inputs = find_inputs(patterns, job.corpus)
    check_sources(inputs, "corpus.source_power", job.corpus.source_power < 1.0)
    with locked(work_dir, "--output"):
        _refuse_examples(output_dir)
        seconds: dict[str, float] = {}

        def run(name: str, folder: str, done: str, expand: Callable[[beam.Pipeline], None]) -> None:
            if FileSystems.exists(f"{folder}/{done}"):
                tell(f"{name}: finished by an earlier command")
                return
            started = time.monotonic()
            with progress(name, folder), beam_pipeline(beam_args, name) as pipeline:
                expand(pipeline)
            seconds[name] = round(time.monotonic() - started, 2)

        try:
            settings = with_leak_table(job.corpus, work_dir)
            corpus = _key(fingerprint(inputs), settings, code_fingerprint("components.corpus_gen.transforms"))
            documents_dir = f"{work_dir}/documents-{corpus}"
            vocabulary = _content(vocab_file) if vocab_file else vocab_size
            code = code_fingerprint("components.vocab_gen.transforms", "components.pretrain_example_gen.transforms")
            made_dir = f"{work_dir}/examples-{_key(corpus, vocabulary, job.vocabulary, job.examples, code)}"
            units = read_units(inputs, job.corpus)
            run(
                "documents",
                documents_dir,
                COUNTS_FILE,
                lambda pipeline: generate_documents(pipeline, units, settings, documents_dir),
            )
            remove_intermediate(documents_dir)
            for name in (COUNTS_FILE, CARD_FILE):
                _copy(f"{documents_dir}/{name}", f"{made_dir}/{name}")
            if vocab_file and not job.vocabulary.extend:
                import_vocabulary(vocab_file, made_dir, job.vocabulary)
            else:
                initial = given_tokenizer(vocab_file, job.vocabulary) if vocab_file else None
                shards = shard_paths(f"{documents_dir}/Split-{TRAIN}")
                run(
                    "vocabulary",
                    made_dir,
                    VOCABULARY_SPEC_FILE,
                    lambda pipeline: (
                        pipeline
                        | beam.Create(shards, reshuffle=False)
                        | MakeVocabulary(
                            *(made_dir, vocab_size, job.vocabulary),
                            exact=False,
                            initial=initial,
                            rates=read_json(f"{documents_dir}/{COUNTS_FILE}").get(SOURCE_RATES),
                        )
                    ),
                )
            run(
                "examples",
                made_dir,
                EXAMPLE_SPEC_FILE,
                lambda pipeline: generate_examples(pipeline, documents_dir, made_dir, job.examples, made_dir),
            )
            remove_folder(f"{output_dir}/{DROPPED}")
            for file in matching(f"{glob.escape(documents_dir)}/{DROPPED}/*"):
                _copy(file.path, f"{output_dir}/{DROPPED}/{file.path.rpartition('/')[2]}")
            _publish(made_dir, work_dir, output_dir)
        except BaseException as error:
            if isinstance(error, InputError) and not matching(f"{glob.escape(work_dir)}/documents-*/{COUNTS_FILE}"):
                remove_folder(work_dir)
                raise
            tell(f"finished stages are kept in {work_dir}: the same or the corrected command resumes from there")
            raise
        remove_folder(work_dir)
    return _figures(output_dir, seconds)


def _refuse_examples(output_dir: str) -> None:
    try:
        exists = FileSystems.exists(f"{output_dir}/{EXAMPLE_SPEC_FILE}")
    except (OSError, ValueError) as error:  # no such store, or it is unreachable
        raise InputError(f"{output_dir}: cannot be reached ({str(error).splitlines()[0]})") from error
    if exists:
        raise InputError(f"{output_dir}: contains examples; remove it, or give another --output")


def _publish(made_dir: str, work_dir: str, output_dir: str) -> None:
    """Move finished examples to the output folder, the spec last; if killed in between, they are made again."""
    for split in SPLITS:
        remove_folder(f"{output_dir}/Split-{split}")
    spec = f"{work_dir}/{EXAMPLE_SPEC_FILE}"
    # From here on the work folder is incomplete, so its spec must not mark it as complete.
    rename([f"{made_dir}/{EXAMPLE_SPEC_FILE}"], [spec])
    inner = [f"Split-{split}" for split in SPLITS]
    moves = []
    for folder in ("", *(f"/{name}" for name in inner)):
        make_folder(f"{output_dir}{folder}")
        names = [file.path.rpartition("/")[2] for file in matching(f"{glob.escape(made_dir + folder)}/*")]
        moves += [f"{folder}/{name}" for name in names if name not in inner and not name.endswith(".part")]
    parts = [moves[start : start + _MOVED_AT_A_TIME] for start in range(0, len(moves), _MOVED_AT_A_TIME)]
    for _ in in_threads(
        lambda part: rename([made_dir + name for name in part], [output_dir + name for name in part]), parts
    ):
        pass
    rename([spec], [f"{output_dir}/{EXAMPLE_SPEC_FILE}"])


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, default=dataclasses.asdict, sort_keys=True).encode()).hexdigest()[:16]


def _content(vocab_file: str) -> str:
    """A hash of a vocabulary and its merges; missing files are left to the reader, which reports them."""
    digest = hashlib.sha256()
    for path in (vocab_file, f"{vocab_file.rpartition('/')[0] or '.'}/{MERGES_FILE}"):
        with contextlib.suppress(OSError), open_file(path) as file:
            digest.update(file.read())
    return digest.hexdigest()


def _copy(source: str, target: str) -> None:
    with open_file(source) as file, whole_file(target, os.path.dirname(target)) as copy:
        copy.write(file.read())


def _figures(output_dir: str, seconds: dict[str, float]) -> dict:
    by_split = read_json(f"{output_dir}/{EXAMPLE_SPEC_FILE}")["counts"]
    counts = {name: sum(split[name] for split in by_split.values()) for name in by_split[TRAIN]}

    def share(part: str, whole: str) -> float | None:
        return round(counts[part] / counts[whole], 6) if counts.get(whole) else None

    return {
        "output": output_dir,
        "documents": counts["documents"],
        "corpus": read_json(f"{output_dir}/{COUNTS_FILE}"),
        "tokens": counts["tokens"],
        "instances": counts["instances"],
        "fill": share("real_tokens", "slots"),
        "fill_without_packing": share("real_tokens", "unpacked_slots"),
        "random_next": share("random_next", "sequences"),
        "masked": share("masked", "real_tokens"),
        "unknown_tokens": share("unknown_tokens", "tokens"),
        "seconds_by_stage": seconds,
        "peak_memory_bytes": peak_memory_bytes(),
    }
