"""Reads how often the text of each source is read."""

from __future__ import annotations

from apache_beam.io.filesystems import FileSystems

from bert_keras.data.example_format import SOURCE_RATES
from components.io.shards import read_json

# Beside the documents; its content is described in `card`.
COUNTS_FILE = "corpus.json"


def read_rates(documents_dir: str) -> dict[str, float]:
    """The rates of the sources in a folder of documents (`bert_keras.data.mixture.source_rates`); {}: all alike."""
    path = f"{documents_dir}/{COUNTS_FILE}"
    return read_json(path).get(SOURCE_RATES, {}) if FileSystems.exists(path) else {}
