"""`bert-tfx convert`: converts a BERT or a relative, pre-trained or fine-tuned, between file formats."""

import dataclasses
import itertools
import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import Cased

# Rows of a calibration file that are read; some hundred of them are used.
_MOST_ROWS = 10_000


Format = Literal["tf1", "hf", "keras-hub", "bert-tfx", "onnx"]


def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="The folder to read; of tf1 also a checkpoint in it.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The folder to write: a new or empty one.")],
    from_: Annotated[Format, typer.Option("--from", help="Format of SRC.")],
    to: Annotated[Format, typer.Option("--to", help="Format of DST.")],
    cased: Cased = None,
    pooling: Annotated[
        Literal["none", "mean", "cls"] | None, typer.Option(help="How a text gets one vector; default: as SRC has it.")
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="Whether that vector gets length 1.")
    ] = None,
    quantize: Annotated[
        Literal["none", "int8"] | None,
        typer.Option(help="onnx: int8 multiplies 8-bit integers, and only `bert-tfx serve` and `apply` read it."),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="int8: some hundred texts like those to come, as for `apply`."),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Keep these layers, counted from 1; 0: a vector a token, without layers."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="Of a fine-tuned hf SRC: text, squad2.0, ... (`bert-tfx tasks`)."),
    ] = None,
) -> None:
    """Convert a model between file formats.

    docs/library.md has the table of formats. A fine-tuned model keeps its head in hf, bert-tfx and onnx, which is
    written, not read. The pickle in pytorch_model.bin is not run.
    """
    from bert_keras.convert.fewer_layers import with_layers
    from bert_keras.convert.formats import export, read_folder
    from bert_keras.convert.huggingface.fine_tuned import as_task
    from bert_keras.convert.tensor_files.tf_checkpoints import is_checkpoint

    if not (os.path.isdir(source) or (from_ == "tf1" and is_checkpoint(source))):
        raise InputError(f"{source}: no such folder; SRC is the folder of a model")
    if os.path.isdir(target) and os.listdir(target):
        raise InputError(f"{target}: not empty; give a new folder")
    is_onnx = to == "onnx"
    if from_ == "onnx" or (quantize and not is_onnx):
        raise InputError("onnx is written, not read, and only onnx is quantized: --to onnx, with or without --quantize")
    if (quantize == "int8") != bool(calibration):
        raise InputError("--quantize int8 and --calibration FILE, some hundred texts as a column `text`, go together")
    folder = read_folder(source, cased, from_)
    if folder.head_left_out:
        format_ = "hf" if is_onnx else to
        raise InputError(
            f"{folder.head_left_out}; fine-tune its encoder with --init {source}, or write the encoder alone, in "
            f"Python: bert_keras.export(bert_keras.from_checkpoint({source!r}), {target!r}, {format_!r})"
        )
    folder = as_task(folder, task) if task else folder
    if layers:
        try:
            numbers = [int(number) for number in layers.split(",")]
        except ValueError:
            raise InputError(f"--layers {layers}: takes numbers with commas, such as 1,3,5") from None
        folder = with_layers(folder, numbers)
    said = folder.embedding
    normalized = said.normalize if normalize is None else normalize
    embedding = dataclasses.replace(said, pooling=pooling or said.pooling, normalize=normalized)
    if normalize is not None and embedding.pooling == "none":
        raise InputError(f"{source}: does not say how a text gets one vector; add --pooling mean or cls")
    is_contrastive = folder.task is not None and folder.task.contrastive  # without weights of a head
    if to in ("tf1", "keras-hub") or (is_contrastive and not is_onnx):
        folder = folder.without_task()
    folder = dataclasses.replace(folder, embedding=embedding)
    if is_onnx:
        try:
            from bert_keras.convert.onnx.answers import input_names
            from bert_keras.convert.onnx.folder import write_onnx
        except ImportError as error:
            raise InputError(f"--to onnx needs the packages of the extra `onnx` ({error}): make setup") from error
        rows = ("int8", _rows(calibration, input_names(folder.task))) if calibration else ("none",)
        written = write_onnx(folder, target, *rows)
    else:
        written = export(folder, target, to)
    # Parts without weights are not written as ONNX.
    untrained = [] if is_onnx else [*folder.untrained, *written.untrained]
    notes = [f"NOT in {source}, untrained: {', '.join(untrained)}"] if untrained else []
    if folder.generator:
        left_out = f"the generator in {source} is left out"
        notes += [left_out if to in ("keras-hub", "onnx") else "with its generator"]
    if embedding.pooling != "none":
        length = ", normalised" if embedding.normalize else ""
        has_vectors = to in ("hf", "bert-tfx", "onnx")
        notes += [f"one vector a text: {embedding.pooling}{length}" if has_vectors else f"{to} has no sentence vectors"]
    config = folder.config
    shape = f"{config.num_hidden_layers} layers, {config.hidden_size} wide, {config.vocab_size:,} tokens"
    typer.echo("; ".join([f"{target}: {shape}", *notes, *folder.remarks, *written.remarks]))


def _rows(path: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The first rows of a file, with the inputs of these names."""
    from components.corpus_gen.inputs import list_files
    from pipeline.apply.rows import plan, read_rows

    rows = list[dict[str, Any]]()
    units = itertools.chain.from_iterable(plan(list_files([path], "--calibration")))
    for number, values in itertools.islice((row for unit in units for row in read_rows(unit, names)), _MOST_ROWS):
        if isinstance(values, dict) and all(isinstance(values.get(name), str | list) for name in names):
            rows.append({name: values[name] for name in names})
        elif values is not None:
            reason = f"has no {' and '.join(names)}" if isinstance(values, dict) else values
            raise InputError(f"{path}, row {number}: {reason}; correct it")
    return rows
