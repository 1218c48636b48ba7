"""Operators: looking them up, adding them, taking them away."""

import copy
import enum
import pickle

import pytest
from sardonyx import defs
from sardonyx.defs import OpSchema, SchemaError

Parameter = OpSchema.FormalParameter
Option = OpSchema.FormalParameterOption


@pytest.fixture
def domain():
    """An operator set of its own, empty again afterwards."""
    name = "com.example.test"
    defs.set_domain_to_version(name, 1, 9)
    yield name
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == name:
            defs.deregister_schema(schema.name, schema.since_version, name)


def test_versions_are_found_by_number_or_as_the_newest():
    assert defs.get_schema("Relu").since_version == 14
    assert defs.get_schema("Relu", 13).since_version == 13
    assert defs.get_schema("Relu", 12, "").since_version == 6
    assert defs.get_schema("Scaler", "ai.onnx.ml").domain == "ai.onnx.ml"
    assert defs.get_schema(op_type="Relu", max_inclusive_version=99, domain="").name == "Relu"
    assert defs.has_schema("Relu") and defs.has_schema("Relu", 1, "")
    assert not defs.has_schema("Relu", 0) and not defs.has_schema("Relu", "com.example")
    for wanted in [("Nope",), ("Gelu", 3), ("Gelu", -3), ("Relu", 1, "com.example")]:
        with pytest.raises(SchemaError, match=wanted[0]):
            defs.get_schema(*wanted)
    for wrong in [("Relu", "", 3), ("Relu", "", ""), (3,), ("Relu", 1.5)]:
        with pytest.raises(TypeError):
            defs.get_schema(*wrong)


def test_the_lists_hold_every_operator():
    newest, all_of_them = defs.get_all_schemas(), defs.get_all_schemas_with_history()
    assert len(newest) == len({(schema.domain, schema.name) for schema in newest}) == 227
    assert len(all_of_them) == 659
    versions = defs.schema_version_map()
    assert versions[""] == (1, 28) and versions["ai.onnx.ml"] == (1, 5)


def test_a_schema_says_what_the_standard_says():
    conv = defs.get_schema("Conv")
    counts = (conv.min_input, conv.max_input, conv.min_output, conv.max_output)
    assert counts == (2, 3, 1, 1)
    assert [i.name for i in conv.inputs] == ["X", "W", "B"]
    assert conv.inputs[2].option == Option.Optional
    assert "tensor(float)" in conv.inputs[0].types and conv.inputs[0].type_str == "T"
    assert conv.attributes["group"].type is OpSchema.AttrType.INT
    assert conv.attributes["group"]._default_value == b"\x0a\x05group\x18\x01\xa0\x01\x02"
    assert conv.attributes["pads"]._default_value == b"" and not conv.attributes["pads"].required
    assert OpSchema.is_infinite(defs.get_schema("Max").max_input)
    assert defs.get_schema("Upsample").deprecated
    runs_graphs = defs.get_schema("If").node_determinism
    assert runs_graphs is OpSchema.NodeDeterminism.NonDeterministic


def test_everything_is_described():
    for schema in defs.get_all_schemas_with_history():
        parts = [*schema.inputs, *schema.outputs, *schema.type_constraints]
        for part in [*parts, *schema.attributes.values()]:
            assert part.description.endswith("."), (schema.name, schema.since_version, part)
    conv = defs.get_schema("Conv")
    assert conv.inputs[1].description == "Filters, `[M, C / group, K1, …]`."
    assert conv.inputs[2].description.endswith("Optional.")
    group = conv.attributes["group"].description
    assert group == "Number of groups that the channels are divided into. Default: 1."
    types = conv.type_constraints[0].description
    assert types == "The type of inputs `X`, `W`, `B` and output `Y`."
    # What a program does not say stays empty.
    assert Parameter("x", "T").description == ""


def test_objects_are_copies_of_their_own():
    a, b = defs.get_schema("Relu"), defs.get_schema("Relu")
    assert a != b
    a.name, a.domain, a.doc = "x", "y", "z"
    assert (a.name, a.domain, a.doc) == ("x", "y", "z")
    assert b.name == defs.get_schema("Relu").name == "Relu"
    with pytest.raises(AttributeError):
        a.since_version = 3
    for duplicate in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError):
            duplicate(a)


def test_enumerations_are_those_of_python():
    assert issubclass(Option, enum.IntEnum)
    assert not issubclass(OpSchema.NodeDeterminism, int)
    assert repr(OpSchema.AttrType.INTS) == str(OpSchema.AttrType.INTS) == "AttrType.INTS"
    assert [int(ty) for ty in OpSchema.AttrType] == list(range(1, 15))
    assert Parameter("x", "T", param_option=1).option is Option.Optional
    for wrong in (7, "Optional", OpSchema.NodeDeterminism.Unknown):
        with pytest.raises(TypeError):
            Parameter("x", "T", param_option=wrong)


