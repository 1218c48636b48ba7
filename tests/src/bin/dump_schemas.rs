//! Prints every version of every operator as lines of text, for
//! `tests/conformance/compare_schemas.py`.
//!
//! ```text
//! cargo run -p sardonyx-tests --bin dump_schemas | python tests/conformance/compare_schemas.py
//! ```
//!
//! One record per version; fields are separated by tabs. A record begins with its `op` line and
//! holds every fact of the schema, in an order that does not depend on the source.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use sardonyx::tool::schema::OpDef;
use sardonyx::tool::schema::{
    Arity, AttrDefault, AttrType, Determinism, Differentiability, Param, Registry, Schema,
};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for op in Registry::standard().operators() {
        out.write_all(write_versions(op).as_bytes())?;
    }
    out.flush()
}

fn write_versions(op: &OpDef) -> String {
    let mut text = String::new();
    for version in op.versions() {
        let schema = op.schema_at(version.since).expect("every version expands");
        write_record(&schema, &mut text).expect("writing to a string never fails");
    }
    text
}

fn write_record(schema: &Schema, text: &mut String) -> std::fmt::Result {
    let Schema { name, domain, since, deprecated, determinism, .. } = schema;
    writeln!(text, "op\t{domain}\t{name}\t{since}")?;
    writeln!(text, "deprecated\t{deprecated}")?;
    let determinism = match determinism {
        Determinism::Deterministic => "deterministic",
        Determinism::NonDeterministic => "nondeterministic",
        Determinism::Unknown => "unknown",
    };
    writeln!(text, "determinism\t{determinism}")?;
    for (what, (fewest, most)) in
        [("inputs", schema.input_count()), ("outputs", schema.output_count())]
    {
        writeln!(
            text,
            "{what}\t{fewest}\t{}",
            most.map_or("any".to_string(), |most| most.to_string())
        )?;
    }
    for (what, params) in [("input", &schema.inputs), ("output", &schema.outputs)] {
        for (index, param) in params.iter().enumerate() {
            writeln!(text, "{what}\t{index}\t{}", write_parameter(param))?;
        }
    }
    for attribute in &schema.attributes {
        let default = attribute.default.map_or("none".to_string(), write_default);
        writeln!(
            text,
            "attribute\t{}\t{}\t{}\t{default}",
            attribute.name,
            type_name(attribute.ty),
            attribute.required
        )?;
    }
    let mut types: Vec<_> = schema.types.iter().collect();
    types.sort_by_key(|var| var.name);
    for var in types {
        writeln!(text, "types\t{}\t{}", var.name, var.allowed.names().join(" "))?;
    }
    Ok(())
}

fn write_parameter(param: &Param) -> String {
    let (option, homogeneous, min) = match param.arity {
        Arity::Single => ("single", true, 1),
        Arity::Optional => ("optional", true, 1),
        Arity::Variadic { min, homogeneous } => ("variadic", homogeneous, min),
    };
    let differentiability = match param.differentiability {
        Differentiability::Unknown => "unknown",
        Differentiability::Differentiable => "differentiable",
        Differentiability::NonDifferentiable => "nondifferentiable",
    };
    format!("{}\t{}\t{option}\t{homogeneous}\t{min}\t{differentiability}", param.name, param.ty)
}

fn type_name(ty: AttrType) -> &'static str {
    match ty {
        AttrType::Float => "FLOAT",
        AttrType::Int => "INT",
        AttrType::String => "STRING",
        AttrType::Tensor => "TENSOR",
        AttrType::Graph => "GRAPH",
        AttrType::SparseTensor => "SPARSE_TENSOR",
        AttrType::TypeProto => "TYPE_PROTO",
        AttrType::Floats => "FLOATS",
        AttrType::Ints => "INTS",
        AttrType::Strings => "STRINGS",
        AttrType::Tensors => "TENSORS",
        AttrType::Graphs => "GRAPHS",
        AttrType::SparseTensors => "SPARSE_TENSORS",
        AttrType::TypeProtos => "TYPE_PROTOS",
    }
}

/// Writes the default of an attribute. Floats are written as their bits, so that equal text means
/// equal values.
fn write_default(default: AttrDefault) -> String {
    match default {
        AttrDefault::Float(value) => format!("float {:08x}", value.to_bits()),
        AttrDefault::Int(value) => format!("int {value}"),
        AttrDefault::String(value) | AttrDefault::Word(value) => format!("string {value:?}"),
        AttrDefault::Floats(values) => {
            write_list("floats", values.iter().map(|value| format!("{:08x}", value.to_bits())))
        }
        AttrDefault::Ints(values) => write_list("ints", values.iter().map(i64::to_string)),
        AttrDefault::Strings(values) => {
            write_list("strings", values.iter().map(|value| format!("{value:?}")))
        }
    }
}

fn write_list(kind: &str, items: impl Iterator<Item = String>) -> String {
    [kind.to_string()].into_iter().chain(items).collect::<Vec<_>>().join(" ")
}
