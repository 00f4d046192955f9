"""Keras' settings are this project's, whatever the user's keras.json says."""

import json
import os
import subprocess
import sys

import pytest

SETTINGS = "keras.config.backend(), keras.config.floatx(), keras.config.epsilon(), keras.config.image_data_format()"


@pytest.mark.parametrize(
    "stored, first, backend",
    [
        # Keras itself refuses this type.
        ({"backend": "torch", "floatx": "bfloat16", "epsilon": 1, "image_data_format": "first"}, "bert_keras", None),
        # A Keras that was imported before; and KERAS_BACKEND, which goes before the file.
        ({"backend": "torch", "floatx": "float16"}, "keras", "numpy"),
    ],
)
def test_keras_json_of_the_user_is_not_read(tmp_path, stored, first, backend):
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text(json.dumps(stored))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERAS_")}
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"KERAS_BACKEND": backend} if backend else {}
    code = f"import {first}, bert_keras.models.layers, keras; print(({SETTINGS}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str((backend or "tensorflow", "float32", 1e-7, "channels_last"))
