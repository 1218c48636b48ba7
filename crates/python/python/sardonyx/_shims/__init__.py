"""Stand-ins for other packages: for the compiled core of onnx, and for onnxruntime.

Programs reach them by public names: ``sardonyx.use_as_onnx_core``, ``sardonyx.use_as_onnxruntime``, ``sardonyx.ort`` and
``python -m sardonyx.ort``.
"""
