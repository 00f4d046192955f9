"""The backends of a training: the devices and the compiled steps of TensorFlow and of JAX, behind one interface."""
