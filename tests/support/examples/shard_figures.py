"""Figures beside the shards of tests (`bert_keras.data.example_format.Shard`), by TensorFlow's reader."""

import json
from pathlib import Path

import google_crc32c


def note_shards(root, pass_of=None):
    """Writes `ROOT/example_shards.json`; `pass_of`: path from `root` -> pass, 0 by default."""
    import tensorflow as tf

    figures = []
    for path in sorted(Path(root).glob("Split-*/*")):
        name = str(path.relative_to(root))
        figures.append(
            {
                "path": name,
                "pass_number": (pass_of or {}).get(name, 0),
                "records": sum(1 for _ in tf.data.TFRecordDataset(str(path))),
                "size": path.stat().st_size,
                "crc32c": f"{google_crc32c.value(path.read_bytes()):08x}",
            }
        )
    Path(root, "example_shards.json").write_text(json.dumps(figures))
