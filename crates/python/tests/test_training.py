"""Training and gradients for models that have none."""

import math

import numpy as np
import onnx
import pytest
import sardonyx

LINE = sardonyx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {0}, float[1] b = {0}> { y = Gemm (x, w, b) }
""")
CLASSES = sardonyx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N, 2] x) => (float[N, 2] p) <float[2, 2] w = {1, 2, 3, 4}> {
        s = MatMul (x, w)
        p = Softmax <axis = 1> (s)
    }
""")
HARD = sardonyx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
    g (float[2, 2] x) => (float[2, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
        a = MatMul (x, w)
        y = ai.onnx.ml.Normalizer (a)
    }
""")
X = np.arange(-2, 2, 0.5, dtype=np.float32).reshape(8, 1)
DATA = {"x": X, "target": 2 * X + 1}
OPTIMIZERS = {"sgd": 0.1, "momentum": 0.1, "nesterov": 0.1, "adagrad": 0.5, "adam": 0.1, "adamw": 0.1}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_model_learns_a_line(optimizer):
    rate = OPTIMIZERS[optimizer]
    model = sardonyx.add_training(
        LINE, "squared-error", optimizer=optimizer, learning_rate=rate, weight_decay=0
    )
    assert type(model) is bytes
    trainer = sardonyx.Trainer(model)
    for _ in range(300):
        loss = trainer.step(DATA)["loss"]
    assert loss < 1e-4
    assert abs(trainer.state["w"].item() - 2) < 0.02 and abs(trainer.state["b"].item() - 1) < 0.02


def test_the_answer_is_of_the_class_that_was_given(tmp_path):
    message = onnx.ModelProto.FromString(LINE)
    trained = sardonyx.add_training(message, "squared-error")
    assert type(trained) is onnx.ModelProto and len(trained.training_info) == 1
    assert message.SerializeToString() == LINE
    path = tmp_path / "line.onnx"
    path.write_bytes(LINE)
    assert sardonyx.add_training(path, "squared-error") == trained.SerializeToString(deterministic=True)
    differentiated = sardonyx.differentiate(message)
    assert type(differentiated) is onnx.ModelProto
    assert [output.name for output in differentiated.graph.output] == ["y", "x_grad", "w_grad", "b_grad"]


def inputs(model):
    return [port.name for port in sardonyx.Trainer(model).inputs()]


def test_options_do_what_they_say():
    trained = sardonyx.add_training(CLASSES, "cross-entropy", ignore_class=-1)
    assert inputs(trained) == ["x", "label", "learning_rate"]
    trainer = sardonyx.Trainer(trained)
    x = np.array([[1, 0], [0, 1]], np.float32)
    loss = trainer.step({"x": x, "label": np.array([0, -1])})["loss"]
    assert loss.item() == pytest.approx(math.log(1 + math.e), rel=1e-6)

    by_value = sardonyx.add_training(LINE, loss_value="y", train=["w"], learning_rate=0.25)
    trainer = sardonyx.Trainer(by_value)
    assert list(trainer.state) == ["w"]
    trainer.step({"x": np.float32([[1], [2]])})
    assert trainer.state["w"].item() == -0.75
    frozen = sardonyx.add_training(LINE, "squared-error", freeze=["b"], optimizer="momentum")
    assert list(sardonyx.Trainer(frozen).state) == ["w", "w_momentum"]

    drawn = sardonyx.add_training(CLASSES, "cross-entropy", init="uniform:0.5")
    trainer = sardonyx.Trainer(drawn, seed=1)
    trainer.initialize()
    assert (np.abs(trainer.state["w"]) <= 0.5).all() and len(set(trainer.state["w"].flat)) == 4

    options = {"optimizer": "adam", "optimizer_operator": True, "gradient_nodes": True}
    message = onnx.ModelProto.FromString(sardonyx.add_training(LINE, "squared-error", **options))
    operators = {node.op_type for node in message.training_info[0].algorithm.node}
    assert {"Adam", "Gradient"} <= operators


def test_gradients_are_clipped():
    """The gradients by w and b are 3 and 2 for y = x * w + b at two values of x that are 1 and 2."""
    feeds = {"x": np.float32([[1], [2]])}

    def moved(**options):
        trainer = sardonyx.Trainer(sardonyx.add_training(LINE, loss_value="y", learning_rate=1, **options))
        trainer.step(feeds)
        return [-trainer.state["w"].item(), -trainer.state["b"].item()]

    assert moved() == [3, 2]
    assert moved(clip_value=2.5) == [2.5, 2]
    assert moved(clip_norm=4) == [3, 2]
    assert moved(clip_norm=1) == pytest.approx([3 / math.sqrt(13), 2 / math.sqrt(13)], rel=1e-6)


def test_gradients_are_outputs():
    model = sardonyx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[N] x) => (float[N] y, float[N] z) { a = Mul (x, x) y = Mul (a, x) z = Neg (a) }
    """)
    x = np.float32([1, 2])
    outputs = sardonyx.Session(sardonyx.differentiate(model, of="y")).run({"x": x})
    assert outputs["x_grad"].tolist() == [3, 12]
    chosen = sardonyx.differentiate(LINE, by=["w", "b"])
    names = [port.name for port in sardonyx.Session(chosen).outputs]
    assert names == ["y", "w_grad", "b_grad"]
    with_node = sardonyx.differentiate(model, of="y", by=["x"], gradient_node=True)
    text = sardonyx.printer.model_to_text
    assert "Gradient" in text(with_node)
    expanded = sardonyx.differentiate(with_node, expand=True)
    assert "Gradient" not in text(expanded)
    assert sardonyx.Session(expanded).run({"x": x})["x_grad"].tolist() == [3, 12]


