"""CorpusGen's artifact I/O."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils

from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.transforms import SPLITS, MakeDocuments, bucket_counts
from components.shards import SumCounts, remove_temporary, write_json

# Beside the shards: what was read and kept.
COUNTS_FILE = "corpus.json"


class Executor(base_beam_executor.BaseBeamExecutor):
    """Reads the files of the `inputs` property into documents."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        documents = artifact_utils.get_single_instance(output_dict["documents"])
        documents.splits = list(SPLITS)
        settings = CorpusSettings(**json.loads(exec_properties["settings"]))
        files: dict[str, int] = json.loads(exec_properties["inputs"])
        buckets = bucket_counts(sum(files.values()), settings)
        with self._make_beam_pipeline() as pipeline:
            (
                pipeline
                | "Files" >> beam.Create(sorted(files))
                | "MakeDocuments" >> MakeDocuments(settings, buckets, documents.uri)
                | "Sum" >> SumCounts()
                | "WriteCounts"
                >> beam.Map(lambda counts, path: write_json(path, counts), f"{documents.uri}/{COUNTS_FILE}")
            )
        remove_temporary(documents.uri)
