"""Trains the digit classifier of this directory and writes it as `digits.onnx`.

The network is small enough to be trained in plain numpy on one core in about a
minute, so no deep-learning framework is needed: the forward and backward passes
are written out below. Run `python train.py` in any directory; the model and the
example images are written next to this file.
"""

import json
import os
from pathlib import Path

# One BLAS thread: sums are then always taken in the same order, and a second run
# on the same machine writes the same bytes. Must be set before numpy is loaded.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from PIL import Image
from scipy.ndimage import affine_transform
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).resolve().parent
SEED = 1998
EPOCHS = 60
BATCH = 32
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-3
DROPOUT = 0.3
FEATURES = 64 * 4 * 4  # what the last layer sees: 64 channels of 4x4
SHAPES = {
    "conv1": (16, 1, 3, 3), "conv2": (32, 16, 3, 3), "conv3": (64, 32, 3, 3),
    "dense": (10, FEATURES),
}  # fmt: skip
REQUIRED_ACCURACY = 0.97

# The images shipped as examples: for every digit the number of an image of
# `load_digits`, chosen by eye for being easy to read. All lie in the test fifth.
IMAGES = {
    "zero": 1365, "one": 1514, "two": 1744, "three": 1428, "four": 1257,
    "five": 625, "six": 1482, "seven": 862, "eight": 424, "nine": 1792,
}  # fmt: skip


def load_data():
    """Returns (images, labels, numbers) of the training, validation and test part."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]  # [N, 1, 8, 8] in 0..1
    labels = digits.target

    def split(numbers, share):
        return train_test_split(
            numbers, test_size=share, stratify=labels[numbers], random_state=SEED
        )

    # The test fifth serves for the final figure only. Which epoch to keep is
    # decided on a validation part that is taken out of the other four fifths.
    rest, test = split(np.arange(len(labels)), 0.2)
    train, validation = split(rest, 0.15)
    return [(images[part], labels[part], part) for part in (train, validation, test)]


def augment(images, rng):
    """Turns, scales, slants and shifts every image a little and adds noise.

    There are only some 1,200 training images, too few without variation. It also
    prepares the model for images which resizing to 8x8 has blurred.
    """
    out = np.empty_like(images)
    centre = np.array([3.5, 3.5])
    for source, target in zip(images[:, 0], out[:, 0]):
        angle = np.deg2rad(rng.uniform(-12, 12))
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        slant = np.array([[1, 0], [rng.uniform(-0.15, 0.15), 1]])
        matrix = turn @ slant / rng.uniform(0.85, 1.1, size=2)
        offset = centre - matrix @ (centre + rng.uniform(-0.8, 0.8, size=2))
        affine_transform(source, matrix, offset, output=target, order=1)
    out *= rng.uniform(0.8, 1.1, size=(len(out), 1, 1, 1))
    out += rng.normal(0, 0.04, size=out.shape)
    return np.clip(out, 0, 1)


def initial_weights(rng):
    """He initialisation: keeps the signal's variance through the Relu layers."""
    weights = {}
    for name, shape in SHAPES.items():
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        weights[f"{name}.weight"] = rng.normal(0, deviation, shape).astype(np.float32)
        weights[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return weights


def convolve(x, weight):
    """Zero-padded 3x3 convolution as one matrix product (im2col).

    Each row of the returned columns holds the neighbourhood of one pixel.
    """
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3))  # [N, C, H, W, 3, 3]
    columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, c * 9)
    y = columns @ weight.reshape(len(weight), -1).T
    return y.reshape(n, h, w, -1).transpose(0, 3, 1, 2), columns


def forward(weights, x, drop=1):
    """Returns the probabilities and what the backward pass needs."""
    kept = {}

    def conv_relu(name, x):
        y, columns = convolve(x, weights[f"{name}.weight"])
        y = np.maximum(y + weights[f"{name}.bias"][:, None, None], 0)
        kept[name] = (columns, y)
        return y

    x = conv_relu("conv2", conv_relu("conv1", x))
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    blocks = blocks.reshape(n, c, h // 2, w // 2, 4)
    kept["pool"] = blocks.argmax(axis=4)[..., None]
    x = conv_relu("conv3", blocks.max(axis=4))
    kept["flat"] = x.reshape(n, -1) * drop
    logits = kept["flat"] @ weights["dense.weight"].T + weights["dense.bias"]
    exps = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True), kept


