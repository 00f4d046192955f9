"""Checkpoints of a training run: one file of arrays each, for every backend; the newest intact one is restored.

`ckpt-STEP.npz` is a NumPy archive of `arrays_of`, whose members have checksums. `finished.npz` is the last checkpoint
of a finished run without the optimizer's state, two thirds of it.
"""

import os
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from etils import epath

from bert_keras.errors import StageError
from bert_keras.files import atomic_open, check_no_pattern
from bert_keras.notices import notify
from bert_keras.objectives.distillation import Taught

if TYPE_CHECKING:
    from bert_keras.training.backends.devices import TrainSteps

# What a damaged file raises; any other error is of the file system, and may be transient.
_DAMAGED = (zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, NotImplementedError)

_FOLDER, _FINISHED = "checkpoints", "finished.npz"


def has_finished(directory: str) -> bool:
    """Return whether the training in a folder ended, and `Checkpoints.finish` was called."""
    return bool((epath.Path(directory) / _FOLDER / _FINISHED).exists())


def forget(directory: str) -> None:
    """Remove the checkpoints of the training in a folder."""
    if (folder := epath.Path(directory) / _FOLDER).exists():
        folder.rmtree()


class Checkpoints:
    """The checkpoints of one run, numbered by step; `finish` replaces them by one of the weights.

    `directory`: the training's folder, common to all workers, of which the first one writes. `max_to_keep`: number of
    checkpoints kept. InputError: TensorFlow, which exports the trained model, could not read files in the folder.
    """

    def __init__(self, steps: "TrainSteps", directory: str, max_to_keep: int, worker: int = 0):
        check_no_pattern(directory, "train in another folder")
        self._steps, self._directory, self._worker = steps, os.path.join(directory, _FOLDER), worker
        self._max_to_keep = max_to_keep

    def restore_newest(self) -> None:
        """Restore the newest intact checkpoint, if any, and report damaged ones; StageError if all are."""
        paths, finished = self._paths(), epath.Path(self._directory) / _FINISHED
        paths += [finished] * finished.exists()
        for path in reversed(paths):
            try:
                with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                    self._steps.set_arrays(dict(arrays))
                return
            except _DAMAGED as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                notify(f"the checkpoint {path} is damaged ({reason}); the one before it is used")
        if paths:
            raise StageError(
                f"all {len(paths)} checkpoints of {self._directory} are damaged; remove the folder to start again"
            )

    def save(self, step: int) -> None:
        """Write the checkpoint of `step`, then delete the oldest ones; on all workers but the first do nothing."""
        if self._worker:
            return
        before = self._paths()
        try:
            self._write(f"ckpt-{step}.npz", self._steps.arrays())
        except OSError as error:
            kept = "the one before it is intact" if before else "it is the first, no step is kept"
            raise StageError(
                f"the checkpoint of step {step} could not be written to {self._directory} ({error}); {kept}: free "
                "space and run the command again"
            ) from error
        for path in self._paths()[: -self._max_to_keep]:
            path.unlink()

    def finish(self) -> None:
        """Replace the checkpoints by one without the optimizer's state.

        It is complete before the others are deleted; killed in between, the next call deletes them.
        """
        paths = self._paths()
        if self._worker or not paths:
            return
        try:
            self._write(_FINISHED, self._steps.arrays(with_optimizer=False))
            for path in paths:
                path.unlink()
        except OSError as error:
            raise StageError(
                f"the checkpoints of a finished training could not be replaced by {self._directory}/{_FINISHED} "
                f"({error}); nothing is lost: free space and run the command again"
            ) from error

    def _paths(self) -> list[Any]:
        """The checkpoints, the oldest first."""
        folder = epath.Path(self._directory)
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        steps = sorted(int(name[5:-4]) for name in names if name.startswith("ckpt-") and name.endswith(".npz"))
        return [folder / f"ckpt-{step}.npz" for step in steps]

    def _write(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        with atomic_open(os.path.join(self._directory, name)) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


def arrays_of(model: keras.Model, optimizer: keras.optimizers.Optimizer | None, step: int) -> dict[str, np.ndarray]:
    """The step, the weights, of a `Taught` model the student's, and the optimizer's variables by name, in this order.

    Names do not depend on the backend or the process: paths without their first part, which counts instances, behind
    numbers, because paths may repeat.
    """
    values = {name: keras.ops.convert_to_numpy(v) for name, v in _variables(model, optimizer).items()}
    return {"step": np.asarray(step, np.int64), **values}


def _variables(model: keras.Model, optimizer: keras.optimizers.Optimizer | None) -> dict[str, keras.Variable]:
    model = model.student if isinstance(model, Taught) else model
    named = {f"model/{number}/{v.path.partition('/')[2]}": v for number, v in enumerate(model.weights)}
    slots = optimizer.variables if optimizer else ()
    return {**named, **{f"optimizer/{number}/{v.name.rpartition('_')[2]}": v for number, v in enumerate(slots)}}


def assign_arrays(
    model: keras.Model, optimizer: keras.optimizers.Optimizer | None, arrays: dict[str, np.ndarray]
) -> int:
    """Assign arrays of `arrays_of`, with or without the optimizer's; return the step. ValueError: they do not fit."""
    has_slots = any(name.startswith("optimizer/") for name in arrays)
    variables = _variables(model, optimizer if has_slots else None)
    wanted = [("step", ()), *((name, tuple(v.shape)) for name, v in variables.items())]
    given = [(name, array.shape) for name, array in arrays.items()]
    if wanted != given:
        number = next((i for i, pair in enumerate(zip(wanted, given, strict=False)) if pair[0] != pair[1]), -1)
        raise ValueError(f"it holds {given[number]} where the model has {wanted[number]}")
    for name, variable in variables.items():
        variable.assign(arrays[name].astype(variable.dtype))
    return int(arrays["step"])
