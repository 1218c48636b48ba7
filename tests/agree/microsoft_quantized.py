"""Single nodes of ONNX Runtime's operators on quantized tensors: the second table of microsoft.py.

Where ONNX Runtime's CPU has no kernel for an operator or for a form of it, a program of the contract
in numpy says what is right.
"""

import numpy as np

from microsoft_cases import F16, F32, Maker

BYTES = (np.uint8, np.int8)


def table():
    """All cases."""
    make = Codes(np.random.default_rng(11))
    families = (conversions, pairs, elements, softmax, concat, where, pools, means, max_pools, convolutions)
    families += (products, gemm, attention, embeddings, lstm, bnb4, experts)
    return [case for family in families for case in family(make)]


class Codes(Maker):
    """Random tensors of codes, with scales and zero points."""

    def __init__(self, rng):
        super().__init__(rng, F32)

    def codes(self, kind, *dims):
        """All codes, the ends of the range among them."""
        low, high = limits(kind)
        array = self.rng.integers(low, high + 1, dims).astype(kind)
        if array.size > 2:
            array.flat[:2] = low, high
        return array

    def zero(self, kind, *dims):
        low, high = limits(kind)
        return np.array(self.rng.integers(low, high + 1, dims), kind)

    def scale(self, *dims):
        return np.array(self.rng.random(dims) * 0.3 + 0.01, F32)

    def node(self, name, op, inputs, outputs, kind=None, weights=(), **more):
        """A case whose outputs have an element type that its name does not tell."""
        fields = {key: more.pop(key) for key in ("units", "expected", "same_as", "within") if key in more}
        inputs = arrays(inputs)
        if fields.get("same_as"):
            fields["same_as"] = arrays(fields["same_as"])
        case = self.case(name, op, inputs, outputs, weights, **more)
        case.name = f"{op} {name}"
        case.kinds = {} if kind is None else {output: np.dtype(kind) for output in outputs}
        for key, value in fields.items():
            setattr(case, key, value)
        return case


def arrays(inputs):
    """Inputs with arrays in the place of numbers."""
    return {key: None if value is None else np.asarray(value) for key, value in inputs.items()}


def some(forms, index, count):
    """A few of several forms, others for each index: all of them times all scales would take long."""
    return [forms[(index * count + offset) % len(forms)] for offset in range(count)]


def limits(kind):
    return np.iinfo(kind).min, np.iinfo(kind).max


def scalar(value, kind=F32):
    return np.array(value, kind)


def each(make):
    """Types of codes with scales of their results, some of which are multiples of each other: the
    results then lie half way between codes. Those zero points are odd, which tells one order of
    rounding from the other."""
    for kind in BYTES:
        low, high = limits(kind)
        for name, scales, zeros in (
            ("random", [make.scale() for _ in range(3)], [make.zero(kind) for _ in range(3)]),
            ("halves", [scalar(0.5), scalar(1), scalar(4)], [scalar(z, kind) for z in (1, 3, 5)]),
            ("quarters", [scalar(0.25), scalar(0.5), scalar(2)], [scalar(z, kind) for z in (7, 9, 11)]),
            ("smallest zeros", [make.scale() for _ in range(3)], [scalar(low, kind)] * 3),
            ("largest zeros", [make.scale() for _ in range(3)], [scalar(high, kind)] * 3),
            ("vectors", [make.scale(1) for _ in range(3)], [make.zero(kind, 1) for _ in range(3)]),
            ("tiny scales", [scalar(1e-30), scalar(2e-30), scalar(3e-30)], [make.zero(kind) for _ in range(3)]),
            ("no zeros", [make.scale() for _ in range(3)], [None] * 3),
        ):
            yield kind, f"{np.dtype(kind).name}, {name}", scales, zeros


def conversions(make):
    cases = []
    for kind in (*BYTES, np.uint16, np.int16):
        for floats in (F32, F16):
            for axis in (None, 1, -3):
                count = () if axis is None else (4,)
                flags = {} if axis is None else dict(axis=axis)
                scale = (make.scale(*count) * scalar(2e-4 if np.dtype(kind).itemsize == 2 else 0.2)).astype(floats)
                name = f"{np.dtype(kind).name} {np.dtype(floats).name}, axis {axis}"
                for zero in (make.zero(kind, *count), None):
                    if zero is None and kind != np.uint8:
                        continue
                    words = name + (", no zero" if zero is None else "")
                    given = dict(x=make.floats(2, 4, 3, 5).astype(floats), y_scale=scale, y_zero_point=zero)
                    constants = ["y_scale", "y_zero_point"]
                    cases.append(make.node(words, "QuantizeLinear", given, ["y"], kind, constants, **flags))
                    given = dict(x=make.codes(kind, 2, 4, 3, 5), x_scale=scale, x_zero_point=zero)
                    constants = ["x_scale", "x_zero_point"]
                    cases.append(make.node(words, "DequantizeLinear", given, ["y"], floats, constants, **flags))
    return cases


