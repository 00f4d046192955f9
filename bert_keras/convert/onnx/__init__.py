"""A model as ONNX: its graph, its folder, and its answers by ONNX Runtime."""
