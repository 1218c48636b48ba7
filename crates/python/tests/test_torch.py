"""Tensors of torch as inputs, and outputs that torch takes over. Skipped without torch."""

import numpy as np
import pytest
import sardonyx

torch = pytest.importorskip("torch", reason="torch is not installed")

# By ONNX name: those that torch has as well.
TYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "bool": "bool",
    "complex64": "complex64",
    "complex128": "complex128",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
}


def session(body, name="float", shape="[N, 3]"):
    return sardonyx.Session(sardonyx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 25]> g ({name}{shape} x) => ({name} y) {{ y = {body} }}
    """), threads=1)


@pytest.mark.parametrize("name", TYPES)
def test_elements_of_every_type_go_in_and_come_out(name):
    dtype = getattr(torch, TYPES[name], None)
    if dtype is None:
        pytest.skip(f"this torch has no {TYPES[name]}")
    x = torch.tensor([[0, 1, 2], [4, 8, 16]]).to(dtype)
    y = session("Transpose (x)", name)(x)
    # Types of ml_dtypes are none that numpy hands over.
    tensor = sardonyx.Tensor(y) if y.dtype.kind == "V" or y.dtype.isbuiltin != 1 else y
    found = torch.from_dlpack(tensor)
    assert found.dtype is dtype
    expected = x.t().contiguous()
    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("rows", [2, 3000])
def test_tensors_may_lie_in_any_order(rows):
    """Few elements are copied, many are lent."""
    negated = session("Neg (x)")
    x = torch.arange(rows * 6, dtype=torch.float32).reshape(rows, 6)
    for view in (x[:, ::2], x[:, :3], x[1:, 2:5], x.flip(0)[:, :3], x[:1, :3].expand(rows, 3), x.reshape(3, -1).t()):
        assert torch.equal(torch.from_dlpack(negated(view)), -view)
    assert torch.from_dlpack(negated(torch.empty(0, 3))).shape == (0, 3)
    scalar = session("Neg (x)", shape="")
    assert torch.from_dlpack(np.asarray(scalar(torch.tensor(2.0)))) == -2


def test_memory_of_outputs_is_shared_and_that_of_inputs_is_not_written():
    same = session("Identity (x)")
    x = torch.ones(2, 3)
    y = same(x)
    taken = torch.from_dlpack(y)
    taken.add_(1)
    assert (y == 2).all() and torch.equal(x, torch.ones(2, 3))


def test_tensors_that_give_no_array_are_refused_with_the_reason_of_torch():
    negated = session("Neg (x)")
    gradient = torch.ones(2, 3, requires_grad=True)
    for x, message in [
        (gradient, "the input 'x' .* torch.Tensor, which cannot be converted to an array: .*requires grad.*detach"),
        (torch.empty(2, 3, device="meta"), "the input 'x' .* cannot be converted to an array"),
        (torch.eye(3).to_sparse(), "the input 'x' .*to_dense"),
    ]:
        with pytest.raises(sardonyx.Error, match=message) as refused:
            negated(x)
        assert refused.value.code == "input"
    assert negated(gradient.detach()).tolist() == [[-1] * 3] * 2


def test_sessions_with_the_names_of_onnxruntime_take_them_as_well():
    model = sardonyx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Neg (x) }
    """)
    (y,) = sardonyx.InferenceSession(model).run(None, {"x": torch.ones(2)})
    assert torch.equal(torch.from_dlpack(y), -torch.ones(2))