def written_out(given, kind):
    """The inputs of the same node with scalars in the place of vectors of one element and of zero
    points that are left out: what ONNX Runtime takes, which reads past the inputs without them."""
    arrays = {}
    for name, array in given.items():
        if array is None:
            array = scalar(0, kind)
        arrays[name] = array.reshape(()) if array.shape == (1,) and "_" in name else array
    return arrays


def pairs(make):
    cases = []
    shapes = [((7, 33), (7, 33)), ((4, 1, 9), (5, 9)), ((3, 5), (1,))]
    for op in ("QLinearAdd", "QLinearMul"):
        for index, (kind, name, scales, zeros) in enumerate(each(make)):
            left, right = shapes[index % len(shapes)]
            given = dict(A=make.codes(kind, *left), A_scale=scales[0], A_zero_point=zeros[0])
            given |= dict(B=make.codes(kind, *right), B_scale=scales[1], B_zero_point=zeros[1])
            given |= dict(C_scale=scales[2], C_zero_point=zeros[2])
            # ONNX Runtime fuses the multiplication and the addition of a sum.
            units = 1 if op == "QLinearAdd" else 0
            constants = ["B", *(key for key in given if "_" in key)]
            same = written_out(given, kind)
            cases.append(make.node(name, op, given, ["C"], kind, constants, units=units, same_as=same))
    return cases


def elements(make):
    cases = []
    alphas = ({}, dict(alpha=0.5), dict(alpha=-2.0))
    for index, (kind, name, scales, zeros) in enumerate(each(make)):
        given = dict(X=make.codes(kind, 5, 70), X_scale=scales[0], X_zero_point=zeros[0])
        given |= dict(Y_scale=scales[1], Y_zero_point=zeros[1])
        constants = [key for key in given if "_" in key]
        low = limits(kind)[0]
        fine = given | dict(Y_scale=scalar(1 / 256), Y_zero_point=scalar(low, kind))
        for flags in some(alphas, index, 2):
            words = "".join(f", {key} {value}" for key, value in flags.items())
            same = written_out(given, kind)
            cases.append(
                make.node(name + words, "QLinearLeakyRelu", given, ["Y"], kind, constants, same_as=same, **flags)
            )
        for form, inputs in (("", given), (", all codes of the result", fine)):
            same = written_out(inputs, kind)
            cases.append(
                make.node(name + form, "QLinearSigmoid", inputs, ["Y"], kind, constants, units=1, same_as=same)
            )
    return cases


def softmax(make):
    cases = []
    forms = ((-1, 13), (1, 13), (1, 11), (0, 12), (2, 12))
    for number, (kind, name, scales, zeros) in enumerate(each(make)):
        low = limits(kind)[0]
        for index, (axis, opset) in enumerate(some(forms, number, 2)):
            given = dict(X=make.codes(kind, 3, 4, 11), X_scale=scales[0], x_zero_point=zeros[0])
            given |= dict(y_scale=scalar(1 / 256), y_zero_point=scalar(low, kind))
            if index % 2:
                given |= dict(y_scale=make.scale() / scalar(5), y_zero_point=make.zero(kind))
            constants = [key for key in given if "_" in key]
            flags = dict(axis=axis, opset=opset)
            name_of = f"{name}, axis {axis} of {opset}"
            # ONNX Runtime reads the exponentials from a table of integers.
            cases.append(make.node(name_of, "QLinearSoftmax", given, ["Y"], kind, constants, units=1, **flags))
    return cases


def concat(make):
    cases = []
    for kind, name, scales, zeros in each(make):
        if zeros[0] is None:
            continue
        given = dict(Y_scale=scales[2], Y_zero_point=zeros[2])
        for part, (dims, at) in enumerate((((2, 3, 4), 0), ((2, 5, 4), 1), ((2, 1, 4), 2))):
            given |= {f"X{part}": make.codes(kind, *dims), f"s{part}": scales[at], f"z{part}": zeros[at]}
        constants = [key for key in given if not key.startswith("X")]
        for axis in (1, -2):
            cases.append(make.node(f"{name}, axis {axis}", "QLinearConcat", given, ["Y"], kind, constants, axis=axis))
    return cases


