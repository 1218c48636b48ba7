def parse_model(text: str, /) -> tuple[bool, bytes, bytes]:
    """Reads a model in the notation. Gives whether that went well, what is wrong, and the ModelProto."""
def parse_graph(text: str, /) -> tuple[bool, bytes, bytes]:
    """Reads a graph in the notation. Gives whether that went well, what is wrong, and the GraphProto."""
def parse_function(text: str, /) -> tuple[bool, bytes, bytes]:
    """Reads a function in the notation. Gives whether that went well, what is wrong, and the
    FunctionProto.
    """
def parse_node(text: str, /) -> tuple[bool, bytes, bytes]:
    """Reads a node in the notation. Gives whether that went well, what is wrong, and the NodeProto."""
def _parse(
    part: str, text: str, /
) -> tuple[bytes | None, str, list[tuple[bool, int, int, str, str | None]]]:
    """For the package's own parser: the message and nothing, or nothing and what is wrong, all
    together as text and one by one.
    """
