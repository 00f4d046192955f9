"""Resolves a request once: the recipe with its settings, the files with their fingerprints, the initial model."""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence

import typer

from bert_keras.convert.formats import format_of
from bert_keras.data.mixture import check_names
from bert_keras.errors import InputError
from bert_keras.files import atomic_write_anywhere
from bert_keras.notices import notify, recording
from bert_keras.tasks.settings import TASK_SPEC_FILE
from bert_keras.tokenizers.vocabulary_files import VOCABULARY_SPEC_FILE, format_fields, vocabulary_files
from components.corpus_gen.filters.leaks import LeakTable
from components.corpus_gen.inputs import NO_FILES, InputFile, InputList, check_sources, find_inputs, fingerprint
from components.evaluator.minimal_pairs import read_pairs, write_pairs
from components.io.shards import read_json
from components.task_example_gen.evaluation_sets import content_sha256, with_leak_table
from components.task_example_gen.split_files import EVAL, TRAIN, find_splits, input_files
from components.task_example_gen.task_files import files_below
from pipeline.examples.demo_corpus import CORPUS_BYTES, write_docstring_corpus
from pipeline.recipes.finetuning import FineTuneRecipe, finetuning
from pipeline.recipes.initial_model import with_initial_model
from pipeline.recipes.pretraining import RECIPES
from pipeline.recipes.settings import Recipe, with_settings
from pipeline.runs.request import LATEST, RunRequest
from pipeline.runs.run_dir import inputs_dir, notices_file, serving_dir
from pipeline.runs.served_versions import pushed_versions, served_version
from pipeline.runs.spec import Checked, InitialFiles, RunInputs, RunSpec

# Beginnings of the names of licence files, in small letters; any extension may follow.
_LICENCES = ("license", "licence", "copying")


def resolve(request: RunRequest, run_id: str) -> RunSpec:
    """Resolve a run that begins now; its notices are recorded. InputError: an unusable recipe, setting or path."""
    spec = without_inputs(with_version(request))
    request, recipe = spec.request, spec.recipe
    _check_kind(spec)
    from apache_beam.io.filesystems import FileSystems  # here, so that a wrong setting is refused at once
    from apache_beam.options.pipeline_options import PipelineOptions

    with recording(notices_file(request.run_dir, request.run_name(run_id))):
        FileSystems.set_options(PipelineOptions(list(request.beam_args)))
        if isinstance(recipe, Recipe):
            return dataclasses.replace(spec, inputs=_pretraining_inputs(spec, recipe))
        return dataclasses.replace(spec, inputs=_fine_tuning_inputs(request, recipe))


def _check_kind(spec: RunSpec) -> None:
    """Refuse a run directory that serves models of another task: its clients would get other answers without a word."""
    run_dir, served = spec.request.run_dir, "pre-training"
    kind = spec.recipe.name if isinstance(spec.recipe, FineTuneRecipe) else served
    if versions := pushed_versions(serving_dir(run_dir)):
        with contextlib.suppress(FileNotFoundError):  # only models of tasks have the file
            served = read_json(os.path.join(serving_dir(run_dir), str(versions[-1]), TASK_SPEC_FILE))["task"]
        if served != kind:
            raise InputError(f"{run_dir}: serves models of {served}; give {kind} another --run-dir (Kubeflow: --name)")


def without_inputs(request: RunRequest) -> RunSpec:
    """The spec of a request whose files are on another machine: nothing is read but the folder of --init, if it exists.

    InputError: no such recipe or task, or an invalid setting.
    """
    from_vocabulary = request.recipe in RECIPES and request.vocab and not (request.init or request.teacher)
    if from_vocabulary and request.cased is not None:
        stated = f"vocabulary.lower_case={'false' if request.cased else 'true'}"
        request = dataclasses.replace(request, settings=(stated, *request.settings))
    if request.recipe not in RECIPES:
        recipe: Recipe | FineTuneRecipe = with_settings(finetuning(request.recipe), request.settings)
    elif (source := request.init or request.teacher) and not os.path.isdir(source):
        recipe = with_settings(RECIPES[request.recipe](), request.settings)
    else:
        with _naming_a_version(source):
            recipe = with_initial_model(
                RECIPES[request.recipe](), request.init, request.cased, request.settings, request.teacher
            )
    return RunSpec(dataclasses.replace(request, name=request.name or f"bert-{recipe.workflow}"), recipe)


def with_version(request: RunRequest) -> RunRequest:
    """The request with `--init latest` replaced by the version that the run directory serves now."""
    if request.init != LATEST:
        return request
    if (version := served_version(serving_dir(request.run_dir))) is None:
        raise InputError(f"--init {LATEST}: {request.run_dir} has no pushed version; give a model for the first run")
    init = os.path.join(serving_dir(request.run_dir), str(version))
    return dataclasses.replace(request, init=init, latest=str(version))


