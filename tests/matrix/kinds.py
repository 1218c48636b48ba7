"""Types as the schemas write them, such as `seq(tensor(float))`, and values of them.

The element of a type is the type of the numbers or texts at its core: `float`.
"""

import re

import numpy as np
from onnx import TensorProto, helper

# The values of integers, as powers of two that they lie between.
INTEGERS = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits) for bits in (2, 4, 8, 16, 32, 64)},
}
COMPLEX = ("complex64", "complex128")
# Numbers that are rounded to so few digits that values are chosen to be exact, and the largest one.
SMALL_FLOATS = {"float4e2m1": 6, "float8e4m3fn": 448, "float8e4m3fnuz": 240, "float8e5m2": 448, "float8e5m2fnuz": 448}
FLOATS = ("float16", "bfloat16", "float", "double", *SMALL_FLOATS, "float8e8m0")


def plain(kind):
    """One spelling of each type: schemas write `map(int64, string)`, models have `map(int64,tensor(string))`."""
    found = re.fullmatch(r"(.*)map\((\w+), *(?:tensor\()?(\w+)\)*", kind)
    return f"{found[1]}map({found[2]},{found[3]})" + ")" * found[1].count("(") if found else kind


def element(kind):
    return re.fullmatch(r"[\w(]*\((\w+)\)+|.*map.*", kind)[1]


def layers(kind):
    """What is around the element: `seq(tensor(float))` has `seq` and `tensor`."""
    return tuple(kind.split("(")[:-1])


def inner(kind):
    """What a sequence or an optional value holds; a tensor holds itself."""
    return kind.split("(", 1)[1][:-1] if layers(kind)[0] in ("seq", "optional") else kind


def with_element(kind, name):
    return kind.replace(f"({element(kind)})", f"({name})")


def number(name):
    return TensorProto.DataType.Value(name.upper())


def dtype(name):
    return np.dtype(object) if name == "string" else helper.tensor_dtype_to_np_dtype(number(name))


def notation(kind, shape):
    """The type in the notation of the onnx package."""
    return kind.replace(f"tensor({element(kind)})", f"{element(kind)}{shape}")


def group(name):
    """Types in whose place a value is most natural."""
    if name in INTEGERS:
        return "integer"
    if name in FLOATS:
        return "float"
    return "complex" if name in COMPLEX else name


def element_of(array):
    array = np.asarray(array)
    if array.dtype.kind in "OUS":
        return "string"
    return TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(array.dtype)).lower()


def value_of(kind, array):
    """A value of the type that is made of one array: a sequence holds it twice, backwards the second time."""
    first, *others = layers(kind)
    if first == "optional":
        return value_of(inner(kind), array)
    if first == "seq":
        return [value_of(inner(kind), array), value_of(inner(kind), array[::-1].copy())]
    return converted(array, element(kind))


def converted(value, name):
    """The array or list of arrays with another element; numbers change where the element does not have them."""
    if isinstance(value, list):
        return [converted(each, name) for each in value]
    if value is None or element_of(value) == name:
        return value
    values = np.asarray(value)
    if values.dtype.kind in "OUS":
        values = np.unique(values.astype(str), return_inverse=True)[1].reshape(values.shape)
    if values.dtype.kind == "c":
        values = values.real
    values = values.astype(np.float64 if values.dtype.kind not in "biu" else np.int64)
    if name == "string":
        return np.array([f"{each:g}" for each in values.ravel()], object).reshape(values.shape)
    if name == "bool":
        return values > 0
    if name in COMPLEX:
        return (values * (1 + 0.5j)).astype(dtype(name))
    if name in INTEGERS:
        return integers(values, *INTEGERS[name]).astype(dtype(name))
    if name == "float8e8m0":
        # Powers of two.
        values = 2.0 ** np.rint(np.log2(np.maximum(np.abs(values), 0.25)))
    elif name in SMALL_FLOATS:
        values = np.clip(values, -SMALL_FLOATS[name], SMALL_FLOATS[name])
    return values.astype(dtype(name))


def integers(values, low, end):
    """Integers of a range. Fractions are three times as large, so that they do not all become 0."""
    if values.dtype.kind == "f" and not np.array_equal(values, np.rint(values)):
        values = np.rint(values * 3)
    values = np.nan_to_num(values, posinf=100, neginf=-100).astype(np.int64)
    if low == 0:
        values = np.abs(values)
    return values if end > 2**31 else low + (values - low) % (end - low)
