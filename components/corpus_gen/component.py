"""CorpusGen: splits text files into documents."""

from typing import Any

from pydantic import TypeAdapter
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils, standard_artifacts

from components.corpus_gen.inputs import read_input_list
from components.corpus_gen.readers import read_units
from components.corpus_gen.settings import CorpusSettings
from components.corpus_gen.sorted_runs import SPLITS
from components.corpus_gen.transforms import generate_documents, remove_intermediate
from components.stage import Stage


class Executor(base_beam_executor.BaseBeamExecutor):
    """Reads the files of the `inputs` property into documents; `earlier` has the ids of those to leave out."""

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        documents = artifact_utils.get_single_instance(output_dict["documents"])
        documents.splits = list(SPLITS)
        settings = TypeAdapter(CorpusSettings).validate_json(exec_properties["settings"])
        files = read_input_list(exec_properties["inputs"])
        earlier = artifact_utils.get_single_uri(input_dict["earlier"]) if input_dict.get("earlier") else None
        with self._make_beam_pipeline() as pipeline:
            generate_documents(pipeline, read_units(files, settings), settings, documents.uri, earlier)
        remove_intermediate(documents.uri)


class CorpusGen(
    Stage,
    executor=Executor,
    inputs={"earlier": standard_artifacts.Examples},
    optional=("earlier",),
    parameters={"inputs": str, "fingerprint": str, "settings": str, "code": str},
    outputs={"documents": standard_artifacts.Examples},
):
    """Reads text files into `documents` (splits `train` and `eval` by a hash of the document).

    With `earlier`, documents of another run, only what neither that run nor those before it have read. `inputs` is the
    path of the files' list, and `fingerprint` their hash (`components.corpus_gen.inputs.InputList`).
    """
