"""A pytest plugin: what the tests import as onnxruntime is Sardonyx."""

import sardonyx

sardonyx.use_as_onnxruntime()
