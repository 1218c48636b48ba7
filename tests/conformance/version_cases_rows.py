"""What the tables of `version_cases.py` are made of: rows, values of inputs, and arithmetic for expected outputs."""

import collections

import ml_dtypes
import numpy as np

# One model for each of `versions`. The text holds its nodes in the notation of the onnx package; the outputs of the
# last node are those of the graph. `attributes` go to the last node, for values that the notation cannot say.
# `types` are of values whose type neither an array nor inference gives.
Row = collections.namedtuple(
    "Row", "operator versions variant text inputs expected attributes types rtol atol loose", defaults=[None] * 6
)

# Types that arrived after the ones numpy has, by the version of ai.onnx that brought them to most operators.
NEW_TYPES = {13: "bfloat16", 19: "float8_e4m3fn", 21: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "int2"}


def floats(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).uniform(-2, 2, shape).astype(np.float32)


def brain(*shape, seed=0):
    return floats(*shape, seed=seed).astype(ml_dtypes.bfloat16)


def positive(*shape, seed=0):
    return np.abs(floats(*shape, seed=seed)) + np.float32(0.25)


def integers(*shape, low=0, high=9, seed=0):
    return np.random.default_rng([seed, *shape]).integers(low, high, shape, dtype=np.int64)


def booleans(*shape, seed=0):
    return integers(*shape, high=2, seed=seed).astype(bool)


def narrow(kind, *shape):
    """Small numbers of a type that numpy itself does not have."""
    return integers(*shape, high=2).astype(getattr(ml_dtypes, kind))


def row(operator, versions, text, inputs, expected=None, variant="", **others):
    return Row(operator, versions, variant, text, inputs, expected, **others)


def vector(*values):
    return np.array(values, np.int64)


def strings(*values):
    return np.array(values, object)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def flat_rows(x, axis):
    """The matrix that operators saw before they took an axis by itself."""
    return x.reshape(int(np.prod(x.shape[:axis])), -1)


def softmax(x, axis):
    rows = flat_rows(x, axis)
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return (powers / powers.sum(1, keepdims=True)).reshape(x.shape)


def hardmax(x, axis):
    rows = flat_rows(x, axis)
    result = np.zeros_like(rows)
    result[np.arange(len(rows)), rows.argmax(1)] = 1
    return result.reshape(x.shape)


def normalized(x, scale, bias, mean, variance, epsilon):
    def across(values):
        return values.reshape(-1, *[1] * (x.ndim - 2)) if values.ndim == 1 else values

    return (x - across(mean)) / np.sqrt(across(variance) + np.float32(epsilon)) * across(scale) + across(bias)


def windows(x, kernel, strides):
    """Windows of the two last axes, as two further axes."""
    found = np.lib.stride_tricks.sliding_window_view(x, kernel, (-2, -1))
    return found[:, :, :: strides[0], :: strides[1]]


def lp_norm(x, p, axes, keepdims=False):
    return np.power(np.sum(np.power(np.abs(x), p), axes, keepdims=keepdims), 1 / p).astype(x.dtype)


# What the recurrent layers have in common, and what one call of them changes. Clipping comes before every activation.
LAYER = {"f": sigmoid, "g": np.tanh, "h": np.tanh, "clip": np.inf, "linear_before_reset": False, "coupled": False}


def simple_cell(x, state, w, r, wb, rb, peepholes, how):
    return [how["f"](x @ w.T + state[0] @ r.T + wb + rb)]


def gru_cell(x, state, w, r, wb, rb, peepholes, how):
    (wz, wr, wh), (rz, rr, rh), (bz, br, bh), (cz, cr, ch) = (np.split(values, 3) for values in (w, r, wb, rb))
    update = how["f"](x @ wz.T + state[0] @ rz.T + bz + cz)
    reset = how["f"](x @ wr.T + state[0] @ rr.T + br + cr)
    if how["linear_before_reset"]:
        hidden = how["g"](x @ wh.T + reset * (state[0] @ rh.T + ch) + bh)
    else:
        hidden = how["g"](x @ wh.T + (reset * state[0]) @ rh.T + ch + bh)
    return [(1 - update) * hidden + update * state[0]]


def lstm_cell(x, state, w, r, wb, rb, peepholes, how):
    enter, leave, forget, value = np.split(x @ w.T + state[0] @ r.T + wb + rb, 4, -1)
    of_enter, of_leave, of_forget = np.split(peepholes, 3)
    enter = how["f"](enter + of_enter * state[1])
    forget = 1 - enter if how["coupled"] else how["f"](forget + of_forget * state[1])
    cell = forget * state[1] + enter * how["g"](value)
    return [how["f"](leave + of_leave * cell) * how["h"](cell), cell]


def recurrent(cell, states, reverse=False, **changes):
    """Outputs of a layer with one direction: all hidden states, then the last states."""
    how = LAYER | changes
    for name in "fgh":
        how[name] = lambda x, act=how[name]: act(np.clip(x, -how["clip"], how["clip"]))

    def run(x, w, r, b, lengths=None, *initial):
        wb, rb = np.split(b[0], 2)
        size = r.shape[2]
        first = np.zeros((x.shape[1], size), x.dtype)
        state = [values[0] for values in initial[:states]] or [first] * states
        peepholes = initial[states][0] if len(initial) > states else np.zeros(3 * size, x.dtype)
        every = np.zeros((len(x), 1, *first.shape), x.dtype)
        for time in reversed(range(len(x))) if reverse else range(len(x)):
            within = (time < np.full(x.shape[1], len(x)) if lengths is None else time < lengths)[:, None]
            after = cell(x[time], state, w[0], r[0], wb, rb, peepholes, how)
            state = [np.where(within, new, old).astype(x.dtype) for new, old in zip(after, state)]
            every[time, 0] = np.where(within, state[0], 0)
        return every, *(last[None] for last in state)

    return run