@contextlib.contextmanager
def _naming_a_version(init: str | None) -> Iterator[None]:
    """Add to an error which version of a folder of versions could be the initial model."""
    try:
        yield
    except InputError:
        for folder in (serving_dir(init), init) if init else ():
            if (version := served_version(folder)) is not None:
                remedy = f"give --init {os.path.join(folder, str(version))}"
                raise InputError(f"--init {init}: is a folder of several versions, not a model; {remedy}") from None
        raise


def _pretraining_inputs(spec: RunSpec, recipe: Recipe) -> RunInputs:
    """Find the files; without a corpus write one from the docstrings of the installed libraries."""
    request, folder = spec.request, inputs_dir(spec.request.run_dir)
    teacher = _teacher_files(request, recipe)
    if source := request.init or request.teacher:
        vocabulary: InputFile | None = _initial_vocabulary(request, source)
    else:
        vocabulary = _vocabulary(request.vocab) if request.vocab else None
    if recipe.vocabulary.extend and not vocabulary:
        raise InputError("vocabulary.extend adds words to a vocabulary: give --init or --vocab")
    if request.reference_corpus and not request.init:
        raise InputError("--reference-corpus: shows what an initial model forgets; give --init, or leave it out")
    if recipe.gate.max_forgetting is not None and not request.reference_corpus:
        raise InputError("gate.max_forgetting: is measured on general text; give it with --reference-corpus")
    reference, replay = (
        find_inputs(patterns, recipe.corpus) if patterns else []
        for patterns in (request.reference_corpus, request.replay)
    )
    if named := [file.source_name for file in (*reference, *replay) if file.source_name]:
        raise InputError(f"{named[0]}=: only --corpus has sources with names; leave the name out")
    earlier = ""
    if spec.reads_only_new:
        from pipeline.runs.lineage import documents_of_version  # ML Metadata

        earlier = documents_of_version(request)
    docstrings = os.path.join(request.run_dir, "corpus", "docstrings.txt")
    if not request.corpus:
        typer.echo("reading the docstrings of the installed libraries")
        write_docstring_corpus(docstrings, CORPUS_BYTES)
    corpus = find_inputs(request.corpus or [docstrings], recipe.corpus)
    # Before hours of making examples.
    check_names(sorted({file.source_name for file in corpus}), recipe.training.source_numbers)
    check_sources(corpus, "corpus.source_power", recipe.corpus.source_power < 1.0)
    limit = recipe.gate.max_source_perplexity_increase
    check_sources(corpus, "gate.max_source_perplexity_increase", limit is not None)
    (leaks,) = with_leak_table(recipe.corpus, folder).decontaminate or ("",)
    pairs = ""
    if recipe.gate.minimal_pairs:
        pairs = write_pairs(read_pairs(recipe.gate.minimal_pairs, "gate.minimal_pairs"), folder)
    return RunInputs(
        corpus=InputList.write(corpus, folder),
        reference=InputList.write(reference, folder) if reference else NO_FILES,
        replay=InputList.write(replay, folder) if replay else NO_FILES,
        vocabulary=vocabulary,
        earlier=earlier,
        leaks=leaks,
        checked=checked_sets(leaks, request.init),
        pairs=pairs,
        initial_model=_initial_files(request.init) if request.init else None,
        teacher=teacher,
    )


def _fine_tuning_inputs(request: RunRequest, recipe: FineTuneRecipe) -> RunInputs:
    if request.init is None:
        raise InputError(f"{request.recipe}: give the initial checkpoint, --init DIR")
    with _naming_a_version(request.init):
        format_of(request.init)
    teacher = _teacher_files(request, recipe)
    given = {"train": request.train, "eval": request.held_out, "test": request.test}
    rows = find_splits(recipe.row, request.data, {**given, "unlabelled": request.unlabelled})
    if line := leak_warning(request.init, rows):
        notify(line)
    return RunInputs(
        rows=rows,
        rows_fingerprint=fingerprint(input_files(rows)),
        initial_model=_initial_files(request.init),
        teacher=teacher,
    )


