"""Cases of tests/agree/microsoft.py: operators of diffusion models. ONNX Runtime's CPU has no kernels
for them, so each case brings a program in numpy that computes what the operator is to give."""

import math

import numpy as np

ERF = np.vectorize(math.erf)


def cases(make):
    return [*biases(make), *group_norms(make), *convolutions(make)]


def wide(given):
    """Inputs by name in double precision."""
    return {name: array.astype(np.float64) for name, array in given.items() if array is not None}


def biases(make):
    f = make.floats
    x, bias, skip = f(2, 5, 12), f(12), f(2, 5, 12)

    def add(given):
        given = wide(given)
        return [given["X"] + given["bias"] + given["skip"]]

    def split(given):
        given = wide(given)
        values, gates = np.split(given["X"] + given["bias"], 2, axis=-1)
        return [values * gates * 0.5 * (1 + ERF(gates / math.sqrt(2)))]

    return [
        make.case("plain", "BiasAdd", dict(X=x, bias=bias, skip=skip), ["Y"], ["bias"], oracle=add),
        make.case("plain", "BiasSplitGelu", dict(X=x, bias=bias), ["Y"], ["bias"], oracle=split),
    ]


def group_norms(make):
    f, n, h, w, c = make.floats, 2, 3, 5, 12
    found = []

    def case(name, op, given, outputs, **flags):
        constants = ["gamma", "beta", "bias"]
        flags = dict(groups=3, activation=0) | flags
        found.append(
            make.case(
                name,
                op,
                given,
                outputs,
                constants,
                oracle=lambda given: normalized(given, flags),
                **flags,
            )
        )

    norm = dict(gamma=make.positive(c), beta=f(c))
    last, second = f(n, h, w, c), f(n, c, h, w)
    for activation in (0, 1):
        case(f"activation {activation}", "GroupNorm", dict(X=last, **norm), ["Y"], activation=activation)
    case("channels second", "GroupNorm", dict(X=second, **norm), ["Y"], channels_last=0, activation=1)
    case("epsilon", "GroupNorm", dict(X=last, **norm), ["Y"], epsilon=0.25, groups=4)
    case("one group", "GroupNorm", dict(X=last, **norm), ["Y"], groups=1)
    other = np.float32 if make.elem == np.float16 else np.float16
    mixed = dict(gamma=norm["gamma"].astype(other), beta=norm["beta"].astype(other))
    case("factors of another type", "GroupNorm", dict(X=last, **mixed), ["Y"], activation=1)
    for name, skip in (
        ("", f(n, h, w, c)),
        (" of channels", f(n, 1, 1, c)),
        (" of two axes", f(n, c)),
    ):
        for outputs in (["Y"], ["Y", "S"]):
            given = dict(X=last, **norm, skip=skip)
            kind = f"skip{name}{', sum' if len(outputs) > 1 else ''}"
            case(kind, "SkipGroupNorm", given, outputs, activation=1)
            case(f"{kind}, bias", "SkipGroupNorm", given | dict(bias=f(c)), outputs)
    for name, skip in (("", f(n, c, h, w)), (" of two axes", f(n, c))):
        given = dict(X=second, **norm, skip=skip, bias=f(c))
        case(f"channels second, skip{name}", "SkipGroupNorm", given, ["Y", "S"], channels_last=0)
    case("other factors", "SkipGroupNorm", dict(X=last, **mixed, skip=f(n, c)), ["Y", "S"], groups=2)
    return found


