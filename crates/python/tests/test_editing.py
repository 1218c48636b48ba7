"""Parts of models, small examples of problems, and differences between models."""

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper

CHAIN = sardonyx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}> {
        a = Exp (x)
        b = Mul (a, w)
        y = Neg (b)
    }
""")
BRANCHES = sardonyx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
        y = If (c) <
            then_branch = yes () => (float[2] t) { t = Mul (x, w) },
            else_branch = no () => (float[2] e) { e = Identity (x) }>
    }
""")


def names(ports):
    return [port.name for port in ports]


def test_a_part_has_the_class_of_the_model(tmp_path):
    message = onnx.ModelProto.FromString(CHAIN)
    part = sardonyx.extract(message, ["a"], ["b"])
    assert type(part) is onnx.ModelProto and names(part.graph.input) == ["a"]
    assert [node.op_type for node in part.graph.node] == ["Mul"]
    onnx.checker.check_model(part, full_check=True)
    path = tmp_path / "chain.onnx"
    path.write_bytes(CHAIN)
    assert sardonyx.extract(path, ["a"], ["b"]) == sardonyx.extract(CHAIN, ["a"], ["b"])
    session = sardonyx.Session(sardonyx.extract(CHAIN, outputs=["b"]))
    x = np.ones((1, 2), np.float32)
    np.testing.assert_allclose(session(x), np.exp(x) * [1, 2], rtol=1e-6)


def test_parts_around_and_inside_of_nodes():
    part = onnx.ModelProto.FromString(sardonyx.extract(CHAIN, node="b", depth=1))
    assert [node.op_type for node in part.graph.node] == ["Exp", "Mul", "Neg"]
    part = onnx.ModelProto.FromString(sardonyx.extract(BRANCHES, inside="y", graph="then_branch"))
    assert names(part.graph.input) == ["x"] and names(part.graph.initializer) == ["w"]
    onnx.checker.check_model(part, full_check=True)


def test_wrong_selections_are_explained():
    with pytest.raises(sardonyx.Error, match="no value or node 'bb'"):
        sardonyx.extract(CHAIN, outputs=["bb"])
    with pytest.raises(sardonyx.Error, match="listed twice"):
        sardonyx.extract(CHAIN, ["a", "a"])
    with pytest.raises(TypeError, match="list of names"):
        sardonyx.extract(CHAIN, "a")


# The tests of `onnx.utils.extract_model`, by name, on both functions.
@pytest.mark.parametrize("extract_model", [onnx.utils.extract_model, sardonyx.utils.extract_model])
def test_extract_model(tmp_path, extract_model):
    def port(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2])

    layers = [
        ("Add", ["A0", "A1"], "B0"),
        ("Sub", ["A0", "A1"], "B1"),
        ("Mul", ["A0", "A1"], "B2"),
        ("Add", ["B0", "B1"], "C0"),
        ("Sub", ["B1", "B2"], "C1"),
        ("Mul", ["C0", "C1"], "D0"),
    ]
    nodes = [helper.make_node(operator, inputs, [output]) for operator, inputs, output in layers]
    graph = helper.make_graph(nodes, "test", [port("A0"), port("A1")], [port("D0")])
    original = helper.make_model(graph, producer_name="test")
    source, target = str(tmp_path / "original.onnx"), str(tmp_path / "extracted.onnx")
    onnx.save(original, source)
    extract_model(source, target, ["B0", "B1", "B2"], ["C0", "C1"])
    extracted = onnx.load(target)
    assert extracted.producer_name == "onnx.utils.extract_model"
    assert extracted.ir_version == original.ir_version
    assert extracted.opset_import == original.opset_import
    assert [node.op_type for node in extracted.graph.node] == ["Add", "Sub"]
    assert list(extracted.graph.input) == [port("B0"), port("B1"), port("B2")]
    assert list(extracted.graph.output) == [port("C0"), port("C1")]


