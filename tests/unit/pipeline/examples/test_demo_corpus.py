"""The demo's corpus: selection of docstrings and lines, and reproducibility."""

import pytest

from pipeline.examples import demo_corpus
from pipeline.examples.demo_corpus import _prose_lines, docstrings, write_docstring_corpus

PROSE = "This function returns a new array of the given shape and type, filled with ones. " * 3


def lines(docstring):
    return list(_prose_lines(docstring))


def test_sessions_tables_and_rules_are_left_out():
    assert lines(
        """Returns a new array.

        Parameters
        ----------
        | 1 | 2.5 |
        >>> x = f(
        ...     the, words)
        the output of the session

        A word after it.
        """
    ) == ["Returns a new array.", "Parameters", "A word after it."]


def test_a_fence_includes_blank_lines():
    assert lines(
        """Before the fence.
        ```python
        value of alpha

        value of beta
        ```
        After the fence.
        """
    ) == ["Before the fence.", "After the fence."]


def test_lone_surrogates_are_left_out():
    assert lines("A lone \ud800surrogate.") == ["A lone surrogate."]


def test_docstrings_of_a_file(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        f'"""Module. {PROSE}"""\nclass A:\n  """Class. {PROSE}"""\n  async def b():\n    """Method. {PROSE}"""\n'
        'def short():\n  """Too short."""\ndef none(): pass\nx = "\\d"\n'
    )
    found = sorted(docstrings(path).values())
    assert [text.split()[0] for text in found] == ["Class.", "Method.", "Module."]


@pytest.mark.parametrize("content", [b"def broken(:", b"\xff\xfe\x00", b"# coding: nonsense\n"])
def test_a_file_that_is_not_python_has_nodocstrings(tmp_path, content):
    (tmp_path / "a.py").write_bytes(content)
    assert docstrings(tmp_path / "a.py") == {}


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    """A folder of libraries; each file has its own docstring and a common one."""
    monkeypatch.setattr(demo_corpus.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path / "site")})
    monkeypatch.setattr(demo_corpus, "LIBRARIES", ("one", "two"))
    monkeypatch.setattr(demo_corpus, "FILES_AT_A_TIME", 5)
    for number in range(20):
        path = tmp_path / "site" / ("one", "two", "three")[number % 3] / f"deep/{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""Number {"x" * number} of {path.parts[-3]}.\n\n{PROSE}"""\ndef f():\n  """{PROSE}"""\n')


def test_a_large_corpus_has_every_docstring_once(tmp_path, libraries):
    path = tmp_path / "out" / "docstrings.txt"
    write_docstring_corpus(str(path), 10**9)
    documents = path.read_text().strip().split("\n\n")
    # 14 files of the libraries one and two, and the common docstring, once.
    assert len(documents) == 15 and len(set(documents)) == 15
    assert not any("of three" in document for document in documents)
    assert [p.name for p in path.parent.iterdir()] == ["docstrings.txt"]


def test_a_sample_is_large_enough_and_reproducible(tmp_path, libraries):
    first, second = tmp_path / "1" / "a.txt", tmp_path / "2" / "a.txt"
    write_docstring_corpus(str(first), 1000)
    write_docstring_corpus(str(second), 1000)
    assert first.read_bytes() == second.read_bytes()
    # Files are read five at a time: one docstring of about 250 characters each, and the common one.
    assert 1000 <= len(first.read_bytes()) < 2000


def test_an_existing_corpus_is_kept(tmp_path, libraries):
    path = tmp_path / "a.txt"
    path.write_text("kept")
    write_docstring_corpus(str(path), 1000)
    assert path.read_text() == "kept"
