"""Gives programs Sardonyx for ``import onnxruntime`` where onnxruntime is not installed.

The file ``onnxruntime-by-sardonyx.pth`` beside this one imports this module in every process of the environment. It
imports nothing until a program looks for onnxruntime, and no finder before it has found an installed one.
"""

import sys

NAME = "onnxruntime"


class Finder:
    """Finds the module and the distribution onnxruntime. Stands after all other finders."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Returns the spec of Sardonyx's module for the name ``onnxruntime``, and None for others."""
        if name != NAME or Finder not in sys.meta_path:
            return None
        # Sardonyx has finders of its own, for the modules within as well.
        sys.meta_path.remove(Finder)
        import sardonyx

        sardonyx.use_as_onnxruntime()
        return sys.modules[NAME].__spec__

    @staticmethod
    def find_distributions(context=None):
        """Returns the distribution for the name ``onnxruntime``, whose version packages look up, and none for others."""
        if getattr(context, "name", None) != NAME:
            return []
        from sardonyx._shims.onnxruntime.distribution import OnnxRuntimeDistribution

        return [OnnxRuntimeDistribution()]


sys.meta_path.append(Finder)
