"""The words of the steps' commands, for every orchestrator. Imports nothing: Airflow's Python has no typer."""

from collections.abc import Iterable
from typing import Any

# The steps before and after the nodes; what `finish` writes if a model was pushed.
COMPILE, FINISH, PUSHED = "compile", "finish", "pushed"
PASSWORD = "BERT_TFX_METADATA_PASSWORD"


def compile_words(recipe: str, name: str, metadata: str, nodes: Iterable[str]) -> list[str]:
    """The first step, without the run and its inputs."""
    words = ["compile", "nodes", recipe, "--name", name, "--expect", ",".join(nodes)]
    return words + (["--metadata", metadata] if metadata else [])


def option_words(option: str, value: Any) -> list[str]:
    """An option, once for each value of a repeatable one; none without a value.

    >>> option_words("--corpus", ("a", "b")), option_words("--cased/--uncased", False), option_words("--vocab", None)
    (['--corpus', 'a', '--corpus', 'b'], ['--uncased'], [])
    """
    if value is None:
        return []
    if isinstance(value, bool):
        on, _, off = option.partition("/")
        return [on if value else off]
    values = value if isinstance(value, (list, tuple)) else [value]
    return [word for item in values for word in (option, item)]
