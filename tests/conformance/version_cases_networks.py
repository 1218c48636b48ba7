"""Layers of networks, pictures and random numbers: rows for `version_cases.py`."""

import numpy as np

from version_cases_rows import (
    booleans,
    floats,
    gru_cell,
    integers,
    lp_norm,
    lstm_cell,
    normalized,
    positive,
    recurrent,
    row,
    simple_cell,
    vector,
    windows,
)

PICTURE = floats(2, 3, 4, 5)
STATISTICS = {"scale": floats(3), "bias": floats(3, seed=1), "mean": floats(3, seed=2), "var": positive(3)}
EACH = {
    "scale": floats(3, 4, 5),
    "bias": floats(3, 4, 5, seed=1),
    "mean": floats(3, 4, 5, seed=2),
    "var": positive(3, 4, 5),
}


def tested(x, *statistics):
    return normalized(x, *statistics, 1e-2)


def trained(x, scale, bias, mean, variance):
    """Normalized by the statistics of this batch, and what becomes of the running mean."""
    now, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
    return normalized(x, scale, bias, now, spread, 1e-2), mean * np.float32(0.75) + now * np.float32(0.25)


def across_three(x):
    """Sums of each channel with the one before and the one after."""
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    return padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]


def two_channels(x):
    """An even size reaches one further ahead than back."""
    return x + np.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0)))[:, 1:]


NORMALIZATIONS = [
    row(
        "BatchNormalization",
        (1,),
        "y = BatchNormalization <consumed_inputs = [0, 0, 0, 1, 2], is_test = 1, epsilon = 0.01> "
        "(x, scale, bias, mean, var)",
        {"x": PICTURE} | STATISTICS,
        tested,
        "is-test",
    ),
    row(
        "BatchNormalization",
        (6,),
        "y = BatchNormalization <is_test = 1, epsilon = 0.01> (x, scale, bias, mean, var)",
        {"x": PICTURE} | STATISTICS,
        tested,
        "is-test",
    ),
    row(
        "BatchNormalization",
        (6,),
        "y = BatchNormalization <is_test = 1, epsilon = 0.01> (x, scale, bias, mean, var)",
        {"x": floats(4, 3)} | STATISTICS,
        tested,
        "rank-2",
    ),
    row(
        "BatchNormalization",
        (7, 9),
        "y = BatchNormalization <epsilon = 0.01> (x, scale, bias, mean, var)",
        {"x": PICTURE} | STATISTICS,
        tested,
        "epsilon",
    ),
    row(
        "BatchNormalization",
        (7,),
        "y = BatchNormalization <epsilon = 0.01, spatial = 0> (x, scale, bias, mean, var)",
        {"x": PICTURE} | EACH,
        tested,
        "not-spatial",
    ),
    row(
        "BatchNormalization",
        (14, 15),
        "y, m, v = BatchNormalization <epsilon = 0.01, momentum = 0.75, training_mode = 1> (x, scale, bias, mean, var)",
        {"x": PICTURE} | STATISTICS,
        lambda *values: (*trained(*values), np.float32(0.75) * values[4] + np.float32(0.25) * values[0].var((0, 2, 3))),
        "training",
    ),
    row(
        "InstanceNormalization",
        (1,),
        "y = InstanceNormalization <epsilon = 0.01, consumed_inputs = [0, 0, 0]> (x, scale, bias)",
        {"x": PICTURE, "scale": floats(3), "bias": floats(3, seed=1)},
        lambda x, scale, bias: np.stack(
            [normalized(one[None], scale, bias, one.mean((1, 2)), one.var((1, 2)), 1e-2)[0] for one in x]
        ),
        "consumed-inputs",
    ),
    row(
        "InstanceNormalization",
        (6, 22),
        "y = InstanceNormalization <epsilon = 0.01> (x, scale, bias)",
        {"x": floats(2, 3, 4), "scale": floats(3), "bias": floats(3, seed=1)},
        lambda x, scale, bias: np.stack(
            [normalized(one[None], scale, bias, one.mean(1), one.var(1), 1e-2)[0] for one in x]
        ),
        "rank-3",
    ),
    *(
        # Inference cannot see the default axes inside the function body of version 13.
        row(
            "MeanVarianceNormalization",
            (since,),
            "y = MeanVarianceNormalization (x)",
            {"x": PICTURE},
            lambda x: (x - x.mean((0, 2, 3), keepdims=True)) / (x.std((0, 2, 3), keepdims=True) + np.float32(1e-9)),
            "default-axes",
            loose=since == 13,
        )
        for since in (9, 13)
    ),
    row(
        "MeanVarianceNormalization",
        (9, 13),
        "y = MeanVarianceNormalization <axes = [1]> (x)",
        {"x": PICTURE},
        lambda x: (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + np.float32(1e-9)),
        "axis-1",
    ),
    row(
        "LRN",
        (1, 13),
        "y = LRN <size = 3, alpha = 0.5, beta = 0.6, bias = 1.5> (x)",
        {"x": PICTURE},
        lambda x: x / (1.5 + 0.5 / 3 * across_three(x * x)).astype(np.float32) ** np.float32(0.6),
        "attributes",
    ),
    row(
        "LRN",
        (1, 13),
        "y = LRN <size = 2> (x)",
        {"x": PICTURE},
        lambda x: x / (1 + np.float32(5e-5) * two_channels(x * x)) ** np.float32(0.75),
        "even-size",
    ),
    row(
        "LpNormalization",
        (1, 22),
        "y = LpNormalization <p = 1, axis = 1> (x)",
        {"x": floats(2, 3, 4)},
        lambda x: x / np.abs(x).sum(1, keepdims=True),
        "p-1",
    ),
    row(
        "LpNormalization",
        (1, 22),
        "y = LpNormalization (x)",
        {"x": floats(2, 3, 4)},
        lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)),
        "defaults",
    ),
    row(
        "GroupNormalization",
        (21,),
        "y = GroupNormalization <num_groups = 2, epsilon = 0.01> (x, scale, bias)",
        {"x": floats(2, 4, 3), "scale": floats(4), "bias": floats(4, seed=1)},
        None,
        "scale-of-channels",
    ),
]

