"""Samples with another type for one of the variables of their operator."""

import numpy as np
import onnx
from onnx import numpy_helper

import kinds
from samples import spread, types_in

# Variables whose type an attribute says, as a number, or as that of the tensor that it is.
ATTRIBUTES = {
    ("BitCast", "T2"): "to",
    ("BlackmanWindow", "T2"): "output_datatype",
    ("Cast", "T2"): "to",
    ("Constant", "T"): "value",
    ("ConstantOfShape", "T2"): "value",
    ("DequantizeLinear", "T3"): "output_dtype",
    ("EyeLike", "T2"): "dtype",
    ("Bernoulli", "T2"): "dtype",
    ("HammingWindow", "T2"): "output_datatype",
    ("HannWindow", "T2"): "output_datatype",
    ("LayerNormalization", "U"): "stash_type",
    ("MelWeightMatrix", "T3"): "output_datatype",
    ("Multinomial", "T2"): "dtype",
    ("RandomNormal", "T"): "dtype",
    ("RandomNormalLike", "T2"): "dtype",
    ("RandomUniform", "T"): "dtype",
    ("RandomUniformLike", "T2"): "dtype",
}


def nonzero(value):
    return np.where(value == 0, np.ones_like(value), value)


def near(value):
    return np.clip(value, 0 if value.dtype.kind == "u" else -3, 3)


# Operands that not every integer can be, by their place. Of numbers beyond 3, it depends on rounding whether Erf is 1.
OPERANDS = {("Div", 1): nonzero, ("Erf", 0): near, ("Mod", 1): nonzero, ("Pow", 1): np.abs}


def retyped(sample, key, schema, variable, kind):
    """The sample with the type, as new candidates: in the variable alone, then wherever the type was the same."""
    if len(sample.model.graph.node) != 1:
        return
    found = types_in(sample.model, key, schema)
    known = {name: next(iter(types)) for name, types in found.items() if len(types) == 1}
    old = known.get(variable)
    if old is None or kinds.layers(old) != kinds.layers(kind) or kinds.element(old) is None:
        return
    node = sample.model.graph.node[0]
    alike = {
        other.type_param_str
        for other in schema.type_constraints
        if other.type_param_str in known
        and kinds.element(known[other.type_param_str]) == kinds.element(old)
        and kinds.with_element(known[other.type_param_str], kinds.element(kind)) in other.allowed_type_strs
    }
    tensors = tensor_attributes(node, kinds.element(old))
    tried = []
    for variables, further in (({variable}, set()), ({variable} | alike, tensors)):
        operands = zip(node.input, spread(schema.inputs, len(node.input)))
        names = {name for name, formal in operands if formal.type_str in variables}
        stated = {ATTRIBUTES.get((node.op_type, each)) for each in variables} - {None}
        changes = names, stated | further
        if changes not in tried:
            tried.append(changes)
            candidate = with_element(sample, *changes, kinds.element(kind))
            if candidate:
                yield candidate


def tensor_attributes(node, name):
    """Attributes that are tensors with the element."""
    return {found.name for found in node.attribute if found.HasField("t") and found.t.data_type == kinds.number(name)}


def with_element(sample, names, attributes, name):
    """The sample with another element in some inputs and attributes; nothing, if it has none of them."""
    model = onnx.ModelProto()
    model.CopyFrom(sample.model)
    graph, node = model.graph, model.graph.node[0]
    infos = [(m, info) for m, info in enumerate(graph.input) if info.name in names]
    tensors = [tensor for tensor in graph.initializer if tensor.name in names]
    stated = [found for found in node.attribute if found.name in attributes]
    if not (infos or tensors or stated):
        return None
    inputs = list(sample.inputs)
    for m, info in infos:
        set_element(info.type, name)
        # Initializers of old models are inputs as well.
        if m < len(inputs):
            inputs[m] = operand(node, info.name, inputs[m], name)
    for tensor in tensors:
        value = operand(node, tensor.name, numpy_helper.to_array(tensor), name)
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    for found in stated:
        set_attribute(found, name)
    for info in graph.output:
        info.ClearField("type")
    # A function of the inputs does not know of changed attributes.
    computed = sample.expected if callable(sample.expected) and not attributes else None
    return sample._replace(model=model, inputs=inputs, expected=computed)


def operand(node, name, value, element):
    """The value of an operand with another element."""
    value = kinds.converted(value, element)
    for (op, place), adjust in OPERANDS.items():
        if op == node.op_type and element in kinds.INTEGERS and name in node.input[place : place + 1]:
            return adjust(value)
    return value


def set_attribute(attribute, name):
    if attribute.HasField("t"):
        value = kinds.converted(numpy_helper.to_array(attribute.t), name)
        attribute.t.CopyFrom(numpy_helper.from_array(value))
    elif attribute.HasField("s"):
        attribute.s = name.upper().encode()
    else:
        attribute.i = kinds.number(name)


def set_element(kind, name):
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        kind.tensor_type.elem_type = kinds.number(name)
    else:
        set_element(getattr(kind, which).elem_type, name)


def widened(candidate, schema, name):
    """The candidate with the same numbers in wider elements."""
    wide = {"integer": ("float", "int64"), "float": ("float", "double"), "complex": ("complex128",)}
    node = candidate.model.graph.node[0]
    types = {info.name: info.type for info in candidate.model.graph.input}
    operands = list(zip(node.input, spread(schema.inputs, len(node.input))))
    names = {operand for operand, _ in operands if operand in types and has_element(types[operand], name)}
    variables = {formal.type_str for operand, formal in operands if operand in names}
    allowed = {t.type_param_str: set(t.allowed_type_strs) for t in schema.type_constraints}
    for other in wide.get(kinds.group(name), ()):
        if all(f"tensor({other})" in allowed.get(variable, ()) for variable in variables) and other != name:
            found = with_element(candidate, names, tensor_attributes(node, name), other)
            if found:
                yield found


def has_element(kind, name):
    return kind.WhichOneof("value") == "tensor_type" and kind.tensor_type.elem_type == kinds.number(name)
