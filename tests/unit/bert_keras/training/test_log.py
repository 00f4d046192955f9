"""TensorBoard's histograms."""

import keras
import numpy as np
import tensorflow as tf

from bert_keras.training.log import TrainingLog


def test_histograms_count_every_weight(tmp_path):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(100)])
    kernel, bias = model.layers[0].weights
    kernel.assign(np.linspace(-1.5, 1.5, 300).reshape(3, 100))
    bias.assign([np.inf] + 99 * [0])
    TrainingLog(str(tmp_path), 0).write_histograms(7, model)
    (file,) = (tmp_path / "tensorboard" / "train").glob("events*")
    found = {}
    for record in tf.data.TFRecordDataset(str(file)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            assert event.step == 7 and value.metadata.plugin_data.plugin_name == "histograms"
            found[value.tag] = tf.make_ndarray(value.tensor)
    assert found.keys() == {kernel.path, bias.path}
    np.testing.assert_allclose(found[kernel.path], [[-1.5 + i / 10, -1.4 + i / 10, 10] for i in range(30)], atol=1e-6)
    # All are 0, somewhere.
    start, end, count = found[bias.path][found[bias.path][:, 2] > 0][0]
    assert start <= 0 <= end and count == 99
