def model_to_text(model: bytes, /) -> str:
    """Formats a serialized ModelProto in the ONNX text format."""
def function_to_text(function: bytes, /) -> str:
    """Formats a serialized FunctionProto in the ONNX text format."""
def graph_to_text(graph: bytes, /) -> str:
    """Formats a serialized GraphProto in the ONNX text format."""
def node_to_text(node: bytes, /) -> str:
    """Formats a serialized NodeProto in the ONNX text format."""