def _teacher_files(request: RunRequest, recipe: Recipe | FineTuneRecipe) -> InitialFiles | None:
    if not request.teacher:
        if request.unlabelled or recipe.gate.min_share_of_teacher is not None:
            name = "--unlabelled" if request.unlabelled else "gate.min_share_of_teacher"
            raise InputError(f"{name}: needs a teacher; give its folder with --teacher, or leave it out")
        return None
    with _naming_a_version(request.teacher):
        format_of(request.teacher)
    if isinstance(recipe, Recipe):  # before hours of making examples
        from bert_keras.convert.initial_weights import initial_folder, read_teacher

        source, objective = request.init or request.teacher, recipe.pretraining_objective
        _, tokenizer = initial_folder(source, request.cased)
        longest = recipe.example_sets[-1].max_seq_length
        model = read_teacher(request.teacher, objective, recipe.model, longest, tokenizer, source)
        recipe.distillation.heads(recipe.model, model.backbone.config)
        if recipe.vocabulary.extend:
            raise InputError("vocabulary.extend: a teacher does not know new words; remove the setting, or --teacher")
    return _initial_files(request.teacher)


def _initial_files(init: str) -> InitialFiles:
    digest, names = hashlib.sha256(), []
    for file in files_below(init):
        names.append(os.path.relpath(file.path, init))
        with open(file.path, "rb") as content:
            digest.update(f"{names[-1]}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\0".encode())
    licences = (name for name in names if os.path.basename(name).lower().startswith(_LICENCES))
    return InitialFiles(os.path.abspath(init), digest.hexdigest(), next(licences, ""))


def _vocabulary(path: str) -> InputFile:
    if not os.path.isfile(path):
        raise InputError(
            f"{path}: no such file; --vocab takes a vocab.txt (or a vocab.json, with merges.txt beside it)"
        )
    return InputFile(os.path.abspath(path), os.path.getsize(path))


def _initial_vocabulary(request: RunRequest, init: str) -> InputFile:
    """Write the vocabulary of the initial model, or the teacher, to a folder in the run directory, named by content."""
    if request.vocab:
        option, owner = ("--init", "initial model") if request.init else ("--teacher", "teacher")
        raise InputError(f"--vocab and {option}: the vocabulary is the {owner}'s; give one of them")
    from bert_keras.convert.initial_weights import initial_folder

    _, tokenizer = initial_folder(init, request.cased)
    contents = dict(vocabulary_files(tokenizer))
    if further := format_fields(tokenizer):
        contents[VOCABULARY_SPEC_FILE] = json.dumps(further) + "\n"
    encoded = (content if isinstance(content, bytes) else content.encode() for content in contents.values())
    digest = hashlib.sha256(b"\0".join(encoded)).hexdigest()[:16]
    folder = os.path.join(inputs_dir(request.run_dir), f"vocab-{digest}")
    for name, content in contents.items():
        atomic_write_anywhere(os.path.join(folder, name), content)
    return _vocabulary(os.path.join(folder, next(iter(contents))))  # the merges are read beside it


def checked_sets(table: str, init: str | None) -> Checked:
    """The sets that neither the corpus of a run nor that of its initial model has texts of; none without a `table`."""
    if not table:
        return []
    sets = [{name: checked[name] for name in ("name", "sha256", "unread")} for checked in LeakTable.read(table).sets]
    if init is None:
        return sets
    before = _recorded_sets(init)
    earlier = {checked["sha256"] for checked in before or ()}
    return None if before is None else [checked for checked in sets if checked["sha256"] in earlier]


def leak_warning(init: str, splits: Mapping[str, Sequence[str]]) -> str:
    """A line on the held-out files whose texts the corpus of an initial model may have; "" if there is nothing to say.

    Nothing is said of models that this project did not push: their corpora have no record. Without a file of eval rows,
    some of the training rows are held out.
    """
    if not os.path.exists(_lineage_file(init)):
        return ""
    checked = _recorded_sets(init)
    unread = {entry["sha256"]: entry["unread"] for entry in checked or ()}
    paths = [path for split in splits if split != TRAIN or EVAL not in splits for path in splits[split]]
    rows = {path: unread.get(content_sha256(path)) for path in paths}
    unchecked = ", ".join(
        path if count is None else f"{count:,} unreadable row(s) of {path}"
        for path, count in rows.items()
        if count != 0
    )
    if not unchecked:
        return ""
    if checked is None:
        return f"--init {init}: unknown whether its corpus has texts of {unchecked} (docs/corpus.md)"
    return (
        f"--init {init}: its corpus was not checked for texts of {unchecked}, so scores may be too high; "
        "pre-train with --set corpus.decontaminate=FILES (docs/corpus.md)"
    )


def _lineage_file(model: str) -> str:
    from bert_keras.saved_model.saved_model_files import EXTRA_FOLDER
    from components.pusher.lineage import LINEAGE_FILE  # TFX

    return os.path.join(model, EXTRA_FOLDER, LINEAGE_FILE)


def _recorded_sets(model: str) -> Checked:
    """The sets that the corpus of a pushed model was checked against; None without a record."""
    try:
        return read_json(_lineage_file(model))["decontaminated"]
    except (OSError, ValueError, KeyError, TypeError):  # not pushed, or damaged
        return None
