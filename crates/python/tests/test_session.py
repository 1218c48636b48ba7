"""Sessions: what goes in, what comes out, and what is rejected."""

import array
import collections
import contextlib
import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx


def model(text, opset=21, ml=False, ir=10):
    imports = f'"": {opset}' + (', "ai.onnx.ml": 3' if ml else "")
    return sardonyx.parser.parse_model(f"<ir_version: {ir}, opset_import: [{imports}]>\n{text}")


def session(text, *, opset=21, ml=False, ir=10, **options):
    return sardonyx.Session(model(text, opset, ml, ir), **options)


def floats(*shape):
    count = int(np.prod(shape))
    return np.arange(count, dtype=np.float32).reshape(shape)


TWO = "g (float[N, 3] x, float[N] y) => (float[N, 3] z, float[M] w) { z = Relu (x) w = Neg (y) }"
RELU = "g (float[N] x) => (float[N] y) { y = Relu (x) }"
# Ends after as many turns as there are integers.
ENDLESS = """g (float x) => (float y) {
    y = Loop (, , x) <body = turn (int64 i, bool c, float v) => (bool d, float w) {
        d = Constant <value = bool {1}> () w = Add (v, v) }> }"""


def test_ways_to_give_inputs_and_names():
    two = session(TWO)
    x, y = floats(2, 3), floats(2)
    for z, w in (two(x, y), two(x, y=y), two(y=y, x=x)):
        np.testing.assert_array_equal(z, x)
        np.testing.assert_array_equal(w, -y)
    assert isinstance(two(x, y), tuple)
    assert list(two.run({"y": y, "x": x})) == ["z", "w"]
    assert list(two.run({"x": x, "y": y}, outputs=["w"])) == ["w"]
    assert list(two.run(collections.UserDict(x=x, y=y))) == ["z", "w"]
    np.testing.assert_array_equal(session(RELU)([-1.0, 2.0]), [0, 2])


def test_models_of_all_kinds(tmp_path):
    content = model(RELU)
    path = tmp_path / "relu.onnx"
    path.write_bytes(content)
    message = onnx.load_from_string(content)
    for given in (str(path), path, content, bytearray(content), memoryview(content), message):
        np.testing.assert_array_equal(sardonyx.Session(given)(floats(3)), floats(3))


def test_ports_and_facts():
    text = "g (float[N, ?, 2] x, float[] u, seq(float[N]) s) => (y) { y = Relu (x) }"
    made = session(text)
    rows = [(port.name, port.type, port.kind, port.dtype, port.shape, port.required) for port in made.inputs]
    assert rows == [
        ("x", "float[N, ?, 2]", "tensor(float)", "float", ["N", None, 2], True),
        ("u", "float[...]", "tensor(float)", "float", None, True),
        ("s", "seq(float[N])", "seq(tensor(float))", None, None, True),
    ]
    message = onnx.load_from_string(model(RELU))
    message.producer_name, message.model_version, message.graph.doc_string = "me", 7, "of the graph"
    onnx.helper.set_model_props(message, {"key": "value"})
    made = sardonyx.Session(message)
    assert made.metadata == {"key": "value"}
    assert (made.info["producer_name"], made.info["version"], made.info["graph_name"]) == ("me", 7, "g")


# What is given for float[N, M] and what it is.
DENSE = floats(2, 3)
TENSORS = [
    DENSE,
    np.asfortranarray(DENSE),
    np.repeat(DENSE, 2, axis=1)[:, ::2],
    DENSE[::-1][::-1],
    DENSE.astype(">f4"),
    DENSE.tolist(),
    tuple(map(tuple, DENSE.tolist())),
    [DENSE[0], DENSE[1]],
    [[0, 1, 2], [3, 4, 5]],
    [[np.float32(0), 1, 2.0], [3, np.int8(4), True + 4]],
    memoryview(DENSE),
    np.broadcast_to(DENSE, (1, 2, 3))[0],
    np.ma.masked_array(DENSE),
]


@pytest.mark.parametrize("given", TENSORS, ids=lambda given: type(given).__name__)
def test_what_is_an_array_of_floats(given):
    two = session("g (float[N, M] x) => (float[N, M] y) { y = Identity (x) }")
    np.testing.assert_array_equal(two(given), DENSE)