def where(make):
    cases = []
    for kind, name, scales, zeros in each(make):
        if zeros[0] is None:
            continue
        given = dict(condition=make.rng.random((4, 1, 6)) < 0.5)
        given |= dict(X=make.codes(kind, 4, 5, 6), x_scale=scales[0], x_zero_point=zeros[0])
        given |= dict(Y=make.codes(kind, 5, 1), y_scale=scales[1], y_zero_point=zeros[1])
        given |= dict(z_scale=scales[2], z_zero_point=zeros[2])
        constants = [key for key in given if "_" in key]
        cases.append(make.node(name, "QLinearWhere", given, ["Z"], kind, constants))
    return cases


WINDOWS = (
    ("plain", (9, 8), dict(kernel_shape=[2, 2], strides=[2, 2])),
    ("three", (9, 9), dict(kernel_shape=[3, 3], strides=[3, 3])),
    ("pads", (9, 8), dict(kernel_shape=[3, 2], pads=[1, 0, 1, 1])),
    ("ceil", (9, 8), dict(kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1)),
    ("ceil, pads", (9, 8), dict(kernel_shape=[2, 3], strides=[2, 3], pads=[1, 0, 1, 2], ceil_mode=1)),
    (
        "ceil, windows that start in the padding",
        (6, 5),
        dict(kernel_shape=[2, 2], strides=[3, 3], pads=[0, 1, 1, 1], ceil_mode=1),
    ),
    ("same", (9, 8), dict(kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")),
    ("same, lower", (9, 8), dict(kernel_shape=[2, 2], auto_pad="SAME_LOWER")),
    ("valid", (9, 8), dict(kernel_shape=[3, 3], auto_pad="VALID")),
    ("one axis", (13,), dict(kernel_shape=[4], strides=[3], pads=[1, 2])),
    ("three axes", (5, 4, 6), dict(kernel_shape=[2, 2, 3], strides=[1, 2, 3])),
)


def image(make, kind, sizes, is_last):
    return make.codes(kind, *((2, *sizes, 3) if is_last else (2, 3, *sizes)))


def pools(make):
    cases = []
    for number, (kind, name, scales, zeros) in enumerate(each(make)):
        for index, (window, sizes, flags) in enumerate(some(WINDOWS, number, 4)):
            is_last, counts = (index + number) % 2, (index + number // 2) % 2
            given = dict(X=image(make, kind, sizes, is_last), x_scale=scales[0], x_zero_point=zeros[0])
            given |= dict(y_scale=scales[1], y_zero_point=zeros[1])
            constants = [key for key in given if "_" in key]
            flags = flags | dict(channels_last=is_last, count_include_pad=counts)
            words = f"{name}, {window}, channels last {is_last}, padding counted {counts}"
            # Sums of several floats are added in another order.
            flags |= dict(units=1, same_as=written_out(given, kind))
            cases.append(make.node(words, "QLinearAveragePool", given, ["Y"], kind, constants, **flags))
        if zeros[0] is None:
            continue
        for is_last, sizes in ((0, (9, 8)), (1, (9, 8)), (0, (7,)), (1, (1, 4))):
            given = dict(X=image(make, kind, sizes, is_last), x_scale=scales[0], x_zero_point=zeros[0])
            given |= dict(y_scale=scales[1], y_zero_point=zeros[1])
            constants = [key for key in given if "_" in key]
            words = f"{name}, {list(sizes)}, channels last {is_last}"
            op = "QLinearGlobalAveragePool"
            cases.append(make.node(words, op, given, ["Y"], kind, constants, channels_last=is_last))
    return cases


def dequantized(codes, scale, zero):
    return (codes.astype(np.float64) - (0 if zero is None else zero.astype(np.float64))) * scale.astype(np.float64)


def quantized(values, scale, zero, kind):
    low, high = limits(kind)
    rounded = np.rint(values / scale.astype(np.float64)) + (0 if zero is None else zero.astype(np.float64))
    return np.clip(rounded, low, high).astype(kind)


def means(make):
    """ONNX Runtime's CPU has no kernel for this one."""
    cases = []
    forms = (([1], 1), ([0, -1], 0), ([], 1), ([2, 1], 0))
    for index, (kind, name, scales, zeros) in enumerate(each(make)):
        for axes, keepdims in some(forms, index, 2):
            data = make.codes(kind, 3, 5, 7)
            given = dict(data=data, data_scale=scales[0], data_zero_point=zeros[0])
            given |= dict(reduced_scale=scales[1], reduced_zero_point=zeros[1])
            constants = [key for key in given if "_" in key]
            floats = dequantized(data, scales[0], zeros[0])
            mean = floats.mean(tuple(axes) or None, keepdims=bool(keepdims))
            expected = quantized(mean, scales[1], zeros[1], kind)
            if scales[1].ndim and mean.ndim == 0:
                expected = expected.reshape(())
            words = f"{name}, axes {axes}, kept {keepdims}"
            flags = dict(axes=axes, keepdims=keepdims)
            # The mean of floats is that of numbers, but for rounding.
            cases.append(
                make.node(
                    words,
                    "QLinearReduceMean",
                    given,
                    ["reduced"],
                    kind,
                    constants,
                    expected={"reduced": expected},
                    units=1,
                    **flags,
                )
            )
    return cases


def max_pools(make):
    cases = []
    for kind in BYTES:
        for window, sizes, flags in WINDOWS:
            given = dict(x=image(make, kind, sizes, True))
            name = f"{np.dtype(kind).name}, {window}"
            cases.append(make.node(name, "NhwcMaxPool", given, ["y"], kind, **flags))
        flags = dict(kernel_shape=[2, 3], dilations=[2, 2], strides=[2, 1])
        given = dict(x=image(make, kind, (9, 8), True))
        cases.append(make.node(f"{np.dtype(kind).name}, dilations", "NhwcMaxPool", given, ["y"], kind, **flags))
    return cases


def convolutions(make):
    cases = []
    for kind in BYTES:
        for weights in BYTES:
            for is_last in (0, 1):
                for form in ("tensor", "channel", "bias"):
                    if kind == np.int8 and weights == np.uint8:
                        continue
                    channels = (4,) if form != "tensor" else ()
                    zero = scalar(0 if weights == np.int8 else 128, weights)
                    given = dict(x=image(make, kind, (6, 5), is_last))
                    given |= dict(x_scale=make.scale(), x_zero_point=make.zero(kind))
                    given |= dict(w=make.codes(weights, 4, 3, 3, 2), w_scale=make.scale(*channels))
                    given |= dict(w_zero_point=np.full_like(given["w_scale"], zero, weights))
                    given |= dict(y_scale=make.scale() * scalar(90), y_zero_point=make.zero(kind))
                    if form == "bias":
                        given |= dict(B=make.ints(-900, 900, (4,)))
                    flags = dict(channels_last=is_last, pads=[1, 0, 0, 1], strides=[1, 2])
                    name = f"{np.dtype(kind).name}, {np.dtype(weights).name}, {form}, channels last {is_last}"
                    constants = [key for key in given if key != "x"]
                    # The standard scales by three numbers, one after the other; ONNX Runtime by one.
                    cases.append(make.node(name, "QLinearConv", given, ["y"], kind, constants, units=1, **flags))
    return cases


def products(make):
    cases = []
    shapes = [((5, 9), (9, 7)), ((2, 3, 5, 9), (9, 7)), ((2, 5, 9), (2, 9, 7)), ((9,), (9, 7)), ((3, 9), (9,))]
    for index, (left, right) in enumerate(shapes):
        for b in BYTES:
            for per_column in (False, True):
                # With one scale for each column of several matrices ONNX Runtime scales the bias.
                if per_column and len(right) != 2:
                    continue
                columns = (right[-1],) if per_column else ()
                for zeros in ("zeros", "no zeros"):
                    bias = make.floats(right[-1]) if len(right) > 1 and (index + per_column) % 2 else None
                    name = f"{list(left)} {list(right)} {np.dtype(b).name}{', columns' * per_column}, {zeros}"
                    name += ", bias" if bias is not None else ""
                    own = dict(B=make.codes(b, *right), b_scale=make.scale(*columns) / scalar(9))
                    b_zero = make.zero(b, *columns) if zeros == "zeros" else None
                    constants = ["B", "b_scale", "b_zero_point", "bias", "a_scale", "a_zero_point"]
                    given = dict(A=make.floats(*left)) | own | dict(b_zero_point=b_zero, bias=bias)
                    cases.append(make.node(name, "DynamicQuantizeMatMul", given, ["Y"], F32, constants))
                    for a in BYTES if b == np.int8 else BYTES[:1]:
                        a_zero = make.zero(a) if zeros == "zeros" else None
                        given = dict(A=make.codes(a, *left), B=own["B"], a_scale=make.scale(), b_scale=own["b_scale"])
                        given |= dict(a_zero_point=a_zero, b_zero_point=b_zero, bias=bias)
                        words = f"{np.dtype(a).name} {name}"
                        cases.append(make.node(words, "MatMulIntegerToFloat", given, ["Y"], F32, constants))
    extremes = dict(zeros=np.zeros((2, 9)), positive=np.arange(18).reshape(2, 9), negative=-np.ones((2, 9)))
    for name, array in extremes.items():
        given = dict(A=array.astype(F32), B=make.codes(np.uint8, 9, 7), b_scale=make.scale())
        cases.append(make.node(name, "DynamicQuantizeMatMul", given, ["Y"], F32, ["B", "b_scale"]))
    return cases + wide_products(make)


def wide_products(make):
    """Forms that ONNX Runtime's CPU lacks: floats of 16 bits, and int8 with uint8."""
    cases = []
    for a, b, kind in ((np.uint8, np.int8, F16), (np.int8, np.uint8, F32), (np.int8, np.int8, F16)):
        codes = dict(A=make.codes(a, 2, 5, 9), B=make.codes(b, 9, 7))
        scales = dict(a_scale=make.scale().astype(kind), b_scale=(make.scale(7) / 9).astype(kind))
        zeros = dict(a_zero_point=make.zero(a), b_zero_point=make.zero(b, 7))
        bias = make.floats(7).astype(kind)
        centered = [codes[name].astype(np.int64) - zeros[f"{name.lower()}_zero_point"] for name in "AB"]
        factor = scales["a_scale"].astype(np.float64) * scales["b_scale"].astype(np.float64)
        expected = (centered[0] @ centered[1]) * factor + bias
        name = f"{np.dtype(a).name} {np.dtype(b).name} {np.dtype(kind).name}"
        given = codes | scales | zeros | dict(bias=bias)
        constants = [key for key in given if key != "A"]
        expected = {"Y": expected.astype(kind)}
        cases.append(make.node(name, "MatMulIntegerToFloat", given, ["Y"], kind, constants, expected=expected))
    return cases


def gemm(make):
    cases = []
    for a, b in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)):
        for flags in ({}, dict(transA=1), dict(transB=1, alpha=0.5), dict(transA=1, transB=1, alpha=-1.5)):
            for addend in (None, (6,), (5, 6), (5, 1)):
                for y in (None, a):
                    per_column = bool(flags.get("transB"))
                    columns = (6,) if per_column else ()
                    left = (9, 5) if flags.get("transA") else (5, 9)
                    right = (6, 9) if flags.get("transB") else (9, 6)
                    given = dict(A=make.codes(a, *left), a_scale=make.scale(), a_zero_point=make.zero(a))
                    given |= dict(B=make.codes(b, *right), b_scale=make.scale(*columns))
                    given |= dict(b_zero_point=make.zero(b, *columns))
                    given |= dict(C=None if addend is None else make.ints(-9000, 9000, addend))
                    if y is not None:
                        given |= dict(y_scale=make.scale() * scalar(20), y_zero_point=make.zero(y))
                    kinds = f"{np.dtype(a).name} {np.dtype(b).name}"
                    words = "".join(f", {key} {value}" for key, value in flags.items())
                    name = f"{kinds}{words}, C {addend}{', quantized' if y else ''}"
                    constants = [key for key in given if key != "A"]
                    cases.append(make.node(name, "QGemm", given, ["Y"], y or F32, constants, **flags))
    return cases


def attention(make):
    cases, b, s, n, h, p = [], 2, 3, 2, 4, 4
    features, width = 12, 3 * n * h
    ends, flat = np.array([2, 3], np.int32), np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    cube = (make.rng.random((b, s, s)) < 0.7).astype(np.int32)
    both = ["output", "present"]
    past = dict(past=make.floats(2, b, n, p, h))
    for a, w in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)):
        for per_column in (False, True):
            columns = (width,) if per_column else ()
            own = dict(input=make.codes(a, b, s, features), weight=make.codes(w, features, width))
            own |= dict(bias=make.floats(width), input_scale=make.scale() / scalar(20))
            own |= dict(weight_scale=make.scale(*columns) / scalar(20))
            zeros = dict(input_zero_point=make.zero(a), weight_zero_point=make.zero(w, *columns))
            full = own | dict(mask_index=None) | zeros
            for name, given, outputs, flags in (
                ("plain", full, ["output"], {}),
                ("without zeros", full | dict.fromkeys(zeros), ["output"], {}),
                ("causal", full, ["output"], dict(unidirectional=1)),
                ("scale", full, ["output"], dict(scale=0.3)),
                ("ends", full | dict(mask_index=ends), ["output"], {}),
                ("ends and starts", full | dict(mask_index=np.array([2, 3, 0, 1], np.int32)), ["output"], {}),
                ("flat mask", full | dict(mask_index=flat), ["output"], dict(mask_filter_value=-3.0)),
                ("cube", full | dict(mask_index=cube), ["output"], {}),
                ("past", full | past, both, {}),
                ("past, causal", full | past, both, dict(unidirectional=1)),
                ("present", full, both, dict(unidirectional=1)),
            ):
                words = f"{np.dtype(a).name} {np.dtype(w).name}{', columns' * per_column}, {name}"
                constants = [key for key in own | zeros if key != "input"]
                # ONNX Runtime's CPU takes inputs of uint8 alone.
                same = None if a == np.uint8 else dict(given, **shifted(given["input"], given.get("input_zero_point")))
                flags = dict(flags, num_heads=n, same_as=same)
                cases.append(make.node(words, "QAttention", given, outputs, F32, constants, **flags))
    return cases


