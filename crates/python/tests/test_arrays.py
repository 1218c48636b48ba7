"""Arrays of numpy of every form, through a model that returns what it is given."""

import numpy as np
import pytest
import sardonyx

#: As numpy and as ONNX text call them.
TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "float16",
    "bool": "bool",
    "int8": "int8",
    "uint8": "uint8",
    "int16": "int16",
    "uint16": "uint16",
    "int32": "int32",
    "uint32": "uint32",
    "int64": "int64",
    "uint64": "uint64",
    "complex64": "complex64",
    "complex128": "complex128",
}


def identity(type: str) -> sardonyx.Session:
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({type} x) => ({type} y) {{ y = Identity (x) }}'
    session = sardonyx.Session(sardonyx.parser.parse_model(text))
    # Small arrays are read by a way of their own as soon as one has been returned.
    sardonyx.Session(
        sardonyx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]> g (float[1] x) => (float[1] y) { y = Abs (x) }')
    )(np.ones(1, np.float32))
    return session


def same(found, expected) -> None:
    expected = np.asarray(expected)
    assert type(found) is np.ndarray
    assert found.dtype == expected.dtype.newbyteorder("=") and found.dtype.isnative
    assert found.shape == expected.shape
    assert (found == expected).all()
    assert found.flags.c_contiguous and found.flags.aligned and found.flags.writeable


class Own(np.ndarray):
    """A class of somebody else."""


def forms(dtype: str):
    """Arrays of a type that differ in how they lie in memory."""
    whole = np.arange(24).astype(dtype).reshape(2, 3, 4)
    read_only = whole.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + whole.tobytes(), np.uint8)[1:].view(dtype).reshape(whole.shape)
    return {
        "dense": whole,
        "without dimensions": np.array(whole[1, 1, 1]),
        "a number": whole[1, 1, 1],
        "empty": whole[:, :0],
        "read-only": read_only,
        "transposed": whole.T,
        "every other": whole[:, :, ::2],
        "backwards": whole[::-1],
        "broadcast": np.broadcast_to(whole[0, 0], (3, 4)),
        "in the order of Fortran": np.asfortranarray(whole),
        "in the other byte order": whole.astype(np.dtype(dtype).newbyteorder()),
        "unaligned": unaligned,
        "of a class of its own": whole.view(Own),
        "of many dimensions": whole.reshape((1,) * 9 + (24,)),
        "of one dimension more than are made at once": whole.reshape((1,) * 8 + (24,)),
        "large": np.tile(whole, (64, 8, 8)),
        "large and transposed": np.tile(whole, (64, 8, 8)).T,
    }


@pytest.mark.parametrize("dtype", TYPES)
def test_an_array_of_any_form_goes_in_and_comes_out(dtype):
    session = identity(f"{TYPES[dtype]}[]")
    for name, array in forms(dtype).items():
        before = np.array(array, copy=True)
        found = session(array)
        same(found, before)
        # What comes out is a copy.
        if found.size:
            found[...] = 0
            assert (array == before).all(), name


def test_small_results_own_their_memory_and_large_ones_lie_in_ours():
    session = identity("float[]")
    small, large = session(np.ones(4096, np.float32)), session(np.ones(4097, np.float32))
    assert small.base is None and small.flags.owndata
    assert isinstance(large.base, sardonyx.Tensor)


def test_what_numpy_calls_otherwise_is_taken_for_what_it_is():
    # Two types of C, and one type of ONNX.
    for code in "lq":
        same(identity("int64[]")(np.arange(3, dtype=code)), np.arange(3, dtype="int64"))
    for wrong in (np.zeros(2, "datetime64[s]"), np.zeros(2, [("a", "f4")]), np.zeros(2, "S3"), np.zeros(2, "g")):
        with pytest.raises(sardonyx.Error):
            identity("float[]")(wrong)


def test_texts_are_arrays_of_objects():
    session = identity("string[]")
    for array in (np.array(["a", "bc"]), np.array([b"a", b"bc"]), np.array(["a", "bc"], object), np.array("a")):
        found = session(array)
        assert found.dtype == object and found.shape == array.shape
        assert found.ravel().tolist()[0] == "a"


def test_a_wrong_type_or_shape_is_refused():
    session = identity("float[2]")
    for wrong, said in [
        (np.zeros(2), "double"),
        (np.zeros(3, np.float32), "dimension 0 is 3 and should be 2"),
        (np.zeros((), np.float32), "dimension"),
    ]:
        with pytest.raises(sardonyx.Error) as failed:
            session(wrong)
        assert failed.value.code == "input" and said in str(failed.value)
