"""Training on JAX: a compiled step over a mesh of devices; imports no TensorFlow."""