def shifted(codes, zero):
    """The input of an attention with codes of uint8 in the place of int8."""
    moved = lambda values: np.asarray(np.asarray(values, np.int64) + 128, np.uint8)
    return dict(input=moved(codes), input_zero_point=moved(0 if zero is None else zero))


def embeddings(make):
    cases, b, s, h = [], 2, 3, 16
    for kind in BYTES:
        ids, segments = make.ints(0, 20, (b, s)), make.ints(0, 2, (b, s))
        mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
        names = ("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta")
        scales = {f"{name}_scale": make.scale() / scalar(30) for name in names}
        zeros = {f"{name}_zero_point": make.zero(kind) for name in names}
        tables = dict(word_embedding_quant=make.codes(kind, 20, h), position_embedding_quant=make.codes(kind, 10, h))
        norm = dict(gamma_quant=make.codes(kind, h), beta_quant=make.codes(kind, h))
        forms = (("plain", True, False), ("mask", True, True), ("without segments", False, True))
        for name, with_segments, with_mask in forms:
            given = dict(input_ids=ids, segment_ids=segments) | tables | dict(segment_embedding=make.codes(kind, 2, h))
            given |= norm | dict(mask=mask if with_mask else None) | scales | zeros
            if not with_segments:
                given |= {key: None for key in given if key.startswith("segment")}
            outputs = ["layernorm_out", "mask_index_out"]
            constants = [key for key in given if key not in ("input_ids", "segment_ids", "mask")]
            words = f"{np.dtype(kind).name}, {name}"
            case = make.node(words, "QEmbedLayerNormalization", given, outputs, F32, constants, epsilon=1e-5)
            case.kinds["mask_index_out"] = np.dtype(np.int32)
            cases.append(case)
    return cases


