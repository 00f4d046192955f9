"""The error of a deployment that cannot be written."""


class CannotDeploy(ValueError):
    """A deployment that cannot be written; the message is one line with the cause and the remedy."""
