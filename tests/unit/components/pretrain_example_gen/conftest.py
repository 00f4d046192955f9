"""A shard of documents, and a folder for outputs."""

import numpy as np
import pytest

from tests.support.examples.shard_files import make_documents, write_documents


@pytest.fixture
def documents():
    return make_documents(40, np.random.default_rng(0))


@pytest.fixture
def shard(tmp_path, documents):
    return write_documents(tmp_path / "documents-00003-of-00010.tfrecord", documents)


@pytest.fixture
def output_dir(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    return path
