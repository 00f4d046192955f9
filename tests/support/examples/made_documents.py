"""Documents that CorpusGen's transforms make of files."""

import os

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from components.corpus_gen.inputs import InputFile
from components.corpus_gen.readers import read_units
from components.corpus_gen.transforms import generate_documents, remove_intermediate


def make_documents(paths, output, settings, args=(), earlier=None, names=None):
    """The content of each file in `output`, by its relative path; `names` are the sources of `paths`."""
    sources = zip(paths, names or [""] * len(paths), strict=True)
    files = [InputFile(str(path), os.path.getsize(path), source_name=name) for path, name in sources]
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", *args])) as pipeline:
        generate_documents(pipeline, read_units(files, settings), settings, str(output), earlier and str(earlier))
    remove_intermediate(str(output))
    return {str(path.relative_to(output)): path.read_bytes() for path in sorted(output.rglob("*")) if path.is_file()}
