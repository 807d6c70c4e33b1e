"""What runs a transformer's network: torch, ONNX Runtime, OpenVINO."""