def backward(weights, kept, probabilities, labels, drop):
    """Gradients of the mean cross-entropy with respect to all weights."""
    grads = {}

    def conv_relu(name, dy, first=False):
        columns, y = kept[name]
        dy = dy * (y > 0)
        weight = weights[f"{name}.weight"]
        rows = dy.transpose(0, 2, 3, 1).reshape(-1, len(weight))
        grads[f"{name}.weight"] = (rows.T @ columns).reshape(weight.shape)
        grads[f"{name}.bias"] = rows.sum(axis=0)
        # The gradient of the input is the convolution of the output's gradient
        # with the kernel turned by half a turn, in and out channels swapped.
        if not first:
            return convolve(dy, weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1])[0]

    n = len(labels)
    d = probabilities.copy()
    d[np.arange(n), labels] -= 1
    d /= n
    grads["dense.weight"] = d.T @ kept["flat"]
    grads["dense.bias"] = d.sum(axis=0)
    d = (d @ weights["dense.weight"]) * drop
    d = conv_relu("conv3", d.reshape(kept["conv3"][1].shape))
    n, c, h, w = d.shape
    blocks = np.zeros((n, c, h, w, 4), np.float32)
    np.put_along_axis(blocks, kept["pool"], d[..., None], axis=4)
    d = blocks.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    d = conv_relu("conv2", d.reshape(n, c, 2 * h, 2 * w))
    conv_relu("conv1", d, first=True)
    return grads


def evaluate(weights, images, labels):
    """Returns (accuracy, mean cross-entropy)."""
    probabilities, _ = forward(weights, images)
    right = probabilities[np.arange(len(labels)), labels]
    return (probabilities.argmax(axis=1) == labels).mean(), -np.log(right + 1e-12).mean()


def train(training, validation):
    """Adam with decoupled weight decay; keeps the epoch best on the validation part."""
    rng = np.random.default_rng(SEED)
    weights = initial_weights(rng)
    first = {name: np.zeros_like(w) for name, w in weights.items()}
    second = {name: np.zeros_like(w) for name, w in weights.items()}
    images, labels, _ = training
    best_loss, step = np.inf, 0
    for epoch in range(EPOCHS):
        # The rate falls along half a cosine to zero, so that the end is quiet.
        rate = LEARNING_RATE * (1 + np.cos(np.pi * epoch / EPOCHS)) / 2
        varied = augment(images, rng)
        order = rng.permutation(len(labels))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            drop = rng.random((len(batch), FEATURES)) >= DROPOUT
            drop = drop.astype(np.float32) / np.float32(1 - DROPOUT)
            probabilities, kept = forward(weights, varied[batch], drop)
            grads = backward(weights, kept, probabilities, labels[batch], drop)
            step += 1
            for name, g in grads.items():
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.999 * second[name] + 0.001 * g * g
                deviation = np.sqrt(second[name] / (1 - 0.999**step)) + 1e-8
                update = first[name] / (1 - 0.9**step) / deviation
                update += WEIGHT_DECAY * weights[name]
                weights[name] = (weights[name] - rate * update).astype(np.float32)
        accuracy, loss = evaluate(weights, *validation[:2])
        if loss < best_loss:
            best, best_loss = dict(weights), loss
        if (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1:2}: validation {accuracy:.2%}, loss {loss:.4f}")
    return best