def test_small_steps_of_half_precision_weights_add_up():
    line = sardonyx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float16[2] x) => (float16[2] y) <float16[2] w = raw {1, -2}> { y = Mul (x, w) }
    """)
    x = np.array([1, -0.5], np.float16)
    for options, moved in (({}, True), ({"float_copies": False}, False)):
        trainer = sardonyx.Trainer(sardonyx.add_training(line, loss_value="y", learning_rate=1e-4, **options))
        assert list(trainer.state) == ["w", "w_remainder"][: 1 + moved]
        for _ in range(1000):
            trainer.step({"x": x})
        expected = np.array([0.9, -1.95] if moved else [1, -2], np.float16)
        np.testing.assert_allclose(trainer.state["w"], expected, rtol=1e-3 if moved else 0)


WRONG = [
    ({}, "neither loss nor loss_value is given"),
    ({"loss": "hinge"}, "loss is 'hinge', which does not exist"),
    ({"loss": "squared-error", "loss_value": "y"}, "loss and loss_value exclude each other"),
    ({"loss": "squared-error", "class_axis": 1}, "class_axis and ignore_class are for the loss cross-entropy"),
    ({"loss_value": "y", "of": "y"}, "loss_value excludes of, class_axis and ignore_class"),
    ({"loss": "squared-error", "of": "z"}, "the model has no output 'z'; it has y"),
    ({"loss": "squared-error", "optimizer": "sdg"}, "optimizer is 'sdg', which does not exist"),
    ({"loss": "squared-error", "momentum": 0.5}, "the optimizer sgd has no momentum; momentum and nesterov have it"),
    (
        {"loss": "squared-error", "optimizer": "adam", "rate_decay": 0.1},
        "the optimizer adam has no rate_decay; adagrad has it",
    ),
    ({"loss": "squared-error", "learning_rate": 0}, "the learning rate must be greater than 0, not 0"),
    ({"loss": "squared-error", "train": ["v*"]}, "no initializer 'v*' exists"),
    ({"loss": "squared-error", "init": "uniform:0"}, "init is 'uniform:0', which is not one of keep, he"),
    ({"loss": "squared-error", "clip_norm": 1, "clip_value": 1}, "clip_norm and clip_value exclude each other"),
    ({"loss": "squared-error", "clip_norm": 0}, "the greatest norm of gradients has to be greater than 0, not 0"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_explained(options, message):
    with pytest.raises(sardonyx.Error) as caught:
        sardonyx.add_training(LINE, **options)
    assert caught.value.code == "argument"
    assert caught.value.message.startswith(message)


def test_wrong_options_of_differentiate_are_explained():
    with pytest.raises(sardonyx.Error, match="the model has no value 'z'") as caught:
        sardonyx.differentiate(LINE, of="z")
    assert caught.value.code == "argument"
    with pytest.raises(sardonyx.Error, match="expand excludes of, by and gradient_node"):
        sardonyx.differentiate(LINE, of="y", expand=True)
    with pytest.raises(TypeError):
        sardonyx.differentiate(LINE, by=[1])
    with pytest.raises(TypeError):
        sardonyx.differentiate(1)


def test_operators_without_gradient_are_named():
    for call in (lambda: sardonyx.add_training(HARD, "squared-error"), lambda: sardonyx.differentiate(HARD)):
        with pytest.raises(sardonyx.Error, match="have no gradient: Normalizer") as caught:
            call()
        assert caught.value.code == "invalid"


def test_values_in_data_files_come_along(tmp_path):
    message = onnx.ModelProto.FromString(CLASSES)
    weights = message.graph.initializer[0]
    weights.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weights), weights.name))
    options = {"save_as_external_data": True, "location": "data", "size_threshold": 0}
    onnx.save(message, tmp_path / "m.onnx", **options)
    path = tmp_path / "m.onnx"
    references = onnx.load(path, load_external_data=False)
    for call in (lambda model: sardonyx.add_training(model, "cross-entropy"), sardonyx.differentiate):
        whole = onnx.ModelProto.FromString(call(path))
        assert not whole.graph.initializer[0].external_data
        assert onnx.numpy_helper.to_array(whole.graph.initializer[0]).tolist() == [[1, 2], [3, 4]]
        # A message that refers to a file stays one.
        assert call(references).graph.initializer[0].external_data[0].value == "data"
    assert sardonyx.Trainer(sardonyx.add_training(path, "cross-entropy")).state["w"].tolist() == [[1, 2], [3, 4]]
    (tmp_path / "data").unlink()
    with pytest.raises(sardonyx.Error, match="data") as caught:
        sardonyx.add_training(path, "cross-entropy")
    assert caught.value.code == "external-data"
