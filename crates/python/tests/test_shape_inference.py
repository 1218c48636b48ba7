"""Types and shapes, and inference functions of Python. Messages are those of the onnx package."""

import pytest
from onnx import AttributeProto, TensorProto, TypeProto, helper, load_from_string
from sardonyx import _core, checker, defs, shape_inference
from sardonyx.defs import OpSchema
from sardonyx.shape_inference import InferenceError

DOMAIN = "com.example.types"
FLOAT = TensorProto.FLOAT


@pytest.fixture(autouse=True)
def domain():
    """An operator set of its own, empty again afterwards."""
    defs.set_domain_to_version(DOMAIN, 1, 1)
    yield
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == DOMAIN:
            defs.deregister_schema(schema.name, schema.since_version, DOMAIN)


def schema(name, inputs=1, outputs=1, **attributes):
    def parameters(letter, count):
        return [OpSchema.FormalParameter(f"{letter}{i}", "T") for i in range(count)]

    return OpSchema(
        name,
        DOMAIN,
        1,
        inputs=parameters("x", inputs),
        outputs=parameters("y", outputs),
        type_constraints=[("T", ["tensor(float)", "tensor(int64)"], "")],
        attributes=[OpSchema.Attribute(n, t, required=False) for n, t in attributes.items()],
    )


def register(name, function, **facts):
    defs.register_schema(schema(name, **facts).set_type_and_shape_inference_function(function))


def node(op_type, inputs, outputs, **attributes):
    return helper.make_node(op_type, inputs, outputs, domain=DOMAIN, **attributes)


def tensor(*shape, elem=FLOAT):
    return helper.make_tensor_type_proto(elem, shape)


def model(*nodes, functions=(), constants=()):
    x = helper.make_tensor_value_info("x", FLOAT, [2, "N"])
    graph = helper.make_graph(list(nodes), "g", [x], [], list(constants))
    versions = [("", 21), (DOMAIN, 1), ("local", 1)]
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*version) for version in versions],
        functions=list(functions),
    )


def infer(*nodes, check_type=False, strict=True, data_prop=False, **facts):
    """The shapes of all values between nodes."""
    bytes = model(*nodes, **facts).SerializeToString()
    inferred = shape_inference.infer_shapes(bytes, check_type, strict, data_prop)
    found = load_from_string(inferred).graph.value_info
    return {info.name: shape(info.type) for info in found}


def shape(ty):
    if not ty.tensor_type.HasField("shape"):
        return None
    return [dim.dim_param or dim.dim_value for dim in ty.tensor_type.shape.dim]


def widen(context):
    """The type of the first input with one more dimension."""
    ty = context.get_input_type(0)
    size = context.get_attribute("size")
    ty.tensor_type.shape.dim.add().dim_value = size.i if size else 1
    assert context.set_output_type(0, ty)


def same(context):
    context.set_output_type(0, context.get_input_type(0))


def fail(context):
    raise ZeroDivisionError


def test_a_function_of_python_is_a_rule():
    register("Widen", widen, size=OpSchema.AttrType.INT)
    found = infer(node("Widen", ["x"], ["y"], size=7), helper.make_node("Relu", ["y"], ["z"]))
    assert found == {"y": [2, "N", 7], "z": [2, "N", 7]}


def test_a_call_gives_attributes_and_leaves_inputs_out():
    seen = []

    def function(context):
        widen(context)
        seen.append([context.has_input(i) for i in range(context.get_num_inputs())])

    register("Widen", function, inputs=2, size=OpSchema.AttrType.INT)
    inner = node("Widen", ["p", "q"], ["r"])
    inner.attribute.add(name="size", type=AttributeProto.INT, ref_attr_name="size")
    body = helper.make_function(
        "local", "F", ["p", "q"], ["r"], [inner], [helper.make_opsetid(DOMAIN, 1)], ["size"]
    )
    call = helper.make_node("F", ["x"], ["y"], domain="local", size=9)
    assert infer(call, functions=[body]) == {"y": [2, "N", 9]}
    assert seen == [[True, False]]


def test_sparse_constants():
    values = helper.make_tensor("w", FLOAT, [2], [1.5, 2.5])
    indices = helper.make_tensor("at", TensorProto.INT64, [2], [1, 5])
    sparse = helper.make_sparse_tensor(values, indices, [2, 4])
    seen = []

    def function(context):
        seen.append([context.get_input_sparse_data(index) for index in (0, 1)])

    register("Look", function, inputs=2)
    found = model(node("Look", ["x", "w"], ["y"]))
    found.graph.sparse_initializer.append(sparse)
    shape_inference.infer_shapes(found.SerializeToString(), False, True, False)
    assert seen == [[None, sparse]]