def test_an_operator_of_one_s_own(domain):
    def schema(version, **facts):
        return OpSchema(
            "Blur",
            domain,
            version,
            "Makes it softer.",
            inputs=[Parameter("x", "T", "What is sharp."), Parameter("y", "int32")],
            outputs=[Parameter("z", "T", param_option=Option.Variadic, min_arity=2)],
            type_constraints=[("T", ["tensor(float)", "seq(float)"], "Any.")],
            attributes=[OpSchema.Attribute("radius", OpSchema.AttrType.INT, "How far.")],
            **facts,
        )

    defs.register_schema(schema(2))
    found = defs.get_schema("Blur", 5, domain)
    assert (found.since_version, found.doc, found.file) == (2, "Makes it softer.", "unknown")
    assert found.inputs[0].types == {"tensor(float)", "seq(tensor(float))"}
    assert found.inputs[1].types == {"tensor(int32)"}
    assert found.inputs[0].description == "What is sharp."
    assert (found.min_output, OpSchema.is_infinite(found.max_output)) == (2, True)
    assert found.type_constraints[0].allowed_type_strs == ["tensor(float)", "seq(float)"]
    assert found.attributes["radius"].required
    assert found.node_determinism is OpSchema.NodeDeterminism.Deterministic
    assert not found.has_function and found._function_body == b""

    with pytest.raises(SchemaError, match="version 2 already"):
        defs.register_schema(schema(2))
    for version in (0, -1, 10):
        with pytest.raises(SchemaError):
            defs.register_schema(schema(version))
    defs.register_schema(schema(4))
    assert defs.get_schema("Blur", domain).since_version == 4
    defs.deregister_schema("Blur", 4, domain)
    assert defs.get_schema("Blur", domain).since_version == 2
    with pytest.raises(SchemaError):
        defs.deregister_schema("Blur", 4, domain)


def test_an_operator_of_the_standard_can_be_replaced():
    original = defs.get_schema("Celu", 28)
    defs.deregister_schema("Celu", 28, "")
    try:
        assert defs.get_schema("Celu").since_version == 12
        defs.register_schema(OpSchema("Celu", "", 28, "Mine."))
        assert defs.get_schema("Celu").doc == "Mine."
        defs.deregister_schema("Celu", 28, "")
    finally:
        defs.register_schema(original)
    assert defs.get_schema("Celu").doc == original.doc


def test_what_contradicts_itself_is_refused():
    variadic = Parameter("x", "int32", param_option=Option.Variadic)
    single = Parameter("y", "int32")
    with pytest.raises(ValueError, match="tensor"):
        OpSchema("A", "d", 1, inputs=[Parameter("x", "T")])
    with pytest.raises(ValueError, match="real"):
        OpSchema("A", "d", 1, type_constraints=[("T", ["tensor(real)"], "")])
    refused = [
        ({"inputs": [variadic, single]}, "last"),
        ({"inputs": [Parameter("", "int32")]}, "no name"),
        ({"inputs": [single, single]}, "two of its inputs"),
        ({"type_constraints": [("T", [], ""), ("T", [], "")]}, "two of its type variables"),
    ]
    for facts, why in refused:
        with pytest.raises(SchemaError, match=why):
            OpSchema("A", "d", 1, **facts)
    with pytest.raises(SchemaError, match="operator set 'com.example.nowhere' does not exist"):
        defs.register_schema(OpSchema("A", "com.example.nowhere", 1))
    for wrong in [(3, "d", 1), ("A", "d"), ("A", "d", "1")]:
        with pytest.raises(TypeError):
            OpSchema(*wrong)


class Message:
    """Something with the method that is asked of a message."""

    def __init__(self, content):
        self.SerializeToString = lambda: content


def test_an_attribute_has_a_type_or_a_default():
    default = Message(b"\x0a\x01a\x1a\x02hi\x3a\x00\xa0\x01\x02")
    attribute = OpSchema.Attribute("a", Message(b"\x0a\x01b\x18\x05\xa0\x01\x02"), "Five.")
    assert attribute.type is OpSchema.AttrType.INT and not attribute.required
    assert attribute._default_value == b"\x0a\x01b\x18\x05\xa0\x01\x02"
    assert OpSchema.Attribute("a", default_value=default).description == ""
    kinds = OpSchema.AttrType
    wrong = [
        lambda: OpSchema.Attribute("a"),
        lambda: OpSchema.Attribute("a", kinds.INT, default_value=default),
        lambda: OpSchema.Attribute("a", default, required=True),
    ]
    for make in wrong:
        with pytest.raises(TypeError):
            make()
    with pytest.raises(AttributeError, match="SerializeToString"):
        OpSchema.Attribute("a", 3)
    with pytest.raises(ValueError):
        OpSchema.Attribute("a", Message(b""))
    with pytest.raises(ValueError, match="Unable to parse"):
        OpSchema.Attribute("a", Message(b"\xff"))
