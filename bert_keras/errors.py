"""The errors that a user sees as one line; everything else is a defect or a failure of the machine."""


class InputError(ValueError):
    """What the user gave cannot be used: names it, what was expected, and what to do. Exit code 2."""


class StageError(RuntimeError):
    """A stage refuses to go on: names what it found and what to do. Exit code 1."""


class Diverged(StageError):
    """A training whose loss or gradient is not finite; the same again would end the same."""


class Preempted(RuntimeError):
    """SIGTERM came while a model was trained; its checkpoint is written. Exit code 4."""