def test_what_a_function_may_know():
    seen = {}

    def function(context):
        data, symbolic = context.get_input_data(0), context.get_symbolic_input(0)
        seen[context.get_display_name()] = (
            data and list(data.dims),
            symbolic and [dim.dim_param or dim.dim_value for dim in symbolic.dim],
        )
        assert context.get_num_outputs() == 1
        assert context.has_output(0) and not context.has_output(1)
        assert context.get_output_type(0) == TypeProto()
        assert context.get_attribute("nope") is None
        assert context.get_input_sparse_data(0) is None
        for ask in [
            context.get_input_type,
            context.get_input_data,
            context.get_symbolic_input,
            context.get_output_type,
            context.get_input_sparse_data,
            lambda index: context.set_output_type(index, TypeProto()),
        ]:
            with pytest.raises(RuntimeError, match="5 is out of bounds"):
                ask(5)
        with pytest.raises(TypeError):
            context.has_input(-1)
        with pytest.raises(InferenceError, match="does not contain a graph"):
            context.get_graph_attribute_inferencer("nope")

    register("Look", function)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        node("Look", ["s"], ["a"], name="of a shape"),
        node("Look", ["c"], ["b"], name="of a constant"),
    ]
    constant = helper.make_tensor("c", TensorProto.INT64, [3], [1, 2, 3])
    infer(*nodes, data_prop=True, constants=[constant])
    assert seen == {
        f"node Look[{DOMAIN}] (of a shape)": (None, [2, "N"]),
        f"node Look[{DOMAIN}] (of a constant)": ([3], None),
    }


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("exception", [KeyError, InferenceError, KeyboardInterrupt])
def test_an_exception_comes_out_as_it_is(strict, exception):
    def function(context):
        raise exception

    register("Fail", function)
    with pytest.raises(exception):
        infer(node("Fail", ["x"], ["y"]), node("Fail", ["y"], ["z"]), strict=strict)


def inner_graph():
    nodes = [helper.make_node("Add", ["a", "x"], ["b"]), node("Inner", ["b"], ["c"])]
    any_type = TypeProto()
    inputs = [helper.make_value_info("a", any_type)]
    return helper.make_graph(nodes, "body", inputs, [helper.make_value_info("c", any_type)])


def outer(context):
    inferencer = context.get_graph_attribute_inferencer("body")
    for index, ty in enumerate(inferencer.do_inferencing([context.get_input_type(0)], [None])):
        context.set_output_type(index, ty)


def test_functions_may_infer_graphs_with_functions_in_them():
    register("Outer", outer, body=OpSchema.AttrType.GRAPH)
    register("Inner", widen)
    assert infer(node("Outer", ["x"], ["y"], body=inner_graph())) == {"y": [2, "N", 1]}


def test_an_exception_passes_through_functions():
    register("Outer", outer, body=OpSchema.AttrType.GRAPH)
    register("Inner", fail)
    with pytest.raises(ZeroDivisionError):
        infer(node("Outer", ["x"], ["y"], body=inner_graph()), strict=False)


def test_an_exception_may_be_caught_on_the_way():
    def catching(context):
        try:
            outer(context)
        except ZeroDivisionError:
            context.set_output_type(0, tensor(77))

    register("Outer", catching, body=OpSchema.AttrType.GRAPH)
    register("Inner", fail)
    nodes = [node("Outer", ["x"], ["y"], body=inner_graph()), helper.make_node("Abs", ["y"], ["z"])]
    assert infer(*nodes) == {"y": [77], "z": [77]}


def test_graphs_are_given_as_many_inputs_as_they_have():
    def function(context):
        context.get_graph_attribute_inferencer("body").do_inferencing([], [])

    register("Outer", function, body=OpSchema.AttrType.GRAPH)
    register("Inner", same)
    with pytest.raises(InferenceError):
        infer(node("Outer", ["x"], ["y"], body=inner_graph()), strict=False)


class Lengthy(list):
    """A list that claims to be much longer than it is."""

    def __len__(self):
        return 2**62