def lstm(make):
    cases, steps, b, features, h = [], 5, 3, 6, 8
    lengths = np.array([5, 2, 3], np.int32)

    def case(name, kind, directions=1, per_column=False, extra=None, outputs=("Y", "Y_h", "Y_c"), **flags):
        columns = (directions, 4 * h) if per_column else (directions,)
        # ONNX Runtime takes only 0 as the zero points of columns.
        zeros = [np.zeros(columns, kind) if per_column else make.zero(kind, *columns) for _ in range(2)]
        f = make.floats
        optional = dict(
            B=f(directions, 8 * h, scale=0.3),
            sequence_lens=lengths,
            initial_h=f(directions, b, h),
            initial_c=f(directions, b, h),
            P=f(directions, 3 * h, scale=0.3),
        )
        given = dict(X=f(steps, b, features))
        given |= dict(W=make.codes(kind, directions, features, 4 * h), R=make.codes(kind, directions, h, 4 * h))
        given |= {key: array if key in (extra or ()) else None for key, array in optional.items()}
        given |= dict(W_scale=make.scale(*columns) / scalar(60), W_zero_point=zeros[0])
        given |= dict(R_scale=make.scale(*columns) / scalar(60), R_zero_point=zeros[1])
        constants = [key for key in given if key not in ("X", "sequence_lens", "initial_h", "initial_c")]
        words = f"{np.dtype(kind).name}{', columns' * per_column}, {name}"
        cases.append(
            make.node(words, "DynamicQuantizeLSTM", given, list(outputs), F32, constants, hidden_size=h, **flags)
        )

    for kind in BYTES:
        for per_column in (False, True):
            case("plain", kind, per_column=per_column)
            case("bias", kind, per_column=per_column, extra=["B"])
            case("reverse", kind, per_column=per_column, extra=["B"], direction="reverse")
            case("both", kind, 2, per_column, ["B"], direction="bidirectional")
            case("lengths", kind, per_column=per_column, extra=["B", "sequence_lens"])
            case("lengths, reverse", kind, 1, per_column, ["B", "sequence_lens"], direction="reverse")
            everything = ["B", "sequence_lens", "initial_h", "initial_c", "P"]
            case("all, both", kind, 2, per_column, everything, direction="bidirectional")
            case("states", kind, per_column=per_column, extra=["initial_h", "initial_c"])
            case("peepholes", kind, per_column=per_column, extra=["P"])
    case("last state", np.int8, extra=["B"], outputs=(None, "Y_h"))
    case("coupled gates", np.int8, extra=["B"], input_forget=1)
    case("clip", np.int8, extra=["B"], clip=0.3)
    functions = dict(activations=["HardSigmoid", "Softsign", "Relu"])
    case("functions", np.int8, extra=["B"], activation_alpha=[0.3], activation_beta=[0.4], **functions)
    return cases


