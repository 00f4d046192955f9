"""One small run of the whole pipeline through the command line, shared by the tests."""

import itertools
import subprocess
import types

import pytest

from tests.support.pipeline.command_line import arguments, bert_tfx
from tests.support.pipeline.example_shards import SMALL_SHARDS, make


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Real text: docstrings of the installed libraries."""
    from pipeline.examples.demo_corpus import write_docstring_corpus

    path = tmp_path_factory.mktemp("corpus") / "docstrings.txt"
    write_docstring_corpus(str(path), 200_000)
    # The smallest sample is one batch of files; a small part of it is enough here.
    documents = path.read_text().split("\n\n")
    small = path.with_name("small.txt")
    size = 0
    with small.open("w") as file:
        for document in documents:
            size += file.write(document + "\n\n")
            if size > 200_000:
                break
    return small


@pytest.fixture(scope="session")
def made(corpus, tmp_path_factory):
    """Examples of the small corpus and their figures."""
    output = tmp_path_factory.mktemp("examples") / "out"
    return output, make(corpus, output, *SMALL_SHARDS)


@pytest.fixture(scope="module")
def served_here():
    """ServingValidator's server is in this process; `first_run` has one of its own, which takes seconds to start."""
    from components.serving_validator import served_model
    from pipeline.engines import engines
    from serving.server import Server

    class Process:
        """The part of `subprocess.Popen` that is used, for the words of `bert-tfx serve`."""

        def __init__(self, words, **_):
            given = dict(itertools.pairwise(words))
            port = int(given["--grpc-port"])
            server = Server(given["--model-dir"], grpc_port=port, rest_port=0, engines=engines("auto"))
            server.start()
            self.poll, self.wait, self.kill = lambda: None, lambda: None, server.stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served_model, "subprocess", types.SimpleNamespace(Popen=Process, DEVNULL=subprocess.DEVNULL))
        patch.setattr(served_model.ServedModel, "memory_mb", lambda self: 500.0)
        yield


@pytest.fixture(scope="session")
def first_run(corpus, tmp_path_factory):
    """The first run in a new run directory: its directory, exit code and output."""
    run_dir = tmp_path_factory.mktemp("runs") / "first"
    code, out, err = bert_tfx(*arguments(corpus, run_dir))
    return types.SimpleNamespace(dir=run_dir, code=code, out=out, err=err)
