class ConvertError(Exception):
    """Error about a model that the version converter of the onnx package cannot represent."""

def convert_version(model: bytes, target_version: int, /) -> bytes:
    """Converts a serialized ModelProto to another version of the operator set `ai.onnx`, with the
    rules of the onnx package's converter. Raises `ConvertError` for a model that this converter
    cannot represent, and `RuntimeError` for one that has no equivalent.
    """
def convert(model: bytes, target_version: int, assume: list[str], expand: bool, /) -> bytes:
    """Converts a serialized ModelProto to another version of the operator set `ai.onnx`, with the
    rules of the command `sardonyx convert`. Raises `ValueError` for an unknown assumption, and
    `RuntimeError` for a model that has no exact equivalent.

    `assume` lists assumptions about the model, such as `inference`. `expand` replaces operators
    without an equivalent by several nodes.
    """
