def model_to_text(model: bytes, /) -> str:
    """A serialized ModelProto in the notation."""
def function_to_text(function: bytes, /) -> str:
    """A serialized FunctionProto in the notation."""
def graph_to_text(graph: bytes, /) -> str:
    """A serialized GraphProto in the notation."""
def node_to_text(node: bytes, /) -> str:
    """A serialized NodeProto in the notation."""
