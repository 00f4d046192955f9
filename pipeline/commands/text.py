"""Commands on plain text: `bert-tfx examples` and `bert-tfx tokenize`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import Settings, Vocab


def examples(
    context: typer.Context,
    corpus: Annotated[
        list[str],
        typer.Option(
            "--corpus",
            metavar="GLOB",
            help="Text: a file, a folder or a quoted glob; NAME=GLOB names a source; repeatable.",
        ),
    ],
    output: Annotated[str, typer.Option(metavar="DIR", help="Output folder: new or empty.")],
    vocab: Vocab = None,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[GLOB]...", help="More text, for globs that the shell expands.")
    ] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Maximum size of a learned vocabulary (30522).")] = None,
    cased: Annotated[bool, typer.Option("--cased", help="Keep case and accents.")] = False,
    max_seq_length: Annotated[int | None, typer.Option(help="Tokens per example (128).")] = None,
    dupe_factor: Annotated[int | None, typer.Option(help="Passes over the documents, each masked again (5).")] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="mlm_nsp, mlm_sop, segment_pair, full_sentences, doc_sentences, single_sequence or left_to_right "
            "(mlm_nsp)."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed (12345).")] = None,
    segments: Annotated[
        str | None, typer.Option(help="`sentences`: split the text into sentences; `lines`: one segment per line.")
    ] = None,
    text_field: Annotated[str | None, typer.Option(help="JSON key, column or feature of the text.")] = None,
    settings: Settings = None,
) -> None:
    """Make pre-training examples from text, without TFX and TensorFlow.

    Words after `--` go to Beam (docs/scaling.md). The last line of standard output is JSON.
    """
    import json

    from bert_keras.models.config import BertConfig
    from pipeline.examples.generate import ExampleJob, generate
    from pipeline.examples.worker_restart import restart_if_a_worker_dies
    from pipeline.recipes.settings import with_settings

    options: dict[str, object] = {
        "examples.max_seq_length": max_seq_length,
        "examples.dupe_factor": dupe_factor,
        "examples.objective": objective,
        "examples.seed": seed,
        "corpus.segments": segments,
        "corpus.text_field": text_field,
    }
    if cased:
        options["vocabulary.lower_case"] = "false"
    overrides = [f"{key}={value}" for key, value in options.items() if value is not None]
    job = with_settings(ExampleJob(), [*overrides, *(settings or [])])

    def tell(line: str) -> None:
        typer.echo(f"bert-tfx: {line}", err=True)

    with restart_if_a_worker_dies(tell):
        figures = generate(
            [*corpus, *(more or [])],
            output,
            job,
            vocab_file=vocab,
            vocab_size=vocab_size or BertConfig.vocab_size,
            beam_args=context.obj or [],
            tell=tell,
        )
    typer.echo(json.dumps(figures))


def tokenize(
    vocab: Annotated[str, typer.Option(metavar="FILE", help="A vocab.txt, one token per line.")],
    cased: Annotated[bool, typer.Option("--cased", help="Keep case and accents, as the vocabulary does.")] = False,
    keep_accents: Annotated[
        bool, typer.Option("--keep-accents", help="Keep accents of lower-cased text (vocabulary.strip_accents=false).")
    ] = False,
    keep_ideographs: Annotated[
        bool,
        typer.Option("--keep-ideographs", help="Do not split ideographs (vocabulary.tokenize_chinese_chars=false)."),
    ] = False,
) -> None:
    """Print the token ids of each line of standard input.

    As google-research/bert: no special tokens are added, "[MASK]" is text. Bytes that are not UTF-8 are dropped.
    """
    from bert_keras.tokenizers.wordpiece import BertTokenizer, tokenize_lines

    try:
        tokenizer = BertTokenizer.from_file(
            vocab,
            lower_case=not cased,
            strip_accents=False if keep_accents else None,
            tokenize_chinese_chars=not keep_ideographs,
        )
    except OSError as error:
        raise InputError(f"{vocab}: cannot be read ({error.strerror}); --vocab takes a vocab.txt") from error
    except ValueError as error:
        raise InputError(str(error)) from error
    try:
        tokenize_lines(tokenizer, sys.stdin.buffer, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
