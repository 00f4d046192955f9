"""VocabGen: learns a vocabulary from documents."""

from __future__ import annotations

import dataclasses
import json
import os

from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import channel, component_spec, standard_artifacts

from components.artifacts import Vocabulary
from components.code_version import code_fingerprint
from components.corpus_gen.inputs import InputFile, fingerprint
from components.vocab_gen.executor import Executor
from components.vocab_gen.files import MERGES_FILE
from components.vocab_gen.settings import VocabularySettings


class VocabGenSpec(component_spec.ComponentSpec):
    """`vocab_size`: number of tokens, including special ones; `settings`: JSON of `VocabularySettings`.

    `given`: JSON, null or the path of a vocabulary to import, or to extend, and the hash of its content and merges.
    """

    PARAMETERS = {
        "vocab_size": component_spec.ExecutionParameter(type=int),
        "settings": component_spec.ExecutionParameter(type=str),
        "given": component_spec.ExecutionParameter(type=str),
        "code": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {"documents": component_spec.ChannelParameter(type=standard_artifacts.Examples)}
    OUTPUTS = {"vocabulary": component_spec.ChannelParameter(type=Vocabulary)}


class VocabGen(base_beam_component.BaseBeamComponent):
    """Learns a `vocabulary` (Vocabulary) from the train split of `documents` (Examples), or imports one."""

    SPEC_CLASS = VocabGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        documents: channel.BaseChannel,
        vocab_size: int,
        settings: VocabularySettings,
        given: InputFile | None = None,
    ):
        files = [given, *_merges_beside(given)] if given and settings.algorithm == "byte_bpe" else [given]
        content = given and {"path": given.path, "fingerprint": fingerprint([file for file in files if file])}
        spec = VocabGenSpec(
            documents=documents,
            vocab_size=vocab_size,
            settings=json.dumps(dataclasses.asdict(settings), sort_keys=True),
            given=json.dumps(content, sort_keys=True),
            code=code_fingerprint(__name__),
            vocabulary=channel.Channel(type=Vocabulary),
        )
        super().__init__(spec=spec)


def _merges_beside(vocabulary: InputFile) -> list[InputFile]:
    """The merges of a byte-level BPE, which are read with it; that the file is missing, the reader reports."""
    path = os.path.join(os.path.dirname(vocabulary.path), MERGES_FILE)
    return [InputFile(path, os.path.getsize(path))] if os.path.exists(path) else []