class OfDlpack:
    """What another library offers: an array by DLPack alone."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class OfArray:
    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values


class DlTensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


NEW_CAPSULE = ctypes.pythonapi.PyCapsule_New
NEW_CAPSULE.restype = ctypes.py_object
NEW_CAPSULE.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Handed:
    """An array that is handed over as its fields say, true or not."""

    def __init__(self, data, shape, code=2, bits=32, lanes=1, strides=None, offset=0, device=1, ndim=None):
        self.kept = data
        numbers = ctypes.c_int64 * 64
        self.shape_ = numbers(*shape)
        self.strides_ = None if strides is None else numbers(*strides)
        self.device = device
        self.managed = DlTensor(
            None if data is None else data.ctypes.data, device, 0, len(shape) if ndim is None else ndim,
            code, bits, lanes, self.shape_, self.strides_, offset,
        )  # fmt: skip

    def __dlpack__(self):
        return NEW_CAPSULE(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self):
        return (self.device, 0)


def test_arrays_by_dlpack():
    same = session("g (float[] x) => (float[] y) { y = Identity (x) }")
    values = floats(12)
    rows = [
        (Handed(values, [2, 3]), values[:6].reshape(2, 3)),
        (Handed(values, [2, 3], strides=[6, 2]), values.reshape(2, 6)[:, ::2]),
        (Handed(values, [2, 3], strides=[1, 2], offset=8), values[2:8].reshape(3, 2).T),
        (Handed(values, [3], strides=[-2], offset=40), values[10:5:-2]),
        (Handed(values, [2, 3], strides=[0, 1]), np.broadcast_to(values[:3], (2, 3))),
        (Handed(values, []), values[0]),
        (Handed(None, [0, 3]), np.zeros((0, 3), np.float32)),
        (OfDlpack(values.reshape(3, 4).T), values.reshape(3, 4).T),
    ]
    for given, expected in rows:
        result = same(given)
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result, expected)
    # An array that must not be written cannot be handed over in the old form.
    read_only = floats(2)
    read_only.flags.writeable = False
    np.testing.assert_array_equal(same(OfDlpack(read_only)), read_only)
    brain = session("g (bfloat16[N] x) => (float[N] y) { y = Cast <to = 1> (x) }")
    codes = np.array([0x3F80, 0xC000], np.uint16)
    assert brain(Handed(codes, [2], code=4, bits=16)).tolist() == [1, -2]


WRONG_ARRAYS = [
    (Handed(floats(2), [2], device=2), "is on another device"),
    (Handed(floats(2), [2], code=3), "which is not an ONNX type"),
    (Handed(floats(2), [2], lanes=2), "which is not an ONNX type"),
    (Handed(floats(2), [-2]), "invalid shape"),
    (Handed(floats(2), [2], ndim=-1), "invalid number of dimensions"),
    (Handed(floats(2), [2], ndim=1000), "invalid number of dimensions"),
    (Handed(None, [2]), "data pointer is null"),
    (Handed(floats(2), [2], strides=[2**62]), "which are too large"),
    (Handed(floats(2), [2**62, 2**62]), "which are too large"),
]


@pytest.mark.parametrize(("given", "said"), WRONG_ARRAYS)
def test_arrays_by_dlpack_that_are_wrong(given, said):
    with pytest.raises(sardonyx.Error, match=said):
        session(RELU)(given)


def test_arrays_of_other_libraries():
    same = session("g (float[N, M] x) => (float[N, M] y) { y = Identity (x) }")
    for given in (OfDlpack(DENSE), OfArray(DENSE)):
        np.testing.assert_array_equal(same(given), DENSE)
    one = session("g (double[N] x) => (double[N] y) { y = Identity (x) }")
    np.testing.assert_array_equal(one(array.array("d", [1, 2])), [1, 2])


# The ONNX name of a type, what numpy or ml_dtypes calls it, and values of it.
TYPES = [
    ("float", np.float32, [1.5, -2]),
    ("double", np.float64, [1.5, -2]),
    ("float16", np.float16, [1.5, -2]),
    ("bool", np.bool_, [True, False]),
    ("int8", np.int8, [-128, 127]),
    ("uint8", np.uint8, [0, 255]),
    ("int16", np.int16, [-32768, 32767]),
    ("uint16", np.uint16, [0, 65535]),
    ("int32", np.int32, [-(2**31), 2**31 - 1]),
    ("uint32", np.uint32, [0, 2**32 - 1]),
    ("int64", np.int64, [-(2**63), 2**63 - 1]),
    ("uint64", np.uint64, [0, 2**64 - 1]),
    ("complex64", np.complex64, [1 + 2j, -1j]),
    ("complex128", np.complex128, [1 + 2j, -1j]),
    ("bfloat16", ml_dtypes.bfloat16, [1.5, -2]),
    ("float8e4m3fn", ml_dtypes.float8_e4m3fn, [1.5, -2]),
    ("float8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, [1.5, -2]),
    ("float8e5m2", ml_dtypes.float8_e5m2, [1.5, -2]),
    ("float8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, [1.5, -2]),
    ("uint4", ml_dtypes.uint4, [0, 15]),
    ("int4", ml_dtypes.int4, [-8, 7]),
    ("float4e2m1", ml_dtypes.float4_e2m1fn, [1.5, -6]),
    ("float8e8m0", ml_dtypes.float8_e8m0fnu, [1, 4]),
    ("uint2", ml_dtypes.uint2, [0, 3]),
    ("int2", ml_dtypes.int2, [-2, 1]),
]


@pytest.mark.parametrize(("name", "dtype", "values"), TYPES, ids=[row[0] for row in TYPES])
def test_every_type_goes_in_and_comes_out(name, dtype, values):
    same = session(
        f"g ({name}[N, M] x) => ({name}[N, M] y) {{ y = Identity (x) }}", opset=25, ir=12
    )
    # An odd number of elements, so that packed ones end within a byte.
    given = np.array([values, values[::-1], values], dtype=dtype)[:, :1]
    for form in (given, given.T.copy().T, np.repeat(given, 2, axis=0)[::2]):
        result = same(form)
        assert result.dtype == np.dtype(dtype) and result.shape == (3, 1)
        np.testing.assert_array_equal(result.astype(object), given.astype(object))
    assert same(np.zeros((0, 4), dtype)).shape == (0, 4)
    result = same([[value] for value in values])
    np.testing.assert_array_equal(result[:, 0].astype(object), np.array(values, dtype).astype(object))
    scalar = session(f"g ({name} x) => ({name} y) {{ y = Identity (x) }}", opset=25, ir=12)
    for form in (np.array(values[0], dtype), np.dtype(dtype).type(values[0]), values[0]):
        result = scalar(form)
        assert result.shape == () and result.dtype == np.dtype(dtype)
        assert result == np.array(values[0], dtype)


TEXTS = [
    np.array(["a", "bcd", "é"]),
    np.array(["a", "bcd", "é"], dtype=object),
    np.array(["x", "é", "x", "bcd", "x", "a"])[::-2],
    np.array(["a".encode(), b"bcd", "é".encode()]),
    ["a", "bcd", "é"],
    ("a", b"bcd", "é"),
]


@pytest.mark.parametrize("given", TEXTS, ids=lambda given: type(given).__name__)
def test_texts(given):
    same = session("g (string[N] x) => (string[N] y) { y = Identity (x) }")
    result = same(given)
    assert result.dtype == object and result.tolist() == ["a", "bcd", "é"]
    assert same(np.array([], dtype="<U1")).shape == (0,)


def test_texts_of_other_objects_and_bytes():
    same = session("g (string[N] x) => (string[N] y) { y = Identity (x) }")
    assert same(np.array(["a", 1, None], dtype=object)).tolist() == ["a", "1", "None"]
    # Bytes that are not UTF-8 come back as they went.
    odd = same([b"\xff\xfe"])
    assert odd[0].encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert same(odd).tolist() == odd.tolist()
    one = session("g (string x) => (string y) { y = Identity (x) }")
    assert one("abc").shape == () and one("abc")[()] == "abc"


def test_sequences_maps_and_optionals():
    joined = session("g (seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence <axis = 0> (x) }")
    np.testing.assert_array_equal(joined([floats(2), [5.0]]), [0, 1, 5])
    np.testing.assert_array_equal(joined((floats(1), floats(2))), [0, 0, 1])
    made = session("g (float[N] x) => (seq(float[N]) y) { y = SequenceConstruct (x, x) }")
    assert [part.tolist() for part in made(floats(2))] == [[0, 1], [0, 1]]
    zip_map = session(
        """g (float[N, 2] x) => (seq(map(int64, float)) y) {
            y = ai.onnx.ml.ZipMap <classlabels_int64s = [7, 9]> (x) }""",
        ml=True,
    )
    assert zip_map(floats(2, 2)) == [{7: 0.0, 9: 1.0}, {7: 2.0, 9: 3.0}]
    assert isinstance(zip_map(floats(1, 2))[0][7], float)
    picked = session(
        """g (map(string, float) x) => (float[1, 2] y) {
            y = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a", "b"]> (x) }""",
        ml=True,
    )
    assert picked({"b": 2.0, "a": np.float32(1)}).ravel().tolist() == [1, 2]
    # As skl2onnx declares the entries.
    picked = session(
        """g (map(string, float[1]) x) => (y) {
            y = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a", "b"]> (x) }""",
        ml=True,
    )
    assert picked({"b": 2.0, "a": np.float32(1)}).ravel().tolist() == [1, 2]
    assert picked({"b": np.float32([2])}).ravel().tolist() == [0, 2]
    with pytest.raises(sardonyx.Error):
        picked({"b": np.float32([2, 3])})
    optional = session("g (optional(float[N]) x) => (bool b) { b = OptionalHasElement (x) }")
    assert [bool(optional(x)) for x in (None, floats(2))] == [False, True]
    assert not optional()