def build_model(weights, accuracy):
    """The trained network as an ONNX model."""
    node = helper.make_node
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    halve = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", **same),
        node("Relu", ["conv1"], ["relu1"], "relu1"),
        node("Conv", ["relu1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", **same),
        node("Relu", ["conv2"], ["relu2"], "relu2"),
        node("MaxPool", ["relu2"], ["pool"], "pool", **halve),
        node("Conv", ["pool", "conv3.weight", "conv3.bias"], ["conv3"], "conv3", **same),
        node("Relu", ["conv3"], ["relu3"], "relu3"),
        node("Flatten", ["relu3"], ["flat"], "flatten", axis=1),
        node("Gemm", ["flat", "dense.weight", "dense.bias"], ["logits"], "dense", transB=1),
        node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1),
    ]
    image = helper.make_tensor_value_info(
        "image", TensorProto.FLOAT, ["N", 1, 8, 8],
        doc_string="Grey images from 0 (black) to 1 (white): a white digit on black.",
        shape_denotation=["DATA_BATCH", "DATA_CHANNEL", "DATA_FEATURE", "DATA_FEATURE"],
    )  # fmt: skip
    image.type.denotation = "IMAGE"
    probabilities = helper.make_tensor_value_info(
        "probabilities", TensorProto.FLOAT, ["N", 10],
        doc_string="The probability of each of the digits 0 to 9.",
    )  # fmt: skip
    # `from_array` stores the weights as raw little-endian bytes.
    initializers = [numpy_helper.from_array(w, name) for name, w in weights.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "digits", [image], [probabilities], initializers),
        producer_name="sardonyx digits",
        producer_version="1",
        domain="dev.sardonyx.examples",
        model_version=1,
        ir_version=10,
        opset_imports=[helper.make_opsetid("", 21)],
        doc_string="Recognises a handwritten digit in an 8x8 grey image. Trained on "
        "scikit-learn's copy of the UCI Optical Recognition of Handwritten Digits "
        f"data (CC BY 4.0); accuracy on a held-out fifth: {accuracy:.2%}.",
    )
    # The `Image.` keys are the ones the ONNX standard defines for image models.
    props = {
        "Image.BitmapPixelFormat": "Gray8",
        "Image.ColorSpaceGamma": "SRGB",
        "Image.NominalPixelRange": "Normalized_0_1",
        "labels": json.dumps([str(digit) for digit in range(10)]),
    }
    helper.set_model_props(model, props)
    onnx.checker.check_model(model, full_check=True)
    return model


def write_images(weights, test):
    """Writes one image per digit, enlarged, and checks what the model makes of it."""
    images, labels, numbers = test
    for digit, (name, number) in enumerate(IMAGES.items()):
        (index,) = np.flatnonzero(numbers == number)  # fails outside the test fifth
        assert labels[index] == digit
        pixels = np.round(images[index, 0] * 255).astype(np.uint8)
        image = Image.fromarray(pixels).resize((224, 224), Image.Resampling.BICUBIC)
        path = HERE / f"{name}.png"
        image.save(path, optimize=True)
        # Back to the input's size the way a user's image gets there.
        small = Image.open(path).resize((8, 8), Image.Resampling.BILINEAR)
        image = np.asarray(small, np.float32)[None, None] / 255
        probability = forward(weights, image)[0][0, digit]
        print(f"{path.name}: {digit} with probability {probability:.4f}")
        assert probability >= 0.9, path.name


def main():
    training, validation, test = load_data()
    counts = [len(part[1]) for part in (training, validation, test)]
    print("{} training, {} validation and {} test images".format(*counts))
    weights = train(training, validation)
    accuracy, _ = evaluate(weights, *test[:2])
    print(f"accuracy on the test fifth: {accuracy:.2%} of {counts[2]}")
    if accuracy < REQUIRED_ACCURACY:
        raise SystemExit(f"below {REQUIRED_ACCURACY:.0%}: the model is not written")
    model = build_model(weights, accuracy)
    # The model, run by ONNX's reference, must give what the code above gives.
    (outcome,) = ReferenceEvaluator(model).run(None, {"image": test[0]})
    np.testing.assert_allclose(outcome, forward(weights, test[0])[0], rtol=1e-3, atol=1e-5)
    write_images(weights, test)
    onnx.save(model, HERE / "digits.onnx")
    print(f"wrote digits.onnx, {model.ByteSize()} bytes")


if __name__ == "__main__":
    main()
