"""Checkpoints of a training run: atomic writes; the newest intact checkpoint is restored."""

from __future__ import annotations

import os

import tensorflow as tf

from bert_keras.errors import StageError
from bert_keras.files import check_no_pattern
from bert_keras.notices import notify

# Transient I/O errors. Any other error means that the checkpoint is corrupt.
_TRANSIENT = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.ResourceExhaustedError,
    MemoryError,
    PermissionError,
)

# Checkpoint of a finished run: weights and step.
_FINISHED = "finished"


class Checkpoints:
    """The checkpoints of one run, numbered by step; `finish` replaces them by one of the weights.

    Args:
        checkpoint: the objects to save.
        result: those of them that a finished run still needs.
        directory: their folder, common to all workers.
        max_to_keep: number of checkpoints kept.
        worker: this worker's number. All workers must save at the same step, because distributed values are gathered;
            only worker 0's checkpoints are kept.

    Raises:
        InputError: TensorFlow could not read checkpoints in the folder.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        result: tf.train.Checkpoint,
        directory: str,
        max_to_keep: int,
        worker: int = 0,
    ):
        check_no_pattern(directory, "train in another folder")
        self._checkpoint, self._result, self._directory, self._worker = checkpoint, result, directory, worker
        folder = directory if worker == 0 else os.path.join(directory, f"worker-{worker}")
        self._manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=max_to_keep)

    def restore_newest(self) -> None:
        """Restore the newest intact checkpoint, if any, and report damaged ones.

        Raises:
            StageError: all checkpoints are damaged.
        """
        paths = sorted(
            (name.removesuffix(".index") for name in tf.io.gfile.glob(os.path.join(self._directory, "ckpt-*.index"))),
            key=lambda path: int(path.rpartition("-")[2]),
        )
        finished = os.path.join(self._directory, _FINISHED)
        paths += [finished] * tf.io.gfile.exists(f"{finished}.index")
        for path in reversed(paths):
            try:
                # `restore` asks for the counter of `save`, which `write` in `finish` leaves out.
                restored = self._result.read(path) if path == finished else self._checkpoint.restore(path)
                restored.assert_existing_objects_matched()
                return
            except _TRANSIENT:
                raise
            except Exception as error:
                reason = str(error).splitlines()[0]
                notify(f"the checkpoint {path} is damaged ({reason}); the one before it is used")
        if paths:
            raise StageError(
                f"all {len(paths)} checkpoints of {self._directory} are damaged; remove the folder to start again"
            )

    def save(self, step: int) -> None:
        """Write the checkpoint of `step`, then delete the oldest ones.

        Raises:
            StageError: it could not be written; earlier checkpoints are unchanged.
        """
        try:
            self._manager.save(checkpoint_number=step)
        except (tf.errors.OpError, OSError) as error:
            reason = str(error).splitlines()[0]
            kept = "the one before it is intact" if self._manager.checkpoints else "it is the first, no step is kept"
            raise StageError(
                f"the checkpoint of step {step} could not be written to {self._directory} ({reason}); {kept}: free "
                "space and run the command again"
            ) from error
        if self._worker:
            tf.io.gfile.rmtree(os.path.join(self._directory, f"worker-{self._worker}"))

    def finish(self) -> None:
        """Replace the checkpoints by one without the optimizer's state, two thirds of them.

        It is complete before the others are deleted; killed in between, the next call deletes them.

        Raises:
            StageError: it could not be written, or they could not be deleted.
        """
        path = os.path.join(self._directory, _FINISHED)
        # Sorted, so that the index that tells of an unfinished deletion goes last.
        others = sorted(tf.io.gfile.glob(os.path.join(self._directory, "ckpt-*")))
        if self._worker or not others:
            return
        try:
            self._result.write(path)
            for name in others:
                tf.io.gfile.remove(name)
        except (tf.errors.OpError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise StageError(
                f"the checkpoints of a finished training could not be replaced by {path} ({reason}); nothing is lost: "
                "free space and run the command again"
            ) from error