def test_sparse_tensors():
    same = session("g (sparse_tensor(float[2, 3]) x) => (sparse_tensor(float[2, 3]) y) { y = Identity (x) }")
    given = sardonyx.SparseTensor(np.float32([1, 2]), np.int64([1, 5]), (2, 3))
    result = same(given)
    assert result.values.tolist() == [1, 2] and result.shape == (2, 3)
    dense = np.zeros((2, 3), np.float32)
    dense.flat[[1, 5]] = [1, 2]
    assert same(dense).values.tolist() == [1, 2]


def test_inputs_with_defaults_may_be_left_out():
    added = session("g (float[1] x, float[1] d = {2}) => (float[1] y) { y = Add (x, d) }")
    assert [added(*args).tolist() for args in ([[1.0]], [[1.0], None], [[1.0], [5.0]])] == [[3], [3], [6]]


def test_outputs_are_writable_and_own_their_memory():
    relu = session(RELU)
    # A large input is not copied on the way in, and its loan ends with the run.
    for size in (4, 1 << 16):
        x = floats(size).copy()
        y = relu(x)
        assert y.flags.writeable and y.flags.aligned and y.flags.c_contiguous
        kept = y.copy()
        y[0] = 17
        del relu
        gc.collect()
        relu = session(RELU)
        for _ in range(3):
            relu(x + 1)
        assert y[0] == 17 and (y[1:] == kept[1:]).all() and x[0] == 0
        x.resize(size + 1, refcheck=False)


