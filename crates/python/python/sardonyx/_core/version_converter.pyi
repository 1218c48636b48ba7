class ConvertError(Exception):
    """A model is one that the converter cannot hold."""

def convert_version(model: bytes, target_version: int, /) -> bytes:
    """Converts a serialized ModelProto to another version of the operator set `ai.onnx`, as the
    converter of the onnx package does.
    """
def convert(model: bytes, target_version: int, assume: list[str], expand: bool, /) -> bytes:
    """Converts a serialized ModelProto to another version of the operator set `ai.onnx`, as the
    command `convert` does.
    """
