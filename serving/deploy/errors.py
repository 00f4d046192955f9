"""The error of a deployment that cannot be written."""


class CannotDeploy(ValueError):
    """What was given cannot be deployed: one line that names it and the remedy."""
