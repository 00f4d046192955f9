"""Checkpoints of a training run: written whole or not at all, the newest intact one restored."""

from __future__ import annotations

import os

import tensorflow as tf
from rich.console import Console

from bert_keras.errors import StageError

# Of a file that may be whole, but cannot be had now. What else reading one raises, and it is much, is damage.
_NOT_DAMAGE = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.ResourceExhaustedError,
    MemoryError,
    PermissionError,
)


class Checkpoints:
    """The checkpoints of one run, numbered by step.

    Args:
        checkpoint: what is in them.
        directory: where they lie; of several workers the same for all.
        max_to_keep: how many are kept.
        worker: this worker's number. All must save, at the same step, since values that each has a part of are
            gathered; those of worker 0 are kept.
    """

    def __init__(self, checkpoint: tf.train.Checkpoint, directory: str, max_to_keep: int, worker: int = 0):
        self._checkpoint, self._directory, self._worker = checkpoint, directory, worker
        folder = directory if worker == 0 else os.path.join(directory, f"worker-{worker}")
        self._manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=max_to_keep)

    def restore_newest(self) -> None:
        """Restores the newest one that is whole, and says which are not; without any, nothing changes.

        Raises:
            StageError: there are some, and all are damaged.
        """
        paths = sorted(
            (name.removesuffix(".index") for name in tf.io.gfile.glob(os.path.join(self._directory, "ckpt-*.index"))),
            key=lambda path: int(path.rpartition("-")[2]),
        )
        for path in reversed(paths):
            try:
                self._checkpoint.restore(path).assert_existing_objects_matched()
                return
            except _NOT_DAMAGE:
                raise
            except Exception as error:
                reason = str(error).splitlines()[0]
                Console(stderr=True).print(
                    f"the checkpoint {path} is damaged ({reason}); the one before it is used",
                    highlight=False,
                    soft_wrap=True,
                )
        if paths:
            raise StageError(
                f"all {len(paths)} checkpoints of {self._directory} are damaged; remove the folder to start again"
            )

    def save(self, step: int) -> None:
        """Writes the checkpoint of `step`, then lets go of the oldest ones.

        Raises:
            StageError: it could not be written. Those before it are as they were.
        """
        try:
            self._manager.save(checkpoint_number=step)
        except (tf.errors.OpError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise StageError(
                f"the checkpoint of step {step} could not be written to {self._directory} ({reason}); the one before "
                "it is whole: make room and give the command again"
            ) from error
        if self._worker:
            tf.io.gfile.rmtree(os.path.join(self._directory, f"worker-{self._worker}"))