DROPOUTS = [
    row("Dropout", (1, 6), "y = Dropout <is_test = 1, ratio = 0.25> (x)", {"x": PICTURE}, lambda x: x, "is-test"),
    row("Dropout", (1, 6), "y = Dropout <ratio = 0.0> (x)", {"x": PICTURE}, lambda x: x, "nothing-dropped"),
    row(
        "Dropout",
        (1,),
        "y = Dropout <is_test = 1, consumed_inputs = [0]> (x)",
        {"x": PICTURE},
        lambda x: x,
        "consumed-inputs",
    ),
    row("Dropout", (7, 10), "y = Dropout <ratio = 0.25> (x)", {"x": PICTURE}, lambda x: x, "ratio"),
    row(
        "Dropout",
        (12, 13, 22),
        "y, mask = Dropout (x, ratio)",
        {"x": floats(2, 3), "ratio": np.array(0.25, np.float32)},
        lambda x, _: (x, np.ones((2, 3), bool)),
        "inference-mask",
    ),
    row(
        "Dropout",
        (12, 13, 22),
        "y, mask = Dropout (x, ratio, training)",
        {"x": floats(2, 3), "ratio": np.array(0, np.float32), "training": np.array(True)},
        lambda x, *_: (x, np.ones((2, 3), bool)),
        "nothing-dropped",
    ),
]

