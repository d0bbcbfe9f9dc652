"""Models as files that run without koopax: ONNX, StableHLO and C99."""