def test_outputs_wanted_twice_are_two_arrays():
    text = "g (float[N] x) => (float[N] y, float[N] z) { y = Relu (x) z = Neg (x) }"
    x = floats(1 << 16)
    first, z, second = sardonyx.InferenceSession(model(text)).run(["y", "z", "y"], {"x": x})
    first[1] = 7
    assert second[1] == 1 and z[1] == -1
    # Names need not be the objects that the session has.
    assert list(session(text).run({"x": x}, outputs=["".join(["", "z"]), "y"])) == ["z", "y"]


def test_an_output_that_is_an_input_or_a_constant_is_a_copy():
    same = session("g (float[N] x) => (float[N] y, float[N] z) { y = Identity (x) z = Identity (x) }")
    for size in (2, 1 << 16):
        x = floats(size)
        y, z = same(x)
        y[0] = 5
        assert x[0] == 0 and z[0] == 0
    constant = session("g () => (float[2] y) { y = Constant <value_floats = [1.0, 2.0]> () }")
    constant()[0] = 5
    assert constant().tolist() == [1, 2]


def test_inputs_are_let_go():
    relu = session(RELU)
    for size in (4, 1 << 16):
        x = floats(size)
        gone = weakref.ref(x)
        y = relu(x)
        del x
        gc.collect()
        assert gone() is None and len(y) == size


