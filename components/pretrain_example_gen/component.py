"""PretrainExampleGen: makes pre-training examples from documents and a vocabulary."""

from __future__ import annotations

from tfx.types import channel, standard_artifacts

from components.artifacts import Vocabulary
from components.pretrain_example_gen.executor import Executor
from components.pretrain_example_gen.settings import ExampleSettings
from components.stage import Stage


class PretrainExampleGen(
    Stage,
    executor=Executor,
    inputs={"documents": standard_artifacts.Examples, "vocabulary": Vocabulary},
    parameters={"settings": str, "replay": int, "code": str},
    outputs={"examples": standard_artifacts.Examples},
):
    """Makes `examples` (the splits of `documents`); with `replay`, those that training mixes into the others."""

    def __init__(
        self,
        documents: channel.BaseChannel,
        vocabulary: channel.BaseChannel,
        settings: ExampleSettings,
        replay: bool = False,
    ):
        super().__init__(documents, vocabulary, settings, int(replay))
