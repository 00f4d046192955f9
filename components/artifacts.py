"""Custom artifact types."""

from tfx.types.artifact import Artifact


class Vocabulary(Artifact):
    """`vocab.txt` (one token per line; the line number, from 0, is the id) and `vocab_spec.json` (how it was made)."""

    TYPE_NAME = "Vocabulary"


class ExampleVerdict(Artifact):
    """`verdict.json`: confirms that the examples conform to their schema."""

    TYPE_NAME = "ExampleVerdict"