# What is given for `x` of float[N, 3], and what is said.
REFUSED = [
    (floats(2, 4), "dimension 1 is 4 and should be 3"),
    (floats(2), "has 1 dimensions, [2]"),
    (np.zeros((2, 3)), "has element type double"),
    (np.zeros((2, 3), np.int64), "has element type int64"),
    (None, "the input 'x' is missing"),
    ("text", "which does not have type float"),
    (object(), "is an object, which is not an array"),
    ({}, "which is not an array"),
    ([[1, 2, 3], [1]], "lists that differ in length or depth"),
    ([[1, 2, "a"]], "which does not have type float"),
    ([[1, 2, 1j]], "which does not have type float"),
    ([[1, 2, 10**400]], "which does not have type float"),
    (np.array([["a", "b", "c"]]), "but the model expects float"),
    (np.array([[1, 2, None]]), "but the model expects float"),
    (np.zeros((2, 3), "M8[s]"), "which is not an ONNX type"),
    (np.zeros((2, 3), np.longdouble), "which is not an ONNX type"),
    (np.zeros((2, 3), [("a", "f4")]), "which is not an ONNX type"),
    (np.float32, "which is not an array"),
]


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_does_not_fit_is_refused(given, said):
    two = session(TWO)
    with pytest.raises(sardonyx.Error) as raised:
        two.run({"x": given, "y": floats(2)})
    assert raised.value.code == "input" and said in str(raised.value), raised.value
    assert said in raised.value.message or said in (raised.value.help or "")


def test_integers_out_of_range_and_endless_lists_are_refused():
    small = session("g (int8[N] x) => (int8[N] y) { y = Identity (x) }")
    other = "does not have type int8"
    for given, said in (([128], "128, which is out of range for int8"), ([1.0], other), ([2**70], other)):
        with pytest.raises(sardonyx.Error, match=said):
            small(given)
    loop = []
    loop.extend([loop, loop])
    with pytest.raises(sardonyx.Error, match="nested more than"):
        small(loop)
    nested = session("g (seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence <axis = 0> (x) }")
    with pytest.raises(sardonyx.Error, match="item 0 of the input 'x'"):
        nested([loop])


CALLS = [
    (lambda two: two(floats(2, 3)), "the input 'y' is missing"),
    (lambda two: two(1, 2, 3), "the model has 2 inputs, but 3 are passed"),
    (lambda two: two(floats(2, 3), x=floats(2, 3)), "the input 'x' is given twice"),
    (lambda two: two(floats(2, 3), yy=floats(2)), "the model has no input 'yy'"),
    (lambda two: two(floats(2, 3), floats(5)), "so N is 5, but N is 2"),
    (lambda two: two.run({1: 2}), "the name 1 of an input is not a str"),
    (lambda two: two.run([1]), "which is not a dict of names and values"),
    (lambda two: two.run({"x": floats(2, 3), "y": floats(2)}, outputs=["q"]), "the model has no output 'q'"),
]


@pytest.mark.parametrize(("call", "said"), CALLS, ids=[said for _, said in CALLS])
def test_calls_that_are_refused(call, said):
    with pytest.raises(sardonyx.Error) as raised:
        call(session(TWO))
    assert said in raised.value.message


def test_errors_of_models_say_what_and_where(tmp_path):
    rows = [
        ("/nonexistent.onnx", "io"),
        (b"\x00garbage", "format"),
        (b"", "format"),
        (model("g (float[N] x) => (float[N] y) { y = Foo (x) z = Bar (x) }"), "unsupported"),
        (model("g (float[N] x) => (float[N] y) { y = Relu (q) }"), "invalid"),
    ]
    for given, code in rows:
        with pytest.raises(sardonyx.Error) as raised:
            sardonyx.Session(given)
        assert raised.value.code == code, raised.value
    reshaped = session("g (float[N] x, int64[K] s) => (y) { y = Reshape (x, s) }")
    with pytest.raises(sardonyx.Error) as raised:
        reshaped(floats(6), [4, 4])
    assert raised.value.code == "run" and "Reshape" in raised.value.place
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value) and again.code == "run"
    with pytest.raises(sardonyx.Error) as raised:
        session("g (float[N] x) => (float[N] y) { y = Foo (x) z = Bar (x) }")
    assert len(raised.value.unsupported) == 2
    for wrong in (5, None, object()):
        with pytest.raises(TypeError, match="model must be a path"):
            sardonyx.Session(wrong)


