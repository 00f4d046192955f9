"""Commands on plain text: `bert-tfx examples` and `bert-tfx tokenize`."""

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
        typer.Option("--corpus", metavar="GLOB", help="Text: file, folder or quoted glob; NAME=GLOB names a source."),
    ],
    output: Annotated[str, typer.Option(metavar="DIR", help="Output folder: new or empty.")],
    vocab: Vocab = None,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[GLOB]...", help="More text, for globs that the shell expands.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="Begin with a recipe's corpus, vocabulary and examples.")
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="Maximum size of a learned vocabulary (30522, or the recipe's).")
    ] = None,
    settings: Settings = None,
    show: Annotated[int, typer.Option(min=0, help="Print this many examples of each split, with the answers.")] = 0,
) -> None:
    """Make pre-training examples from text, without TFX and TensorFlow.

    Words after `--` go to Beam (docs/scaling.md). The last line of standard output is JSON.
    """
    import json

    from bert_keras.models.config import BertConfig
    from pipeline.examples.beam_jobs import restart_if_a_worker_dies
    from pipeline.examples.generate import ExampleJob, generate
    from pipeline.examples.show import examples_as_text
    from pipeline.recipes.pretraining import recipe_of
    from pipeline.recipes.settings import with_settings

    job, size = ExampleJob(), BertConfig.vocab_size
    if recipe:
        given = recipe_of(recipe)
        job, size = ExampleJob(given.corpus, given.vocabulary, given.examples), given.model.vocab_size
    job = with_settings(job, settings or [])
    with restart_if_a_worker_dies():
        figures = generate(
            [*corpus, *(more or [])],
            output,
            job,
            vocab_file=vocab,
            vocab_size=vocab_size or size,
            beam_args=context.obj or [],
        )
    for line in examples_as_text(output, show) if show else ():
        typer.echo(line)
    typer.echo(json.dumps(figures))


def tokenize(
    vocab: Annotated[str, typer.Option(metavar="FILE", help="A vocab.txt, one token per line.")],
    cased: Annotated[bool, typer.Option("--cased", help="Keep case and accents, as the vocabulary does.")] = False,
) -> None:
    """Print the token ids of each line of standard input.

    As google-research/bert: no special tokens are added, "[MASK]" is text. Bytes that are not UTF-8 are dropped.
    """
    from bert_keras.tokenizers.wordpiece import BertTokenizer, tokenize_lines

    try:
        tokenizer = BertTokenizer.from_file(vocab, lower_case=not cased)
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
