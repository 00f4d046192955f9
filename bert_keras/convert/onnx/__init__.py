"""A model as ONNX: its graph, its folder, its int8 form, and its answers."""

import sys

# OpenVINO and NNCF send statistics of their use by this package, and do without it.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
