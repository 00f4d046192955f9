"""A store of objects for tests."""

import tensorflow as tf
from etils.epath import gpath


def gs_in_memory(monkeypatch):
    """Let TensorFlow's file system in memory answer for gs://, which `epath` opens by TensorFlow."""
    monkeypatch.setattr(gpath, "_is_zonal_gcs_bucket", lambda bucket: False)  # asks Google
    for name in ("copy", "exists", "isdir", "listdir", "makedirs", "rename", "stat", "GFile"):
        monkeypatch.setattr(tf.io.gfile, name, _in_memory(getattr(tf.io.gfile, name)))


def _in_memory(function):
    return lambda *paths, **options: function(*(path.replace("gs://", "ram://") for path in paths), **options)