OPTIONS = [
    ({"threads": 0}, "threads must be 1 or more"),
    ({"threads": 2**63}, "which is above 1024"),
    ({"threads": 2**31, "precision": "fast"}, "the number of threads is 2147483648"),
    ({"precision": "half"}, "precision is 'half', which does not exist"),
    ({"dims": {"Q": 3}}, "Q"),
    ({"dims": {"N": -3}}, "which is not a name with a size"),
    ({"dims": {1: 3}}, "which is not a name with a size"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS, ids=[said for _, said in OPTIONS])
def test_options_that_are_refused(options, said):
    with pytest.raises(sardonyx.Error) as raised:
        session(RELU, **options)
    assert raised.value.code == "argument" and said in raised.value.message


def test_advice_about_arguments_is_in_help():
    with pytest.raises(sardonyx.Error) as raised:
        session(RELU, precision="half")
    assert raised.value.help == "use 'exact' or 'fast'"
    with pytest.raises(sardonyx.Error) as raised:
        session(RELU, dims={"N": -3})
    assert raised.value.help == "give each dimension name a size: dims={'batch': 8}"
    with pytest.raises(sardonyx.Error) as raised:
        sardonyx.add_training(RELU, "hinge")
    assert raised.value.help == "use one of: cross-entropy, squared-error"


def test_options():
    assert session(RELU, threads=1).threads == 1
    assert session(RELU, dims={"N": 3}).inputs[0].shape == [3]
    assert session(RELU, precision="fast")(floats(2)).tolist() == [0, 1]
    with pytest.raises(sardonyx.Error, match="limit"):
        session(RELU, memory_limit=100)(floats(1000))
    drawn = "g () => (float[4] y) { y = RandomNormal <shape = [4]> () }"
    assert (session(drawn, seed=3)() == session(drawn, seed=3)()).all()


def test_sessions_are_pickled(tmp_path):
    path = tmp_path / "relu.onnx"
    path.write_bytes(model(RELU))
    for given in (path, path.read_bytes()):
        made = sardonyx.Session(given, threads=1, dims={"N": 3}, precision="fast", memory_limit=1 << 20)
        again = pickle.loads(pickle.dumps(made))
        assert again.threads == 1 and again.inputs[0].shape == [3]
        assert again(floats(3)).tolist() == [0, 1, 2]
    assert len(pickle.dumps(sardonyx.Session(path))) < 1000


def test_runs_end_at_a_deadline_or_by_a_flag():
    endless = session(ENDLESS)
    with pytest.raises(sardonyx.Error) as raised:
        endless.run({"x": 1.0}, timeout=0.01)
    assert raised.value.code == "stopped" and "Loop" in raised.value.place
    with sardonyx.deadline(0.01), pytest.raises(sardonyx.Error, match="timeout"):
        with sardonyx.deadline(100):
            endless(1.0)
    flag = sardonyx.StopFlag()
    threading.Timer(0.02, flag.stop).start()
    # That the timer gets its turn shows that the run releases the interpreter.
    with pytest.raises(sardonyx.Error, match="stopped"):
        endless.run({"x": 1.0}, stop=flag)
    assert flag.is_raised
    assert session(RELU)(floats(2)).tolist() == [0, 1]
    for seconds in (-1, float("nan")):
        with pytest.raises(ValueError):
            sardonyx.deadline(seconds)


def test_deadlines_are_of_the_thread_that_is_in_the_block():
    endless, relu = session(ENDLESS), session(RELU)
    soon = sardonyx.deadline(0.01)
    outcomes = []

    def work(model, given, block):
        try:
            with block:
                model(given)
            outcomes.append("done")
        except sardonyx.Error as error:
            outcomes.append(error.code)

    with soon:
        calls = [(endless, 1.0, soon), (relu, floats(2), contextlib.nullcontext())]
        threads = [threading.Thread(target=work, args=call) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        for thread in threads:
            thread.join()
        with pytest.raises(sardonyx.Error, match="timeout"):
            relu(floats(2))
    assert sorted(outcomes) == ["done", "stopped"]
    assert relu(floats(2)).tolist() == [0, 1]
    soon.__exit__(None, None, None)


def test_many_threads_call_one_session_and_make_others():
    relu, failures = session(RELU), []

    def call(number):
        try:
            for size in (1, number + 1, 20_000 + number):
                x = np.full(size, number, np.float32)
                assert (relu(x) == x).all()
            assert session(RELU)(floats(2)).tolist() == [0, 1]
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=call, args=[number]) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


FIVE = """
import os
import threading
import numpy as np
import sardonyx

some = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, some)
model = sardonyx.parser.parse_model('''
    <ir_version: 10, opset_import: ["": 21]> g (float[N, N] x) => (float[N, N] y) { y = MatMul (x, x) }
''')
x = np.ones((256, 256), np.float32)
sessions = [sardonyx.Session(model) for _ in range(5)]
threads = [threading.Thread(target=session, args=(x,)) for session in sessions]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
workers = [name for name in names if name.startswith("sardonyx-")]
print([session.threads for session in sessions] == [len(some)] * 5, len(workers) == len(some) - 1)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_sessions_share_the_threads_that_the_process_may_use():
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", FIVE]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True).stdout
    assert said == "True True\n"


class Changing:
    """Changes the dict of inputs while these are taken."""

    def __init__(self, feeds):
        self.feeds = feeds

    def __array__(self, dtype=None, copy=None):
        for number in range(100):
            self.feeds[f"more {number}"] = 1
        return floats(2)


class Raising:
    @property
    def dtype(self):
        raise RuntimeError("from within")


def test_code_of_inputs_may_do_as_it_likes():
    relu = session(RELU)
    feeds = {}
    feeds["x"] = Changing(feeds)
    assert relu.run(feeds)["y"].tolist() == [0, 1]
    with pytest.raises(RuntimeError, match="from within"):
        relu(Raising())


def test_sizes_of_one_name_may_be_made_independent():
    two = session(TWO)
    z, w = two.with_independent_sizes()(floats(2, 3), floats(5))
    assert z.shape == (2, 3) and w.shape == (5,)


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import sardonyx, array
assert "numpy" not in {name for name, module in sys.modules.items() if module}
model = sardonyx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>'
    'g (float[N, 2] x, string[K] t) => (float[N, 2] y, string[K] u) { y = Relu (x) u = Identity (t) }')
session = sardonyx.Session(model)
y, u = session([[1, -2], [3, 4]], ["a", "b"])
assert (type(y), y.shape, y.dtype, y.tolist()) == (sardonyx.Tensor, (2, 2), "float", [[1, 0], [3, 4]])
assert u.tolist() == ["a", "b"] and repr(u) == "Tensor(string[2])"
view = memoryview(y)
assert (view.format, view.shape, view.strides, view.readonly) == ("f", (2, 2), (8, 4), False)
view[0, 1] = 7.0
assert y.tolist() == [[1, 7], [3, 4]] and len(y.tobytes()) == 16
again, _ = session(y, u)
assert again.tolist() == [[1, 7], [3, 4]]
again, _ = session(memoryview(array.array("f", [1, 2])).cast("B").cast("f", (1, 2)), ["a"])
assert again.tolist() == [[1, 2]]
empty, none = session(memoryview(y)[:0], [])
assert empty.tolist() == [] and none.tolist() == []
"""


# Tensors are what runs return for types that numpy lacks without ml_dtypes; numpy must not have it for floats either.
HANDED_OVER = """
import sys, gc
sys.modules["numpy"] = None
import sardonyx
model = sardonyx.parser.parse_model('<ir_version: 12, opset_import: ["": 23]>'
    'g (float[N, 2] x) => (float[N, 2] y, bfloat16[N, 2] b, int4[N, 2] i, string t, float[] e) {'
    ' y = Relu (x) b = Cast <to = 16> (x) i = Cast <to = 22> (x)'
    ' t = Constant <value_string = "a"> () s = Constant <value_ints = [0, 3]> () e = ConstantOfShape (s) }')
y, b, i, t, e = sardonyx.Session(model)([[1, -2], [3, 4]])
del sys.modules["numpy"]
import numpy as np
assert y.__dlpack_device__() == (1, 0)
shared = np.from_dlpack(y)
copied = np.from_dlpack(y, copy=True)
memoryview(y)[0, 0] = 7.0
assert shared.tolist() == [[7, 0], [3, 4]] and copied.tolist() == [[1, 0], [3, 4]]
assert np.from_dlpack(e).shape == (0, 3)
for _ in range(100):
    y.__dlpack__()
again = sardonyx.parser.parse_model('<ir_version: 12, opset_import: ["": 23]>'
    'g (bfloat16[N, 2] x) => (float[N, 2] y) { y = Cast <to = 1> (x) }')
class Only:
    def __dlpack__(self): return b.__dlpack__()
    def __dlpack_device__(self): return (1, 0)
assert sardonyx.Session(again)(Only()).tolist() == [[1, -2], [3, 4]]
for tensor in (i, t):
    try:
        tensor.__dlpack__()
    except BufferError as error:
        assert "DLPack has no type" in str(error)
    else:
        raise AssertionError
try:
    y.__dlpack__(dl_device=(2, 0))
except BufferError:
    pass
del y, e
gc.collect()
assert shared.tolist() == [[7, 0], [3, 4]]
"""


def test_tensors_are_handed_over():
    subprocess.run([sys.executable, "-c", HANDED_OVER], check=True)


def test_numpy_is_optional():
    subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], check=True)


