"""The interface of ONNX Runtime on Sardonyx. Its public names are those of ``sardonyx.ort``.

:mod:`~sardonyx._shims.onnxruntime.replace` puts it in place of the package onnxruntime.
"""