def test_a_false_length_of_the_inputs_of_a_graph_does_no_harm():
    def function(context):
        inferencer = context.get_graph_attribute_inferencer("body")
        inputs = Lengthy([context.get_input_type(0)])
        for index, ty in enumerate(inferencer.do_inferencing(inputs, Lengthy([None]))):
            context.set_output_type(index, ty)

    register("Outer", function, body=OpSchema.AttrType.GRAPH)
    register("Inner", widen)
    assert infer(node("Outer", ["x"], ["y"], body=inner_graph())) == {"y": [2, "N", 1]}


def test_rules_of_the_standard_can_be_called():
    add = defs.get_schema("Add").get_type_and_shape_inference_function()
    register("Sum", lambda context: add(context), inputs=2)
    assert infer(node("Sum", ["x", "c"], ["y"]), constants=[constant(3, 2, 1)]) == {"y": [3, 2, "N"]}
    with pytest.raises(InferenceError):
        infer(node("Sum", ["x", "c"], ["y"]), strict=False, constants=[constant(3, 1)])
    nothing = schema("Nothing").get_type_and_shape_inference_function()
    register("Quiet", lambda context: nothing(context))
    assert infer(node("Quiet", ["x"], ["y"])) == {}


def constant(*dims):
    size = 1
    for dim in dims:
        size *= dim
    return helper.make_tensor("c", FLOAT, dims, [0.0] * size)


def test_inference_within_inference():
    def function(context):
        assert infer(node("Same", ["x"], ["y"])) == {"y": [2, "N"]}
        schema("Later")
        defs.register_schema(schema("Later"))
        same(context)

    register("Same", same)
    register("Again", function)
    assert infer(node("Again", ["x"], ["y"])) == {"y": [2, "N"]}
    assert defs.has_schema("Later", DOMAIN)


def test_contexts_end_with_their_function():
    kept = []
    register("Keep", kept.append)
    infer(node("Keep", ["x"], ["y"]))
    (context,) = kept
    assert context.get_num_inputs() == 1
    with pytest.raises(RuntimeError, match="has returned"):
        context.get_attribute("size")
    for made_by_the_library in [
        shape_inference.InferenceContext,
        shape_inference.GraphInferencer,
    ]:
        with pytest.raises(TypeError):
            made_by_the_library()


@pytest.mark.parametrize("check_type", [False, True])
def test_operators_without_a_function(check_type):
    defs.register_schema(schema("Plain"))
    found = infer(node("Plain", ["x"], ["y"]), check_type=check_type)
    assert found == ({"y": None} if check_type else {})


def test_outputs_are_of_allowed_types_only_where_types_are_checked():
    register("Wrong", lambda context: context.set_output_type(0, tensor(1, elem=TensorProto.BOOL)))
    assert infer(node("Wrong", ["x"], ["y"])) == {"y": [1]}
    with pytest.raises(InferenceError):
        infer(node("Wrong", ["x"], ["y"]), check_type=True, strict=False)


def node_outputs(schema, node, types):
    types = {name: ty.SerializeToString() for name, ty in types.items()}
    found = schema._infer_node_outputs(node.SerializeToString(), types)
    return {name: TypeProto.FromString(ty) for name, ty in found.items()}


def test_a_node_alone():
    add = node_outputs(
        defs.get_schema("Add"),
        helper.make_node("Add", ["a", "b"], ["c"]),
        {"a": tensor("N", 2), "b": tensor("M", 2)},
    )
    assert add == {"c": tensor(None, 2)}
    unregistered = schema("Two", outputs=2).set_type_and_shape_inference_function(same)
    two = node("Two", ["a"], ["b", "c"])
    found = node_outputs(unregistered, two, {"a": tensor(1, None)})
    assert found == {"b": tensor(1, None), "c": helper.make_tensor_type_proto(FLOAT, None)}
    with pytest.raises(checker.ValidationError):
        node_outputs(unregistered, node("Two", ["a"], ["b", "c"], nope=1), {"a": tensor(1)})
    with pytest.raises(checker.ValidationError):
        node_outputs(unregistered, two, {"a": tensor(1, elem=TensorProto.BOOL)})
    failing = schema("One").set_type_and_shape_inference_function(fail)
    with pytest.raises(ZeroDivisionError):
        node_outputs(failing, node("One", ["a"], ["b"]), {"a": tensor(1)})
    assert not defs.has_schema("Two", DOMAIN)