def test_the_form_of_onnxruntime_is_answered_with_how_to_call():
    made = session(RELU)
    for outputs in (None, ["y"]):
        with pytest.raises(TypeError, match=r"run\(\{'x': x\}, outputs=\['y'\]\).*sardonyx.InferenceSession"):
            made.run(outputs, {"x": [1.0]})


def test_a_profile_says_how_long_steps_take():
    made = session("""
        g (float[N, N] x, int64 turns, bool go) => (float[N, N] y) {
            s = Softmax (x)
            y = Loop (turns, go, s) <body = b (int64 i, bool c, float[N, N] v) => (bool d, float[N, N] w) {
                d = Identity (c)
                w = MatMul (v, v)
            }>
        }
    """)
    feeds = {"x": np.ones((32, 32), np.float32), "turns": np.int64(50), "go": np.bool_(True)}
    profile = made.profile(feeds, runs=5)
    assert isinstance(profile, sardonyx.Profile)
    assert (profile.runs, profile.threads) == (5, made.threads)
    assert [step[:3] for step in profile.steps] == made.steps()
    assert profile.run_us > 0 and all(step.us >= 0 for step in profile.steps)
    # The turns of a loop count together.
    (product,) = [step for step in profile.steps if step.op == "MatMul"]
    assert product in profile.slowest(3) and len(profile.slowest(1)) == 1
    assert profile.operators()["MatMul"] == product.us
    assert repr(profile).startswith("Profile(5 runs, ")
    lines = str(profile).splitlines()
    assert lines[1].split() == ["us", "operator", "node", "kernel"]
    assert any("MatMul" in line for line in lines)
    with pytest.raises(ValueError, match="runs must be 1 or more"):
        made.profile(feeds, runs=0)
    with pytest.raises(sardonyx.Error, match="'go' is missing"):
        made.profile({"x": feeds["x"], "turns": feeds["turns"]})
    with pytest.raises(sardonyx.Error) as stopped:
        made.profile({**feeds, "turns": np.int64(2**40)}, timeout=0.1)
    assert stopped.value.code == "stopped"


