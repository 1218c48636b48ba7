from collections.abc import Sequence

def simplify(
    model: bytes, level: str, grow: int | None, without: Sequence[str], verify: bool, /
) -> bytes:
    """Simplifies a serialized ModelProto. Returns the simplified one."""
