"""Do the definitions of operators that are not the standard's say what ONNX Runtime's wheel says?

    python microsoft_schemas.py

Compares crates/ops/tests/schemas/microsoft with the schemas that the wheel holds: inputs, outputs,
attributes with their types and defaults, and what type variables may stand for.
"""

import pathlib
import sys

import onnx
from onnxruntime.capi import onnxruntime_pybind11_state as state

SCHEMAS = pathlib.Path(__file__).parents[2] / "crates/ops/tests/schemas/microsoft"
# What is written in the default domain by mistake is known in the other one as well. Collectives are
# in builds for several GPUs, and in TensorRT.
ONLY_OURS = {
    ("com.microsoft", "SimplifiedLayerNormalization"),
    ("com.microsoft", "AllGather"),
    ("com.microsoft", "AllReduce"),
    ("com.microsoft", "AllToAll"),
    ("", "DistCollective"),
}


def main():
    # Of operators that the standard has later, the first version is theirs.
    schemas = sorted(state.get_all_operator_schema(), key=lambda schema: -schema.since_version)
    theirs = {(schema.domain, schema.name): schema for schema in schemas}
    problems, compared = [], 0
    for path in sorted(SCHEMAS.glob("*/*.txt")):
        domain = "" if path.parent.name == "ai.onnx" else path.parent.name
        name = (domain, path.stem)
        if name in ONLY_OURS:
            continue
        compared += 1
        ours, wanted = path.read_text().splitlines()[1:], described(theirs[name])
        ours = [" ".join(line.split()) for line in ours]
        problems += [f"{path.stem}: we say '{line}'" for line in ours if line not in wanted]
        problems += [f"{path.stem}: ONNX Runtime says '{line}'" for line in wanted if line not in ours]
        order = [line for line in ours if line.startswith(("input", "output"))]
        if order != [line for line in wanted if line.startswith(("input", "output"))]:
            problems.append(f"{path.stem}: inputs and outputs have another order")
    print("\n".join(problems) or f"{compared} operators say what ONNX Runtime says")
    sys.exit(1 if problems or not compared else 0)


def described(schema):
    """The facts of a schema as lines of our files."""
    lines = []
    for kind, params in (("input", schema.inputs), ("output", schema.outputs)):
        for param in params:
            option = str(param.option).split(".")[-1]
            any_types = "" if param.isHomogeneous else " of any types"
            # The wheel does not tell how many there are at least.
            variadic = f", 1 or more{any_types}"
            arity = {"Single": "", "Optional": ", optional", "Variadic": variadic}[option]
            lines.append(f"{kind} {param.name}: {param.typeStr}{arity}")
    for name, attribute in schema.attributes.items():
        kind = str(attribute.type).split(".")[-1].lower()
        line = f"attribute {name}: {kind}"
        if attribute.required:
            line += ", required"
        elif attribute._default_value:
            default = onnx.AttributeProto.FromString(attribute._default_value)
            line += f" = {shown(onnx.helper.get_attribute_value(default), kind)}"
        lines.append(line)
    for constraint in schema.type_constraints:
        types = " ".join(sorted(constraint.allowed_type_strs))
        lines.append(f"type {constraint.type_param_str}: {types}")
    return lines


def shown(value, kind):
    if kind == "string":
        return f'"{value.decode()}"'
    return str(float(f"{value:.7g}")).replace("e-0", "e-") if kind == "float" else str(value)


if __name__ == "__main__":
    main()
