"""Custom artifact types."""

from tfx.types.artifact import Artifact


class Vocabulary(Artifact):
    """The files of `components.vocab_gen.files`: tokens in the order of their ids, and how they were made."""

    TYPE_NAME = "Vocabulary"


class ExampleVerdict(Artifact):
    """`verdict.json`: confirms that the examples conform to their schema."""

    TYPE_NAME = "ExampleVerdict"
