"""VocabGen: learns a vocabulary from documents."""

import json
import os
from typing import Any

import apache_beam as beam
from pydantic import TypeAdapter
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils, channel, standard_artifacts

from bert_keras.data.example_format import SOURCE_RATES
from bert_keras.errors import InputError
from components.artifacts import Vocabulary
from components.corpus_gen.inputs import InputFile, fingerprint
from components.io.shards import COUNTS_FILE, read_json, shard_paths
from components.stage import Stage
from components.vocab_gen.files import MERGES_FILE, given_tokenizer, import_vocabulary
from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import MakeVocabulary


class Executor(base_beam_executor.BaseBeamExecutor):
    """Learns from the `train` split only, imports the given vocabulary, or extends it by words of the `train` split."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        settings = TypeAdapter(VocabularySettings).validate_json(exec_properties["settings"])
        output_dir = artifact_utils.get_single_uri(output_dict["vocabulary"])
        wanted = exec_properties["vocab_size"]
        given, initial = json.loads(exec_properties["given"]), None
        if given and settings.extend:
            initial = given_tokenizer(given["path"], settings)
        elif given:
            size = import_vocabulary(given["path"], output_dir, settings)
            if size != wanted:
                raise InputError(f"{given['path']}: has {size:,} tokens, not {wanted}; --set model.vocab_size={size}")
            return
        train = artifact_utils.get_split_uri(input_dict["documents"], "train")
        counts = read_json(os.path.join(artifact_utils.get_single_uri(input_dict["documents"]), COUNTS_FILE))
        rates = counts.get(SOURCE_RATES)
        make = MakeVocabulary(output_dir, wanted, settings, exact=True, initial=initial, rates=rates)
        with self._make_beam_pipeline() as pipeline:
            _ = pipeline | "Shards" >> beam.Create(shard_paths(train)) | make


class VocabGen(
    Stage,
    executor=Executor,
    inputs={"documents": standard_artifacts.Examples},
    parameters={"vocab_size": int, "settings": str, "given": str, "code": str},
    outputs={"vocabulary": Vocabulary},
):
    """Learns a `vocabulary` of `vocab_size` tokens from the train split of `documents`, or imports or extends one."""

    def __init__(
        self,
        documents: channel.BaseChannel,
        vocab_size: int,
        settings: VocabularySettings,
        given: InputFile | None = None,
    ):
        content = None
        if given:
            files = [given]
            merges = os.path.join(os.path.dirname(given.path), MERGES_FILE)
            # The reader reports that merges are missing.
            if settings.algorithm == "byte_bpe" and os.path.exists(merges):
                files.append(InputFile(merges, os.path.getsize(merges)))
            content = {"path": given.path, "fingerprint": fingerprint(files)}
        super().__init__(documents, vocab_size, settings, content)