def test_tensors_are_made_of_anything_that_runs_take():
    tensor = sardonyx.Tensor([[1.5, -2.0]], dtype="bfloat16")
    assert (tensor.shape, tensor.dtype, tensor.tolist()) == ((1, 2), "bfloat16", [[1.5, -2.0]])
    assert sardonyx.Tensor(7).dtype == "int64" and sardonyx.Tensor(7).shape == ()
    assert sardonyx.Tensor(["a", "b"]).tolist() == ["a", "b"]
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    copied = sardonyx.Tensor(array[:, ::2])
    array[:] = 0
    assert copied.tolist() == [[0, 2], [3, 5]] and copied.dtype == "int16"
    assert sardonyx.Tensor(copied, "double").tolist() == [[0.0, 2.0], [3.0, 5.0]]
    assert sardonyx.Tensor(np.ones(100_000, np.float32)).shape == (100_000,)
    for call, code, message in [
        (lambda: sardonyx.Tensor([1], dtype="floatt"), "argument", "dtype is 'floatt'"),
        (lambda: sardonyx.Tensor(object()), "input", "the tensor is an object"),
        (lambda: sardonyx.Tensor(["a"], dtype="float"), "input", "the tensor"),
    ]:
        with pytest.raises(sardonyx.Error, match=message) as refused:
            call()
        assert refused.value.code == code


def test_what_gives_no_array_is_refused_with_its_reason():
    class Stubborn:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("not today")

    said = "the input 'x' is an object of the class .*Stubborn, which cannot be converted to an array: not today"
    with pytest.raises(sardonyx.Error, match=said) as refused:
        session(RELU)(Stubborn())
    assert refused.value.code == "input"
    assert isinstance(refused.value.__cause__, RuntimeError)
