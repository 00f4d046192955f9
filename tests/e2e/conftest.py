"""One small run of the whole pipeline through the command line, shared by the tests."""

import types
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.pipeline.command_line import arguments, bert_tfx
from tests.support.pipeline.example_shards import SMALL_SHARDS, make

ROOT = Path(__file__).parents[2]


class _OneRun(LoadFileScheduling):
    """A file a process, but all files with the shared run in one, in their order."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return "first_run" if "first_run" in (ROOT / file).read_text() else file


# The longest files, the longest first, so that no process is left alone with one of them.
LONG = [
    "test_pretrain_pipeline.py",
    "test_example_generation.py",
    "test_finetune_pipeline.py",
    "test_second_phase.py",
]


def pytest_xdist_make_scheduler(config, log):
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # else xdist starts with the files of the most tests
    return _OneRun(config, log)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


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


@pytest.fixture(scope="session")
def first_run(corpus, tmp_path_factory):
    """The first run in a new run directory: its directory, exit code and output."""
    run_dir = tmp_path_factory.mktemp("runs") / "first"
    code, out, err = bert_tfx(*arguments(corpus, run_dir))
    return types.SimpleNamespace(dir=run_dir, code=code, out=out, err=err)