POOLS = [
    row(
        "GlobalLpPool",
        (1,),
        "y = GlobalLpPool <p = 3.0> (x)",
        {"x": PICTURE},
        lambda x: lp_norm(x, 3, (2, 3), True),
        "p-3",
    ),
    row(
        "GlobalLpPool",
        (2, 22),
        "y = GlobalLpPool <p = 3> (x)",
        {"x": PICTURE},
        lambda x: lp_norm(x, 3, (2, 3), True),
        "p-3",
    ),
    row(
        "GlobalLpPool",
        (1, 2, 22),
        "y = GlobalLpPool (x)",
        {"x": floats(2, 3, 4)},
        lambda x: lp_norm(x, 2, (2,), True),
        "default-p",
    ),
    row(
        "LpPool",
        (1,),
        "y = LpPool <kernel_shape = [2, 3], p = 3.0> (x)",
        {"x": PICTURE},
        lambda x: lp_norm(windows(x, (2, 3), (1, 1)), 3, (-2, -1)),
        "p-3",
    ),
    row(
        "LpPool",
        (1,),
        "y = LpPool <kernel_shape = [2, 2], strides = [2, 1], pads = [0, 0, 0, 1]> (x)",
        {"x": PICTURE},
        lambda x: lp_norm(windows(np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1))), (2, 2), (2, 1)), 2, (-2, -1)),
        "strides-pads",
    ),
    row(
        "LpPool",
        (2, 11, 18, 22),
        "y = LpPool <kernel_shape = [2, 3], strides = [2, 1], p = 3> (x)",
        {"x": PICTURE},
        lambda x: lp_norm(windows(x, (2, 3), (2, 1)), 3, (-2, -1)),
        "p-3",
    ),
    row(
        "MaxPool",
        (1, 8, 10, 11, 12, 22),
        "y = MaxPool <kernel_shape = [2, 3], strides = [2, 1]> (x)",
        {"x": PICTURE},
        lambda x: windows(x, (2, 3), (2, 1)).max((-2, -1)),
        "strides",
    ),
    row(
        "MaxPool",
        (1, 8, 10, 11, 12, 22),
        'y = MaxPool <kernel_shape = [3, 3], auto_pad = "SAME_LOWER"> (x)',
        {"x": PICTURE},
        lambda x: windows(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf), (3, 3), (1, 1)).max(
            (-2, -1)
        ),
        "same-lower",
    ),
    row(
        "MaxPool",
        (8, 10, 11, 12, 22),
        "y, i = MaxPool <kernel_shape = [2, 2], storage_order = 1> (x)",
        {"x": PICTURE},
        lambda x: (windows(x, (2, 2), (1, 1)).max((-2, -1)), columns_first(x)),
        "columns-first",
    ),
    row(
        "MaxPool",
        (10, 11, 12, 22),
        "y = MaxPool <kernel_shape = [2, 2], dilations = [2, 1], ceil_mode = 1, strides = [2, 3]> (x)",
        {"x": PICTURE},
        None,
        "ceil-dilations",
    ),
    row(
        "MaxPool",
        (12, 22),
        "y = MaxPool <kernel_shape = [2]> (x)",
        {"x": integers(1, 2, 6).astype(np.uint8)},
        lambda x: np.maximum(x[..., :-1], x[..., 1:]),
        "uint8",
    ),
    row(
        "AveragePool",
        (1, 7, 10, 11, 19, 22),
        "y = AveragePool <kernel_shape = [2, 3], strides = [2, 1]> (x)",
        {"x": PICTURE},
        lambda x: windows(x, (2, 3), (2, 1)).mean((-2, -1)),
        "strides",
    ),
    row(
        "AveragePool",
        (1, 7, 10, 11, 19, 22),
        "y = AveragePool <kernel_shape = [2, 2], pads = [1, 0, 0, 1]> (x)",
        {"x": PICTURE},
        lambda x: average_inside(x),
        "pads-not-counted",
    ),
    row(
        "AveragePool",
        (7, 10, 11, 19, 22),
        "y = AveragePool <kernel_shape = [2, 2], pads = [1, 0, 0, 1], count_include_pad = 1> (x)",
        {"x": PICTURE},
        lambda x: windows(framed(x), (2, 2), (1, 1)).mean((-2, -1)),
        "pads-counted",
    ),
    row(
        "MaxRoiPool",
        (1, 22),
        "y = MaxRoiPool <pooled_shape = [2, 2]> (x, rois)",
        {"x": floats(1, 2, 6, 6), "rois": np.array([[0, 0, 0, 3, 3], [0, 2, 1, 5, 4]], np.float32)},
        lambda x, _: np.stack([blocks(x[0, :, 0:4, 0:4]), blocks(x[0, :, 1:5, 2:6])]),
        "two-rois",
    ),
    row(
        "MaxRoiPool",
        (1, 22),
        "y = MaxRoiPool <pooled_shape = [1, 1], spatial_scale = 0.5> (x, rois)",
        {"x": floats(1, 2, 6, 6), "rois": np.array([[0, 2, 4, 6, 8]], np.float32)},
        lambda x, _: x[:, :, 2:5, 1:4].max((2, 3), keepdims=True),
        "scale",
    ),
]


