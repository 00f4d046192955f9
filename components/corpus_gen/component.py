"""CorpusGen: text files -> documents."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import channel, component_spec, standard_artifacts

from bert_keras import tokenizer, unicode_tables
from components import corpus_gen, shards, tfrecord
from components.code_version import code_fingerprint
from components.corpus_gen.executor import Executor
from components.corpus_gen.inputs import InputFile, fingerprint
from components.corpus_gen.settings import CorpusSettings


class CorpusGenSpec(component_spec.ComponentSpec):
    """`inputs`: JSON {path: bytes}; `fingerprint`: hash of their contents; `settings`: JSON of `CorpusSettings`."""

    PARAMETERS = {
        "inputs": component_spec.ExecutionParameter(type=str),
        "fingerprint": component_spec.ExecutionParameter(type=str),
        "settings": component_spec.ExecutionParameter(type=str),
        "code": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {}
    OUTPUTS = {"documents": component_spec.ChannelParameter(type=standard_artifacts.Examples)}


class CorpusGen(base_beam_component.BaseBeamComponent):
    """Reads text files into `documents` (Examples; splits `train` and `eval` by a hash of the document)."""

    SPEC_CLASS = CorpusGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(self, inputs: Sequence[InputFile], settings: CorpusSettings):
        spec = CorpusGenSpec(
            inputs=json.dumps({file.path: file.size for file in inputs}, sort_keys=True),
            fingerprint=fingerprint(inputs),
            settings=json.dumps(dataclasses.asdict(settings), sort_keys=True),
            code=code_fingerprint(corpus_gen, shards, tfrecord, tokenizer, unicode_tables),
            documents=channel.Channel(type=standard_artifacts.Examples),
        )
        super().__init__(spec=spec)
