"""The error of bad input."""


class InputError(ValueError):
    """What the user gave cannot be used: one line that names it, what was expected, and what to do.

    The command line prints the line and exits with 2; everything else is a defect or a failure of the machine.
    """
