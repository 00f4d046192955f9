"""Options shared by several commands, made from the fields of dataclasses."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import typer

from pipeline.runs.request import CASED_OPTION, INIT_OPTION, SET_OPTION, TEACHER_OPTION, VOCAB_OPTION

Settings = Annotated[list[str] | None, SET_OPTION]
Vocab = Annotated[str | None, VOCAB_OPTION]
Init = Annotated[str | None, INIT_OPTION]
Cased = Annotated[bool | None, CASED_OPTION]
Teacher = Annotated[str | None, TEACHER_OPTION]
RunDir = Annotated[str, typer.Option("--run-dir", metavar="DIR", help="Run directory.")]
ModelDir = Annotated[
    str | None, typer.Option("--model-dir", metavar="DIR", help="Folder of versions, in place of --run-dir.")
]
EngineName = Annotated[
    Literal["auto", "tensorflow", "onnx"] | None,
    typer.Option("--engine", help="What computes; auto, the default: onnx for versions that convert --to onnx wrote."),
]
DEFAULT_RUN_DIR = "runs/demo"
_Settings = TypeVar("_Settings")


def with_options(
    settings: type,
    argument: str,
    fields: Sequence[str] = (),
    make: Callable[..., Any] = dict,
    required: Sequence[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: replace `argument` by options, one for each of the `fields` of a dataclass that have help.

    No `fields`: all. Those in `required` have no default. `make` makes the argument from the options' values, by name.
    """
    hints = typing.get_type_hints(settings, include_extras=True)
    with_help = [field for field in dataclasses.fields(settings) if hasattr(hints[field.name], "__metadata__")]
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty
            if field.name in required or field.default is dataclasses.MISSING
            else field.default,
            annotation=_for_typer(hints[field.name]),
        )
        for field in with_help
        if not fields or field.name in fields
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            # Typer passes the values of a repeatable option as a list.
            values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
            command(**given, **{argument: make(**values)})

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            parameters += options if keyword.name == argument else [keyword]
        # Typer reads both.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def chosen(settings: type[_Settings], context: typer.Context) -> _Settings:
    """Settings from the command's options with the names of their fields; an omitted option leaves the default.

    For settings that are too heavy to be imported for `--help`, or whose users have no Typer.
    """
    names = {field.name for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    return settings(**{name: value for name, value in context.params.items() if name in names and value is not None})


def _for_typer(hint: Any) -> Any:
    """Annotated[tuple[str, ...], ...] -> Annotated[list[str], ...], Typer's type of a repeatable option."""
    base, *extras = typing.get_args(hint)
    return Annotated[(list[str], *extras)] if typing.get_origin(base) is tuple else hint
