"""CorpusGen: splits text files into documents."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import channel, component_spec, standard_artifacts

from components.code_version import code_fingerprint
from components.corpus_gen.executor import Executor
from components.corpus_gen.inputs import InputFile, fingerprint, write_input_list
from components.corpus_gen.settings import CorpusSettings


class CorpusGenSpec(component_spec.ComponentSpec):
    """`inputs`: a file with their list; `fingerprint`: hash of their contents; `settings`: JSON of `CorpusSettings`.

    The list for a large corpus exceeds ML Metadata's limit for a property (16 MB on MySQL).
    """

    PARAMETERS = {
        "inputs": component_spec.ExecutionParameter(type=str),
        "fingerprint": component_spec.ExecutionParameter(type=str),
        "settings": component_spec.ExecutionParameter(type=str),
        "code": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {"earlier": component_spec.ChannelParameter(type=standard_artifacts.Examples, optional=True)}
    OUTPUTS = {"documents": component_spec.ChannelParameter(type=standard_artifacts.Examples)}


class CorpusGen(base_beam_component.BaseBeamComponent):
    """Reads text files into `documents` (Examples; splits `train` and `eval` by a hash of the document).

    With `earlier`, documents of another run, only what neither that run nor those before it have read.
    """

    SPEC_CLASS = CorpusGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        inputs: Sequence[InputFile],
        settings: CorpusSettings,
        list_dir: str,
        earlier: channel.BaseChannel | None = None,
    ):
        """Write the list of the inputs to `list_dir`, which the executor must be able to read."""
        identity = fingerprint(inputs)
        spec = CorpusGenSpec(
            inputs=write_input_list(inputs, list_dir, identity),
            fingerprint=identity,
            settings=json.dumps(dataclasses.asdict(settings), sort_keys=True),
            code=code_fingerprint(__name__),
            earlier=earlier,
            documents=channel.Channel(type=standard_artifacts.Examples),
        )
        super().__init__(spec=spec)
