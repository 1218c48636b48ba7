def parse_model(text: str, /) -> tuple[bool, bytes, bytes]:
    """Parses a model in the ONNX text format. Returns a tuple of success, error messages, and the
    serialized ModelProto.
    """
def parse_graph(text: str, /) -> tuple[bool, bytes, bytes]:
    """Parses a graph in the ONNX text format. Returns a tuple of success, error messages, and the
    serialized GraphProto.
    """
def parse_function(text: str, /) -> tuple[bool, bytes, bytes]:
    """Parses a function in the ONNX text format. Returns a tuple of success, error messages, and the
    serialized FunctionProto.
    """
def parse_node(text: str, /) -> tuple[bool, bytes, bytes]:
    """Parses a node in the ONNX text format. Returns a tuple of success, error messages, and the
    serialized NodeProto.
    """
def _parse(
    part: str, text: str, /
) -> tuple[bytes | None, str, list[tuple[bool, int, int, str, str | None]]]:
    """Parses a part of a model for the Python package. Returns a tuple of the serialized message (None
    after an error), all problems as one text, and the list of problems. Raises `ValueError` for an
    unknown part.
    """
