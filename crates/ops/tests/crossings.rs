//! Declared crossings of all boundaries between versions of operators, compared with the schemas.

use std::collections::BTreeMap;
use std::fmt::Write;

use sardonyx_ops::{Crossing, OpDef, Registry, Schema};

/// Returns each boundary: the operator, the older and the newer version.
fn boundaries() -> Vec<(&'static OpDef, u32, u32)> {
    let mut found = Vec::new();
    for operator in Registry::standard().operators() {
        let versions: Vec<u32> = operator.versions().map(|version| version.since).collect();
        found.extend(versions.windows(2).map(|pair| (operator, pair[0], pair[1])));
    }
    found
}

/// Lists the operators with the newer versions at whose boundary nothing is declared in a
/// direction.
fn find_undeclared(crosses: impl Fn(&OpDef, u32, u32) -> Option<Crossing>) -> String {
    let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (operator, older, newer) in boundaries() {
        if crosses(operator, older, newer).is_none() {
            found.entry(operator.full_name()).or_default().push(newer);
        }
    }
    let mut text = String::new();
    for (name, versions) in found {
        let _ = write!(text, "{name}");
        for version in versions {
            let _ = write!(text, " {version}");
        }
        text.push('\n');
    }
    text
}

#[test]
fn boundaries_of_which_nothing_is_declared() {
    assert_eq!(boundaries().len(), 432);
    let up = find_undeclared(|operator, older, newer| operator.crossing(older, newer));
    let down = find_undeclared(|operator, older, newer| operator.crossing(newer, older));
    assert_eq!(up, "");
    assert_eq!(down, "");
}

#[test]
fn only_neighbours_have_a_boundary() {
    let clip = Registry::standard().operator("", "Clip").expect("Clip is an operator");
    assert!(matches!(clip.crossing(12, 13), Some(Crossing::Same)));
    assert!(matches!(clip.crossing(13, 12), Some(Crossing::Types)));
    assert!(matches!(clip.crossing(6, 11), Some(Crossing::Adapter(_))));
    for (from, to) in [(6, 12), (12, 6), (1, 1), (0, 1), (1, 0), (12, 14), (10, 11)] {
        assert!(clip.crossing(from, to).is_none(), "{from} to {to}");
    }
}

/// Checks that a node which stays unchanged satisfies the target's schema: going up, whatever the
/// older schema allows; going down, whatever both allow.
#[test]
fn unchanged_nodes_fit_the_schemas() {
    let mut wrong = String::new();
    for (operator, older, newer) in boundaries() {
        let (old, new) = (operator.schema_at(older), operator.schema_at(newer));
        let (old, new) = (old.expect("a version"), new.expect("a version"));
        let mut say = |what: &str, why: String| {
            let _ = writeln!(wrong, "{} {older} {newer} {what}: {why}", operator.full_name());
        };
        if let Some(Crossing::Same) = operator.crossing(older, newer)
            && let Err(why) = accepts_all(&old, &new)
        {
            say("up", why);
        }
        match operator.crossing(newer, older) {
            Some(Crossing::Same) => {
                if let Err(why) = accepts_all(&new, &old) {
                    say("down", why);
                }
            }
            Some(Crossing::Types) => {
                // An attribute that the older version lacks stops a node, or has its default.
                if let Some(name) = other_default(&new, &old) {
                    say("down", format!("attribute {name} has another default"));
                }
                if accepts_all(&new, &old).is_ok() && has_equal_variables(&new, &old) {
                    say("down", "no type is in the way".into());
                }
            }
            _ => {}
        }
    }
    assert_eq!(wrong, "");
}

/// Returns an attribute whose absence means something else in the other version.
fn other_default(from: &Schema, to: &Schema) -> Option<&'static str> {
    let mut shared =
        from.attributes.iter().filter_map(|here| Some((here, to.attribute(here.name)?)));
    let differs = shared.find(|(here, there)| {
        here.ty == there.ty && !here.required && there.default != here.default
    });
    differs.map(|(here, _)| here.name)
}

/// Returns whether a schema accepts every node that another one accepts, or the first difference.
fn accepts_all(from: &Schema, to: &Schema) -> Result<(), String> {
    for attribute in &from.attributes {
        match to.attribute(attribute.name) {
            None => return Err(format!("no attribute {}", attribute.name)),
            Some(there) if there.ty != attribute.ty => {
                return Err(format!("attribute {} has another type", attribute.name));
            }
            Some(there) if !attribute.required && there.required => {
                return Err(format!("attribute {} is required", attribute.name));
            }
            Some(there) if !attribute.required && there.default != attribute.default => {
                return Err(format!("attribute {} has another default", attribute.name));
            }
            Some(_) => {}
        }
    }
    for attribute in &to.attributes {
        if attribute.required && from.attribute(attribute.name).is_none() {
            return Err(format!("attribute {} is required", attribute.name));
        }
    }
    for (what, (least, most), (least_there, most_there)) in [
        ("inputs", from.input_count(), to.input_count()),
        ("outputs", from.output_count(), to.output_count()),
    ] {
        let most = most.unwrap_or(usize::MAX);
        if least < least_there || most > most_there.unwrap_or(usize::MAX) {
            return Err(format!("other numbers of {what}"));
        }
    }
    let inputs = from.inputs.iter().zip(&to.inputs);
    let outputs = from.outputs.iter().zip(&to.outputs);
    for (here, there) in inputs.chain(outputs) {
        let allowed = type_names(to, there.ty);
        if let Some(name) = type_names(from, here.ty).iter().find(|name| !allowed.contains(name)) {
            return Err(format!("{} may not be {name}", here.name));
        }
    }
    Ok(())
}

/// Whether the same parameters share a type in both schemas.
fn has_equal_variables(a: &Schema, b: &Schema) -> bool {
    let variables = |schema: &Schema| -> Vec<&str> {
        schema.inputs.iter().chain(&schema.outputs).map(|param| param.ty).collect()
    };
    variables(a) == variables(b)
}

/// Returns the names of the types that a type variable, or a type, allows.
fn type_names(schema: &Schema, ty: &str) -> Vec<String> {
    schema.type_var(ty).map_or_else(|| vec![ty.to_string()], |variable| variable.allowed.names())
}