def normalized(given, flags):
    elem = given["X"].dtype
    given = wide(given)
    is_last = flags.get("channels_last", 1)

    def placed(array):
        return array if is_last else np.moveaxis(array, 1, -1)

    x = placed(given["X"])
    if "skip" in given:
        skip = given["skip"]
        x = x + (skip[:, None, None, :] if skip.ndim == 2 else placed(skip)) + given.get("bias", 0)
        x = x.astype(elem).astype(np.float64)
    n, h, w, c = x.shape
    groups = flags["groups"]
    apart = x.reshape(n, h * w, groups, c // groups)
    mean = apart.mean(axis=(1, 3), keepdims=True)
    variance = apart.var(axis=(1, 3), keepdims=True)
    y = ((apart - mean) / np.sqrt(variance + flags.get("epsilon", 1e-5))).reshape(n, h, w, c)
    y = y * given["gamma"] + given["beta"]
    if flags["activation"]:
        y = y / (1 + np.exp(-y))
    return [array if is_last else np.moveaxis(array, -1, 1) for array in (y, x)]


def convolutions(make):
    f = make.floats
    found = []

    def case(name, x, w, bias=False, **flags):
        given = dict(X=f(*x), W=f(*w, scale=0.3))
        if bias:
            given["B"] = f(w[0])
        case = make.case(
            name,
            "NhwcConv",
            given,
            ["Y"],
            ["W", "B"],
            oracle=lambda given: [convolved(given, flags)],
            **flags,
        )
        found.append(case)

    case("plain", (2, 6, 7, 4), (5, 3, 3, 4))
    case("bias, pads", (2, 6, 7, 4), (5, 3, 3, 4), True, pads=[1, 0, 2, 1])
    case("stride", (1, 8, 9, 4), (5, 3, 2, 4), True, strides=[2, 3], pads=[1, 1, 1, 1])
    case("dilation", (1, 9, 9, 3), (2, 3, 3, 3), dilations=[2, 3], kernel_shape=[3, 3])
    case("groups", (2, 5, 5, 6), (4, 3, 3, 3), True, group=2)
    case("depthwise", (1, 5, 5, 4), (8, 3, 3, 1), True, group=4, pads=[1, 1, 1, 1])
    case("one axis", (2, 9, 4), (5, 3, 4), True, pads=[1, 1])
    case("three axes", (1, 4, 5, 4, 3), (2, 2, 3, 2, 3), True)
    for auto_pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        case(auto_pad, (1, 7, 6, 4), (5, 2, 3, 4), True, auto_pad=auto_pad, strides=[2, 2])
    return found


def convolved(given, flags):
    given = wide(given)
    x, w = given["X"], given["W"]
    axes = x.ndim - 2
    kernel = w.shape[1:-1]
    strides = flags.get("strides", [1] * axes)
    dilations = flags.get("dilations", [1] * axes)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations)]
    pads = flags.get("pads", [0] * 2 * axes)
    if flags.get("auto_pad", "").startswith("SAME"):
        pads = [0] * 2 * axes
        for axis, size in enumerate(x.shape[1:-1]):
            whole = max((-(-size // strides[axis]) - 1) * strides[axis] + reach[axis] - size, 0)
            less, more = whole // 2, whole - whole // 2
            upper = flags["auto_pad"] == "SAME_UPPER"
            pads[axis], pads[axes + axis] = (less, more) if upper else (more, less)
    x = np.pad(x, [(0, 0), *zip(pads[:axes], pads[axes:]), (0, 0)])
    counts = [
        (size - reach[axis]) // strides[axis] + 1 for axis, size in enumerate(x.shape[1:-1])
    ]
    group = flags.get("group", 1)
    outputs, inputs = w.shape[0] // group, w.shape[-1]
    y = np.zeros((x.shape[0], *counts, w.shape[0]))
    for at in np.ndindex(*counts):
        window = tuple(
            slice(place * stride, place * stride + size, dilation)
            for place, stride, size, dilation in zip(at, strides, reach, dilations)
        )
        seen = x[(slice(None), *window)].reshape(x.shape[0], -1, x.shape[-1])
        for index in range(group):
            part = seen[..., index * inputs : (index + 1) * inputs].reshape(x.shape[0], -1)
            rows = w[index * outputs : (index + 1) * outputs].reshape(outputs, -1)
            y[(slice(None), *at, slice(index * outputs, (index + 1) * outputs))] = part @ rows.T
    return y + given.get("B", 0)
