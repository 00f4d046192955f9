"""Training on TensorFlow: a compiled loop under its distribution strategies."""
