"""Compares our operator schemas with those of the reference, fact by fact (OPSET-17+).

    cargo run -p sardonyx-tests --bin dump_schemas | python tests/conformance/compare_schemas.py

Reads the records of `tests/src/bin/dump_schemas.rs` on standard input. Every version of every operator must be
there and say the same. Prints the differences and a count; exits with 1 if there is any.
"""

import argparse
import json
import struct
import sys
from collections import defaultdict

from onnx import defs, helper

OPTIONS = {"Single": "single", "Optional": "optional", "Variadic": "variadic"}
INT_MAX = 2**31 - 1


def ours(lines):
    """Maps (domain, name, since) to the lines of the record."""
    records, current = {}, None
    for line in lines:
        line = line.rstrip("\n")
        kind, *fields = line.split("\t")
        if kind == "op":
            domain, name, since = fields
            key = (domain, name, int(since))
            if key in records:
                sys.exit(f"two records for {key}")
            current = records[key] = []
        elif current is None:
            sys.exit(f"not a record: {line!r}")
        else:
            current.append(line)
    return records


def theirs():
    return {
        (schema.domain, schema.name, schema.since_version): record(schema)
        for schema in defs.get_all_schemas_with_history()
    }


def record(schema):
    """The facts of a schema of the reference, as the Rust side writes them."""
    lines = [
        f"deprecated\t{word(schema.deprecated)}",
        f"determinism\t{schema.node_determinism.name.lower()}",
    ]
    for what, fewest, most in [
        ("inputs", schema.min_input, schema.max_input),
        ("outputs", schema.min_output, schema.max_output),
    ]:
        lines.append(f"{what}\t{fewest}\t{'any' if most >= INT_MAX else most}")
    for what, params in [("input", schema.inputs), ("output", schema.outputs)]:
        for index, param in enumerate(params):
            fields = [
                param.name,
                param.type_str,
                OPTIONS[param.option.name],
                word(param.is_homogeneous),
                param.min_arity,
                param.differentiation_category.name.lower(),
            ]
            lines.append("\t".join([what, str(index), *map(str, fields)]))
    for name in sorted(schema.attributes):
        attribute = schema.attributes[name]
        fields = [name, attribute.type.name, word(attribute.required), default(attribute.default_value)]
        lines.append("\t".join(["attribute", *fields]))
    for constraint in sorted(schema.type_constraints, key=lambda constraint: constraint.type_param_str):
        types = " ".join(sorted(constraint.allowed_type_strs))
        lines.append(f"types\t{constraint.type_param_str}\t{types}")
    return lines


def word(truth):
    return "true" if truth else "false"


def default(attribute):
    if not attribute.name:
        return "none"
    value = helper.get_attribute_value(attribute)
    kind = type(attribute).AttributeType.Name(attribute.type).lower()
    if kind.startswith("float"):
        show = lambda item: struct.pack(">f", item).hex()
    elif kind.startswith("string"):
        show = lambda item: json.dumps(item.decode())
    else:
        show = str
    items = value if kind.endswith("s") else [value]
    return " ".join([kind, *map(show, items)])


def differences(mine, reference):
    """Lines that only one side has."""
    for line in reference:
        if line not in mine:
            yield f"  reference: {line}"
    for line in mine:
        if line not in reference:
            yield f"  ours:      {line}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--domain", help="only operators of this domain")
    arguments = parser.parse_args()

    mine, reference = ours(sys.stdin), theirs()
    if arguments.domain is not None:
        mine = {key: lines for key, lines in mine.items() if key[0] == arguments.domain}
        reference = {key: lines for key, lines in reference.items() if key[0] == arguments.domain}
    versions = defaultdict(list)
    for domain, name, since in reference:
        versions[domain, name].append(since)

    found = 0
    for key in sorted(mine.keys() | reference.keys()):
        domain, name, since = key
        if key not in mine:
            lines = ["  ours:      no such version"]
        elif key not in reference:
            lines = [f"  reference: no such version, only {sorted(versions[domain, name])}"]
        else:
            lines = list(differences(mine[key], reference[key]))
        if lines:
            found += len(lines)
            print(f"{domain or 'ai.onnx'} {name}-{since}", *lines, sep="\n")
    print(f"{found} differences in {len(reference)} versions of {len(versions)} operators")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