def columns_first(x):
    """Indices of maxima of 2x2 windows in memory where every picture is stored by columns."""
    places = np.arange(x.size).reshape(*x.shape[:2], x.shape[3], x.shape[2]).swapaxes(2, 3)
    found, where = (windows(each, (2, 2), (1, 1)).reshape(*x.shape[:2], 3, 4, 4) for each in (x, places))
    return np.take_along_axis(where, found.argmax(-1)[..., None], -1)[..., 0]


def framed(x):
    return np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)))


def average_inside(x):
    total = windows(framed(x), (2, 2), (1, 1)).sum((-2, -1))
    return total / windows(framed(np.ones_like(x)), (2, 2), (1, 1)).sum((-2, -1))


def blocks(x):
    """Maxima of the quarters of 4x4 pictures."""
    return x.reshape(-1, 2, 2, 2, 2).max((2, 4))


def upsampled(x, times):
    return x.repeat(times[0], 2).repeat(times[1], 3)


UPSAMPLED = [
    row(
        "Upsample",
        (1,),
        "y = Upsample <height_scale = 2.0, width_scale = 3.0> (x)",
        {"x": floats(1, 2, 2, 3)},
        lambda x: upsampled(x, (2, 3)),
        "nearest",
    ),
    row(
        "Upsample",
        (1,),
        'y = Upsample <height_scale = 1.0, width_scale = 2.0, mode = "nearest"> (x)',
        {"x": booleans(1, 1, 2, 3)},
        lambda x: upsampled(x, (1, 2)),
        "bool",
    ),
    row(
        "Upsample",
        (7,),
        "y = Upsample <scales = [1.0, 1.0, 2.0, 3.0]> (x)",
        {"x": floats(1, 2, 2, 3)},
        lambda x: upsampled(x, (2, 3)),
        "nearest",
    ),
    row(
        "Upsample",
        (7,),
        'y = Upsample <scales = [1.0, 1.0, 2.0, 2.0], mode = "linear"> (x)',
        {"x": floats(1, 2, 2, 3)},
        None,
        "linear",
    ),
    row(
        "Upsample",
        (9,),
        "y = Upsample (x, scales)",
        {"x": floats(1, 2, 2, 3), "scales": np.array([1, 1, 2, 3], np.float32)},
        lambda x, _: upsampled(x, (2, 3)),
        "nearest",
    ),
    row(
        "Upsample",
        (9,),
        'y = Upsample <mode = "linear"> (x, scales)',
        {"x": floats(1, 2, 2, 3), "scales": np.array([1, 1, 2, 2], np.float32)},
        None,
        "linear",
    ),
    row(
        "Resize",
        (10,),
        "y = Resize (x, scales)",
        {"x": floats(1, 2, 2, 3), "scales": np.array([1, 1, 2, 3], np.float32)},
        lambda x, _: upsampled(x, (2, 3)),
        "nearest",
    ),
    row(
        "Resize",
        (10,),
        'y = Resize <mode = "nearest"> (x, scales)',
        {"x": floats(1, 1, 4, 6), "scales": np.array([1, 1, 0.5, 0.5], np.float32)},
        lambda x, _: x[:, :, ::2, ::2],
        "nearest-smaller",
    ),
    row(
        "Resize",
        (10,),
        'y = Resize <mode = "linear"> (x, scales)',
        {"x": floats(1, 1, 3, 4), "scales": np.array([1, 1, 2, 1.5], np.float32)},
        None,
        "linear",
    ),
    *(
        row(
            "Resize",
            (11, 13),
            f"y = Resize <{attributes}> (x, roi, scales)",
            {"x": floats(1, 1, 4, 4), "roi": np.zeros(0, np.float32), "scales": np.array([1, 1, *scales], np.float32)},
            None,
            variant,
        )
        for variant, attributes, scales in (
            ("nearest-asymmetric", 'coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"', (2, 1.5)),
            ("linear-half-pixel", 'mode = "linear"', (2, 0.6)),
            ("linear-align-corners", 'mode = "linear", coordinate_transformation_mode = "align_corners"', (2, 2)),
            ("linear-pytorch", 'mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"', (0.25, 0.5)),
            ("cubic", 'mode = "cubic", cubic_coeff_a = -0.5, exclude_outside = 1', (2, 0.8)),
            ("nearest-ceil", 'nearest_mode = "ceil", coordinate_transformation_mode = "half_pixel"', (1.5, 2)),
        )
    ),
    row(
        "Resize",
        (11,),
        'y = Resize <mode = "nearest", nearest_mode = "floor", '
        'coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, roi, scales)',
        {"x": floats(1, 1, 4, 4), "roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 0.5], np.float32)},
        lambda x, *_: x[:, :, [0, 0, 1, 1, 2, 2, 3, 3]][..., [1, 3]],
        "tf-half-pixel",
    ),
    *(
        # An empty tensor stands for the scales until version 13.
        row(
            "Resize",
            (since,),
            f'y = Resize <mode = "linear"{attributes}> (x, roi, {scales}, sizes)',
            {"x": floats(1, 1, 4, 4), "roi": roi, "sizes": sizes}
            | ({"scales": np.zeros(0, np.float32)} if scales == "scales" else {}),
            None,
            variant,
        )
        for since, scales in ((11, "scales"), (13, '""'))
        for variant, attributes, roi, sizes in (
            ("sizes", "", np.zeros(0, np.float32), vector(1, 1, 3, 6)),
            (
                "crop",
                ', coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 9.0',
                np.array([0, 0, 0.4, 0.6, 1, 1, 1.2, 0.9], np.float32),
                vector(1, 1, 3, 3),
            ),
        )
    ),
    row(
        "Resize",
        (18, 19),
        'y = Resize <mode = "linear", antialias = 1, axes = [2, 3]> (x, "", scales)',
        {"x": floats(1, 1, 6, 8), "scales": np.array([0.5, 0.5], np.float32)},
        None,
        "antialias-axes",
    ),
    row(
        "RoiAlign",
        (10,),
        "y = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2, spatial_scale = 0.5> (x, rois, i)",
        {"x": floats(2, 2, 6, 6), "rois": np.array([[0, 0, 6, 6], [2, 3, 9, 8]], np.float32), "i": vector(1, 0)},
        None,
        "average",
    ),
    row(
        "RoiAlign",
        (16, 22),
        "y = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2, "
        'coordinate_transformation_mode = "output_half_pixel"> (x, rois, i)',
        {"x": floats(2, 2, 6, 6), "rois": np.array([[0, 0, 3, 3], [1, 2, 4.5, 4]], np.float32), "i": vector(1, 0)},
        None,
        "output-half-pixel",
    ),
    *(
        row(
            "GridSample",
            (16,),
            f"y = GridSample <{attributes}> (x, grid)",
            {"x": floats(1, 1, 4, 4), "grid": floats(1, 3, 3, 2) * np.float32(0.55)},
            None,
            variant,
        )
        for variant, attributes in (
            ("bilinear", 'mode = "bilinear", padding_mode = "border"'),
            ("nearest", 'mode = "nearest", align_corners = 1'),
            ("bicubic", 'mode = "bicubic", padding_mode = "reflection"'),
        )
    ),
]


def transposed(x, w, stride):
    """Every value spread by its kernel."""
    size = (x.shape[2] - 1) * stride + w.shape[2]
    result = np.zeros((x.shape[0], w.shape[1], size), x.dtype)
    for place in range(x.shape[2]):
        at = place * stride
        result[..., at : at + w.shape[2]] += np.einsum("nc,cok->nok", x[..., place], w)
    return result


CONVOLUTIONS = [
    row(
        "Conv",
        (1, 11, 22),
        "y = Conv <group = 2, strides = [2, 1], dilations = [1, 2], pads = [1, 0, 0, 1]> (x, w, b)",
        {"x": floats(1, 4, 5, 6), "w": floats(4, 2, 2, 2), "b": floats(4)},
        None,
        "groups",
    ),
    row(
        "Conv",
        (1, 11, 22),
        'y = Conv <auto_pad = "SAME_UPPER"> (x, w)',
        {"x": floats(1, 2, 5), "w": floats(3, 2, 2)},
        None,
        "same-upper",
    ),
    row(
        "ConvTranspose",
        (1, 11, 22),
        "y = ConvTranspose <group = 2, strides = [2, 1], output_padding = [1, 0]> (x, w, b)",
        {"x": floats(1, 4, 3, 3), "w": floats(4, 1, 2, 2), "b": floats(2)},
        None,
        "groups",
    ),
    # An odd number of places is cut off: until version 11 at the end, from there on at the beginning.
    *(
        row(
            "ConvTranspose",
            versions,
            "y = ConvTranspose <strides = [2], output_shape = [8]> (x, w)",
            {"x": floats(1, 2, 4), "w": floats(2, 2, 3)},
            lambda x, w, first=first: transposed(x, w, 2)[..., first : first + 8],
            "output-shape",
        )
        for versions, first in (((1,), 0), ((11, 22), 1))
    ),
]

STEPS = floats(3, 2, 4)
CELLS = {"RNN": (simple_cell, 1, 1), "GRU": (gru_cell, 3, 1), "LSTM": (lstm_cell, 4, 2)}
LAST = {"RNN": "h", "GRU": "h", "LSTM": "h, c"}
LATER = {"lengths": vector(3, 2).astype(np.int32), "h0": floats(1, 2, 3)}
# Variant, attributes, further inputs, and what they change.
LAYERS = {
    "RNN": (
        ("all-inputs", "", LATER, {"f": np.tanh}),
        ("clip", "clip = 0.25, ", {}, {"f": np.tanh, "clip": 0.25}),
        ("relu", 'activations = ["Relu"], ', {}, {"f": lambda x: np.maximum(x, 0)}),
        (
            "scaled-tanh",
            'activations = ["ScaledTanh"], activation_alpha = [0.5], activation_beta = [0.75], ',
            {},
            {"f": lambda x: 0.5 * np.tanh(0.75 * x)},
        ),
        ("reverse", 'direction = "reverse", ', LATER, {"f": np.tanh, "reverse": True}),
    ),
    "GRU": (
        ("all-inputs", "", LATER, {}),
        ("clip", "clip = 0.25, ", {}, {"clip": 0.25}),
        (
            "hard-sigmoid",
            'activations = ["HardSigmoid", "Tanh"], activation_alpha = [0.3], activation_beta = [0.4], ',
            {},
            {"f": lambda x: np.clip(0.3 * x + 0.4, 0, 1)},
        ),
        ("linear-before-reset", "linear_before_reset = 1, ", {}, {"linear_before_reset": True}),
        ("reverse", 'direction = "reverse", ', LATER, {"reverse": True}),
    ),
    "LSTM": (
        ("all-inputs", "", LATER | {"c0": floats(1, 2, 3, seed=1), "p": floats(1, 9) / 2}, {}),
        ("clip", "clip = 0.25, ", {}, {"clip": 0.25}),
        ("relu", 'activations = ["Sigmoid", "Tanh", "Relu"], ', {}, {"h": lambda x: np.maximum(x, 0)}),
        (
            "hard-sigmoid",
            'activations = ["HardSigmoid", "Tanh", "Tanh"], activation_alpha = [0.3], activation_beta = [0.4], ',
            {},
            {"f": lambda x: np.clip(0.3 * x + 0.4, 0, 1)},
        ),
        ("input-forget", "input_forget = 1, ", {}, {"coupled": True}),
        ("reverse", 'direction = "reverse", ', LATER | {"c0": floats(1, 2, 3, seed=1)}, {"reverse": True}),
    ),
}


def layer(gates, hidden=3):
    return {
        "x": STEPS,
        "w": floats(1, gates * hidden, 4) / 2,
        "r": floats(1, gates * hidden, hidden) / 2,
        "b": floats(1, 2 * gates * hidden) / 2,
    }


def layers(name, cell, gates, states):
    """Versions below 7 give all steps only where `output_sequence` asks for them."""
    old = (1, 3) if name == "GRU" else (1,)
    inputs = layer(gates)
    plain = recurrent(cell, states, **({"f": np.tanh} if name == "RNN" else {}))
    outputs = f'"", {LAST[name]}'
    yield row(
        name,
        old,
        f"{outputs} = {name} <hidden_size = 3> (x, w, r, b)",
        inputs,
        lambda *values: plain(*values)[1:],
        "last-only",
    )
    yield row(
        name,
        (14, 22),
        f"y, {LAST[name]} = {name} <hidden_size = 3, layout = 1> (x, w, r, b)",
        inputs | {"x": STEPS.swapaxes(0, 1).copy()},
        lambda x, *values: batch_first(plain(x.swapaxes(0, 1), *values)),
        "batch-first",
    )
    for variant, attributes, others, changes in LAYERS[name]:
        given = inputs | others
        run = recurrent(cell, states, **changes)
        for since in (*old, 7, 14, 22):
            if since == 1 and variant == "linear-before-reset":
                continue
            steps = ", output_sequence = 1" if since < 7 else ""
            yield row(
                name,
                (since,),
                f"y, {LAST[name]} = {name} <{attributes}hidden_size = 3{steps}> ({', '.join(given)})",
                given,
                run,
                variant,
            )


def batch_first(outputs):
    every, *last = outputs
    return every.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in last)