# Three functions, of which one calls the two others.
CALLS = sardonyx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 14, "local": 1]>
    g (float[2] i0, float[2] i1, float[2] i2)
        => (float[2] o_func_add, float[2] o_all_func0, float[2] o_no_func, float[2] o_all_func1) {
        t0 = local.func_add (i0, i1)
        t1 = local.func_identity (i1)
        t2 = Add (i1, i2)
        t3 = Identity (i2)
        o_func_add = Add (t0, t1)
        o_all_func0 = local.func_nested (t0, t1)
        o_no_func = Add (t2, t3)
        o_all_func1 = local.func_nested (t2, t3)
    }
    <domain: "local", opset_import: ["": 14]>
    func_identity (a) => (b) { b = Identity (a) }
    <domain: "local", opset_import: ["": 14]>
    func_add (a, b) => (c) { c = Add (a, b) }
    <domain: "local", opset_import: ["": 14, "local": 1]>
    func_nested (a, b) => (c) {
        d = local.func_identity (a)
        e = local.func_identity (b)
        c = local.func_add (d, e)
    }
""")


@pytest.mark.parametrize("extract_model", [onnx.utils.extract_model, sardonyx.utils.extract_model])
@pytest.mark.parametrize(
    ("outputs", "functions"),
    [
        (["o_no_func"], []),
        (["o_func_add"], ["func_add", "func_identity"]),
        (["o_all_func0"], ["func_add", "func_identity", "func_nested"]),
        (["o_all_func1"], ["func_add", "func_identity", "func_nested"]),
        (["o_no_func", "o_func_add", "o_all_func0", "o_all_func1"], ["func_add", "func_identity", "func_nested"]),
    ],
)
def test_extract_model_with_local_function(tmp_path, extract_model, outputs, functions):
    source, target = str(tmp_path / "original.onnx"), str(tmp_path / "extracted.onnx")
    (tmp_path / "original.onnx").write_bytes(CALLS)
    # The part of the last outputs alone does not read i0, which stays an input.
    extract_model(source, target, ["i0", "i1", "i2"], outputs)
    extracted = onnx.load(target)
    onnx.checker.check_model(extracted)
    assert names(extracted.graph.input) == ["i0", "i1", "i2"] and names(extracted.graph.output) == outputs
    assert sorted(names(extracted.functions)) == functions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.onnx", "out.onnx", ["a"], ["b"]), "does not exist"),
        (("chain.onnx", "", ["a"], ["b"]), "output_path is empty"),
        (("chain.onnx", "out.onnx", [], ["b"]), "input_names is empty"),
        (("chain.onnx", "out.onnx", ["a"], []), "output_names is empty"),
        (("chain.onnx", "out.onnx", ["a", "a"], ["b"]), "listed twice"),
        (("chain.onnx", "out.onnx", ["a"], ["b", "b"]), "listed twice"),
        (("chain.onnx", "out.onnx", ["a"], ["q"]), "no value or node 'q'"),
        (("branches.onnx", "out.onnx", ["c"], ["y"]), "does not list: x"),
    ],
)
def test_wrong_arguments_of_extract_model(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chain.onnx").write_bytes(CHAIN)
    (tmp_path / "branches.onnx").write_bytes(BRANCHES)
    with pytest.raises(ValueError, match=message):
        sardonyx.utils.extract_model(*arguments)
    assert not (tmp_path / "out.onnx").exists()


def test_differences():
    assert sardonyx.diff(CHAIN, CHAIN)["equal"]
    other = onnx.ModelProto.FromString(CHAIN)
    other.graph.initializer[0].CopyFrom(
        helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 4.0])
    )
    found = sardonyx.diff(CHAIN, other)
    assert found["weights_only"] and found["version"]["impact"] == "patch"
    content = found["graphs"][0]["constants"][0]["content"]
    assert (content["count"], content["largest"], content["mean"]) == (1, 2.0, 1.0)
    assert sardonyx.diff(CHAIN, other, values=False)["equal"]
    other.graph.input[0].name = "renamed"
    assert sardonyx.diff(CHAIN, other)["version"]["impact"] == "major"


def test_a_problem_is_reduced():
    def has_exp(candidate):
        return any(node.op_type == "Exp" for node in candidate.graph.node)

    message = onnx.ModelProto.FromString(CHAIN)
    small = sardonyx.reduce(message, has_exp)
    assert [node.op_type for node in small.graph.node] == ["Exp"]
    onnx.checker.check_model(small, full_check=True)
    with pytest.raises(ValueError, match="check returned False for the model itself"):
        sardonyx.reduce(message, lambda candidate: False)
    with pytest.raises(ZeroDivisionError):
        sardonyx.reduce(message, lambda candidate: 1 / 0)
