"""Gives Python processes Sardonyx for ``import onnxruntime``.

The file ``sardonyx-as-onnxruntime.pth`` beside this one imports this module when a process starts whose environment has the
variable ``SARDONYX_AS_ONNXRUNTIME``. ``python -m sardonyx.ort`` sets it, so that processes which the program starts find
onnxruntime too. The module imports nothing until a program looks for onnxruntime.
"""

import sys

NAME = "onnxruntime"


class Modules:
    """Finds the module onnxruntime, before an installed one is found."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Returns the spec of Sardonyx's module for the name ``onnxruntime``, and None for others."""
        if name != NAME or not take_place():
            return None
        return sys.modules[NAME].__spec__


class Distributions:
    """Finds the distribution onnxruntime for packages that look for its version before they import it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Returns None: modules have a finder of their own."""
        return None

    @staticmethod
    def find_distributions(context=None):
        """Returns the distribution for the name ``onnxruntime``, and none for others."""
        if getattr(context, "name", None) != NAME or not take_place():
            return []
        # Sardonyx's own finder is the last one now.
        return sys.meta_path[-1].find_distributions(context)


def take_place():
    """Puts Sardonyx in the place of onnxruntime. Returns False if that was done before."""
    if Modules not in sys.meta_path:
        return False
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in (Modules, Distributions)]
    import sardonyx

    sardonyx.use_as_onnxruntime()
    return True


sys.meta_path.insert(0, Modules)
sys.meta_path.append(Distributions)