# Levels that the schema's paper and library give: 4-bit floats and NF4.
FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], F32)
NF4 = """-1 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635
    -0.18477343022823334 -0.09105003625154495 0 0.07958029955625534 0.16093020141124725
    0.24611230194568634 0.33791524171829224 0.44070982933044434 0.5626170039176941 0.7229568362236023 1"""
LEVELS = (np.concatenate([FP4, -FP4]), np.array(NF4.split(), F32))


def bnb4(make):
    cases = []
    for kind in (F32, F16):
        for quant_type in (0, 1):
            for rows, k, n, block in (((2, 3), 32, 5, 16), ((4,), 10, 3, 16), ((1,), 64, 7, 32), ((2,), 9, 1, 128)):
                packed = make.codes(np.uint8, (n * k + 1) // 2)
                absmax = make.positive(-(-n * k // block)).astype(kind)
                flags = dict(K=k, N=n, block_size=block, quant_type=quant_type)
                words = f"{np.dtype(kind).name}, type {quant_type}, {k} by {n} in {block}"
                given = dict(A=make.floats(*rows, k).astype(kind), B=packed, absmax=absmax)
                cases.append(make.node(words, "MatMulBnb4", given, ["Y"], kind, ["B", "absmax"], **flags))
                # ONNX Runtime's CPU reads past the weights in this form.
                codes = np.stack([packed >> 4, packed & 15], 1).reshape(-1)[: n * k]
                scales = np.repeat(absmax.astype(np.float64), block)[: n * k]
                weights = (LEVELS[quant_type][codes] * scales).reshape(n, k)
                given = dict(A=make.floats(*rows, n).astype(kind), B=packed, absmax=absmax)
                expected = {"Y": (given["A"].astype(np.float64) @ weights).astype(kind)}
                flags |= dict(transB=0)
                words += ", not transposed"
                flags |= dict(expected=expected)
                cases.append(make.node(words, "MatMulBnb4", given, ["Y"], kind, ["B", "absmax"], **flags))
    return cases


def experts(make):
    cases, t, e, h, i = [], 5, 4, 32, 64

    def case(
        name,
        kind=F32,
        bits=4,
        block=None,
        fused=1,
        bias=True,
        zeros=False,
        fc3=False,
        dims=(5, 32),
        weights=False,
        expected=None,
        **flags,
    ):
        own = lambda n: flags.get(f"fc{n}_expert_weight_bits", bits)
        layers = {1: (fused * i, h), 2: (h, i), 3: (i, h)}
        packed = lambda n: make.codes(np.uint8, e, layers[n][0], layers[n][1] * own(n) // 8)

        def scales(n):
            rows, depth = layers[n]
            dims = (e, rows) if block is None else (e, rows, depth // block)
            return (make.rng.random(dims) * 0.3 / 2 ** own(n) + 0.001).astype(kind)

        def zero_points(n):
            rows, depth = layers[n]
            if block is None:
                return make.codes(np.uint8, e, -(-rows * own(n) // 8))
            return make.codes(np.uint8, e, rows, -(-depth // block * own(n) // 8))

        f = lambda *dims: make.floats(*dims).astype(kind)
        given = dict(input=f(*dims), router_probs=f(t, e))
        for n in (1, 2, 3):
            is_there = n < 3 or fc3
            given[f"fc{n}_experts_weights"] = packed(n) if is_there else None
            given[f"fc{n}_scales"] = scales(n) if is_there else None
            given[f"fc{n}_experts_bias"] = f(e, layers[n][0]) if is_there and bias else None
        for n in (1, 2, 3):
            given[f"fc{n}_zero_points"] = zero_points(n) if zeros and (n < 3 or fc3) else None
        given["router_weights"] = np.abs(f(t, e)) if weights else None
        flags |= dict(expert_weight_bits=bits)
        if block is not None:
            flags |= dict(block_size=block)
        if expected:
            expected = {"output": mixture(given, bits, dict(fc3=fc3, **flags)).astype(kind)}
        constants = [key for key in given if key.startswith("fc")]
        cases.append(
            make.node(
                f"{name} {np.dtype(kind).name}",
                "QMoE",
                given,
                ["output"],
                kind,
                constants,
                expected=expected,
                **flags,
            )
        )

    swiglu = dict(activation_type="swiglu", fused=2, swiglu_fusion=1)
    for bits in (2, 4, 8):
        case(f"{bits} bits", bits=bits, k=2)
        case(f"{bits} bits, zeros", bits=bits, zeros=True, k=2)
        # ONNX Runtime quantizes the inputs of layers whose constant weights have 8 bits in blocks.
        within = dict(within=1e-2) if bits == 8 else {}
        case(f"{bits} bits, blocks", bits=bits, block=16, k=2, **within)
        case(f"{bits} bits, blocks, zeros", bits=bits, block=16, zeros=True, k=3, **within)
    for name in ("relu", "gelu", "silu", "identity"):
        case(name, activation_type=name, k=2, bias=name != "silu")
    case("one expert")
    case("all experts", k=4, normalize_routing_weights=1)
    case("router weights", weights=True, k=2)
    case("router weights, normalized", weights=True, k=2, normalize_routing_weights=1)
    case("three axes", dims=(1, 5, 32), k=2)
    case("swiglu", k=2, **swiglu)
    case("swiglu, limit", k=2, activation_alpha=1.7, activation_beta=1.0, swiglu_limit=0.7, **swiglu)
    case("half floats", kind=F16, k=2)
    case("half floats, swiglu", kind=F16, k=2, **swiglu)
    # ONNX Runtime's CPU has gates and linear parts only side by side.
    halves = swiglu | dict(swiglu_fusion=2)
    case("swiglu in halves", k=2, expected=True, swiglu_limit=0.5, activation_alpha=1.3, **halves)
    case("swiglu in two layers", k=2, fc3=True, expected=True, activation_type="swiglu", activation_beta=0.5)
    return cases


def mixture(given, bits, flags):
    """What the contract says of a mixture of experts, for swiglu."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    weights = {}
    for n in (1, 2, 3):
        packed = given[f"fc{n}_experts_weights"]
        if packed is None:
            continue
        codes = np.stack([packed >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], -1)
        codes = codes.reshape(*packed.shape[:2], -1).astype(np.float64) - 2 ** (bits - 1)
        weights[n] = codes * given[f"fc{n}_scales"].astype(np.float64)[:, :, None]
    result = np.zeros(given["input"].shape)
    for row, (x, scores) in enumerate(zip(given["input"].astype(np.float64), given["router_probs"].astype(np.float64))):
        chosen = np.argsort(-scores)[: flags["k"]]
        parts = np.exp(scores[chosen]) / np.exp(scores[chosen]).sum()
        for expert, part in zip(chosen, parts):
            first = weights[1][expert] @ x + given["fc1_experts_bias"][expert]
            if flags["fc3"]:
                gate, linear = first, weights[3][expert] @ x + given["fc3_experts_bias"][expert]
            else:
                gate, linear = np.split(first, 2)
            limit = flags.get("swiglu_limit", np.inf)
            gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
            alpha, beta = flags.get("activation_alpha", 1), flags.get("activation_beta", 0)
            hidden = gate * sigmoid(alpha * gate) * (linear + beta)
            result[row] += part * (weights[2][expert] @ hidden + given["fc2_experts_bias"][expert])
    return result
