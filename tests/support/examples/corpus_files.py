"""Files in every compression, and a reader for them."""

import bz2
import gzip
import lzma
from collections import Counter

import pyarrow
import pytest

from bert_keras.errors import InputError
from components.corpus_gen.readers import ReadUnit, read_unit
from components.corpus_gen.settings import CorpusSettings

TEXT = "One.\ntwo\n\nThree.\n"
DOCUMENTS = [["One.", "two"], ["Three."]]


def zstd(data):
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(data)
    return sink.getvalue().to_pybytes()


COMPRESSIONS = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path, counts=None, **settings):
    """The lines of each document of a whole file."""
    found = read_unit(ReadUnit(str(path)), CorpusSettings(**settings), Counter() if counts is None else counts)
    return [document.lines for document in found]


def refusal(path, **settings):
    with pytest.raises(InputError) as caught:
        read(path, **settings)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(path))
    return message