RECURRENT = [each for name, parts in CELLS.items() for each in layers(name, *parts)]

# No spread, or only one outcome: what these give is known.
RANDOM = [
    row(
        "RandomNormal",
        (1, 22),
        "y = RandomNormal <shape = [2, 3], mean = 1.5, scale = 1e-30> ()",
        {},
        lambda: np.full((2, 3), 1.5, np.float32),
        "no-spread",
    ),
    row(
        "RandomNormalLike",
        (1, 22),
        "y = RandomNormalLike <mean = 1.5, scale = 1e-30, dtype = 11> (x)",
        {"x": floats(2, 3)},
        lambda x: np.full((2, 3), 1.5),
        "no-spread",
    ),
    row(
        "RandomUniform",
        (1, 22),
        "y = RandomUniform <shape = [2, 3], low = 1.5, high = 1.5, dtype = 1> ()",
        {},
        lambda: np.full((2, 3), 1.5, np.float32),
        "no-spread",
    ),
    row(
        "RandomUniformLike",
        (1, 22),
        "y = RandomUniformLike <low = 1.5, high = 1.5> (x)",
        {"x": floats(2, 3)},
        lambda x: np.full((2, 3), 1.5, np.float32),
        "no-spread",
    ),
    row(
        "Multinomial",
        (7, 22),
        "y = Multinomial <sample_size = 3> (x)",
        {"x": np.array([[-1e4, 0, -1e4], [0, -1e4, -1e4]], np.float32)},
        lambda x: np.array([[1, 1, 1], [0, 0, 0]], np.int32),
        "certain",
    ),
    row(
        "Multinomial",
        (7, 22),
        "y = Multinomial <sample_size = 2, dtype = 7> (x)",
        {"x": np.array([[-1e4, 0]], np.float32)},
        lambda x: np.array([[1, 1]]),
        "certain-int64",
    ),
]

ROWS = [*NORMALIZATIONS, *DROPOUTS, *POOLS, *UPSAMPLED, *CONVOLUTIONS, *RECURRENT, *RANDOM]