def test_a_function_alone():
    register("Widen", widen, size=OpSchema.AttrType.INT)
    inner = node("Widen", ["p"], ["q"])
    inner.attribute.add(name="size", type=AttributeProto.INT, ref_attr_name="size")
    versions = [helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("", 21)]
    nodes = [inner, helper.make_node("Add", ["q", "r"], ["s"])]
    function = helper.make_function(
        "local", "F", ["p", "r"], ["s"], nodes, versions, ["size"]
    ).SerializeToString()

    def outputs(types, size):
        types = [ty.SerializeToString() for ty in types]
        attributes = [helper.make_attribute("size", size).SerializeToString()]
        found = shape_inference.infer_function_output_types(function, types, attributes)
        return [TypeProto.FromString(ty) for ty in found]

    assert outputs([tensor(2), tensor(1)], 3) == [tensor(2, 3)]
    with pytest.raises(InferenceError):
        outputs([tensor(2), tensor(5)], 3)
    with pytest.raises(ValueError):
        shape_inference.infer_function_output_types(b"\xff", [], [])


def test_full_checks_infer():
    bytes = model(helper.make_node("Add", ["x", "c"], ["y"]), constants=[constant(3, 1)])
    bytes = bytes.SerializeToString()
    checker.check_model(bytes)
    with pytest.raises(InferenceError):
        checker.check_model(bytes, full_check=True)


def test_functions_may_not_call_themselves():
    call = helper.make_node("F", ["x"], ["y"], domain="local")
    function = helper.make_function(
        "local", "F", ["x"], ["y"], [call], [helper.make_opsetid("local", 1)]
    )
    with pytest.raises(checker.ValidationError, match="Cycle"):
        infer(call, functions=[function], strict=False)


class TestAnOperatorSetThatIsNotImported:
    """Nothing is known of its operators, which is an error only where everything must fit."""

    def without_import(self, **facts):
        found = model(helper.make_node("Abs", ["x"], ["y"]), node("Plain", ["x"], ["z"]), **facts)
        del found.opset_import[:]
        return found

    def test_less_is_inferred(self):
        found = self.without_import()
        inferred = shape_inference.infer_shapes(found)
        assert list(inferred.graph.value_info) == []
        found.opset_import.add(domain="", version=21)
        inferred = shape_inference.infer_shapes(found)
        assert [info.name for info in inferred.graph.value_info] == ["y"]

    def test_it_is_an_error_as_the_core_of_the_onnx_package(self):
        content = self.without_import().SerializeToString()
        with pytest.raises(InferenceError, match="import"):
            _core.shape_inference.infer_shapes(content)

    def test_it_is_an_error_in_strict_mode(self):
        with pytest.raises(InferenceError, match="import"):
            shape_inference.infer_shapes(self.without_import(), strict_mode=True)


def test_models_are_messages_or_bytes(tmp_path):
    register("Widen", widen, size=OpSchema.AttrType.INT)
    found = model(node("Widen", ["x"], ["y"], size=7))
    inferred = shape_inference.infer_shapes(found, strict_mode=True)
    assert type(inferred) is type(found) and len(inferred.graph.value_info) == 1
    content = found.SerializeToString()
    for given in (content, bytearray(content), memoryview(content)):
        assert shape_inference.infer_shapes(given) == inferred.SerializeToString()
    for wrong in (None, 3):
        with pytest.raises(TypeError, match="expected a ModelProto"):
            shape_inference.infer_shapes(wrong)
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    before.write_bytes(content)
    shape_inference.infer_shapes_path(before, str(after))
    assert after.read_bytes() == inferred.SerializeToString()
    with pytest.raises(TypeError, match="expected a path"):
        shape_inference.infer_shapes_path(content, after)
    with pytest.raises(checker.ValidationError, match="none.onnx"):
        shape_inference.infer_shapes_path(tmp_path / "none.onnx", after)


def test_types_of_functions_are_messages_or_bytes():
    relu = helper.make_node("Relu", ["p"], ["q"])
    function = helper.make_function("local", "F", ["p"], ["q"], [relu], [helper.make_opsetid("", 21)])
    ty = tensor(2, "N")
    infer = shape_inference.infer_function_output_types
    assert infer(function, [ty]) == infer(function.SerializeToString(), [ty.SerializeToString()], [])
    assert [TypeProto.FromString(found) for found in infer(function, [ty])] == [ty]
    for wrong in ([3], ["float"]):
        with pytest.raises(TypeError, match="TypeProto"):
            infer(function, wrong)
