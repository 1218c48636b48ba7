//! Inference rules hold for any input.

use sardonyx_model::{Dim, Shape, TensorType, Type};
use sardonyx_ops::{
    AttrType, AttrValue, Attributes, Infer, Known, OpDef, Present, Registry, Schema,
};
use sardonyx_tensor::{DataType, Tensor};

/// Pseudo-random numbers that are equal in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())].clone()
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Dice) -> T) -> Vec<T> {
        (0..self.roll(6)).map(|_| item(self)).collect()
    }

    fn int(&mut self) -> i64 {
        const EXTREME: [i64; 5] = [i64::MIN, i64::MAX, i64::MIN + 1, 1 << 62, -(1 << 31)];
        match self.roll(8) {
            0 => self.pick(&EXTREME),
            1 => -1,
            _ => self.roll(6) as i64,
        }
    }

    fn float(&mut self) -> f32 {
        let special = [0.0, -1.0, f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE];
        match self.roll(3) {
            0 => self.pick(&special),
            _ => self.roll(9) as f32 / 2.0,
        }
    }

    fn dim(&mut self) -> Dim {
        match self.roll(6) {
            0 => Dim::Unknown,
            1 => Dim::symbol("N"),
            2 => Dim::symbol("M").mul(&Dim::symbol("N")).sub(&self.int().into()),
            _ => self.int().into(),
        }
    }

    fn elem(&mut self) -> DataType {
        use DataType::{Bool, Float, Float16, Int32, Int64, String, Uint8};
        self.pick(&[Float, Float16, Int64, Int32, Bool, String, Uint8])
    }

    fn ty(&mut self) -> Option<Type> {
        if self.roll(8) == 0 {
            return None;
        }
        let shape: Option<Shape> =
            (self.roll(5) > 0).then(|| self.list(Dice::dim).into_iter().collect());
        let tensor = TensorType { elem: (self.roll(5) > 0).then(|| self.elem()), shape };
        Some(match self.roll(12) {
            0 => Type::Sequence(Box::new(Type::Tensor(tensor))),
            1 => Type::Optional(Box::new(Type::Tensor(tensor))),
            _ => Type::Tensor(tensor),
        })
    }

    fn known_value(&mut self) -> Option<Known> {
        match self.roll(5) {
            0 => Some(Known::vector(self.list(Dice::dim))),
            1 => Some(Known::scalar(self.dim())),
            2 => {
                let floats = self.list(Dice::float);
                let tensor = Tensor::from_vec(&[floats.len()][..], floats);
                Some(Known::Tensor(tensor.expect("as many elements as the size")))
            }
            _ => None,
        }
    }

    fn attribute(&mut self, ty: AttrType) -> AttrValue<'static> {
        const WORDS: [&str; 12] = [
            "SAME_UPPER",
            "VALID",
            "NOTSET",
            "none",
            "mean",
            "linear",
            "gated_delta",
            "not_larger",
            "bidirectional",
            "ij,jk->ik",
            "...i,i",
            "",
        ];
        match ty {
            AttrType::Float => AttrValue::Float(self.float()),
            AttrType::Int => AttrValue::Int(self.int()),
            AttrType::String => AttrValue::String(self.pick(&WORDS).as_bytes().into()),
            AttrType::Floats => AttrValue::Floats(self.list(Dice::float).into()),
            AttrType::Ints => AttrValue::Ints(self.list(Dice::int).into()),
            AttrType::Strings => {
                AttrValue::Strings(self.list(|dice| dice.pick(&WORDS).as_bytes().into()))
            }
            AttrType::Tensor => {
                let ints: Vec<i64> = self.list(Dice::int);
                let tensor = Tensor::from_vec(&[ints.len()][..], ints);
                AttrValue::Tensor(tensor.expect("as many elements as the size"))
            }
            AttrType::TypeProto => self.ty().map_or(AttrValue::Other, AttrValue::Type),
            _ => AttrValue::Other,
        }
    }
}

struct Given(Vec<(&'static str, AttrValue<'static>)>);

impl Attributes for Given {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let found = self.0.iter().find(|(given, _)| *given == name);
        found.map(|(_, value)| value.clone())
    }
}

fn infer_once(dice: &mut Dice, operator: &OpDef, schema: &Schema) {
    let rule = match dice.roll(2) {
        0 => operator.inference_at(schema.since),
        _ => operator.reference_inference_at(schema.since),
    };
    let rule = rule.unwrap_or_else(|| panic!("{} has a rule", schema.name));
    let mut attributes = Vec::new();
    for attribute in &schema.attributes {
        if dice.roll(3) > 0 {
            attributes.push((attribute.name, dice.attribute(attribute.ty)));
        }
    }
    let attributes = Given(attributes);
    let (inputs, outputs) =
        (dice.roll(schema.inputs.len() + 3), dice.roll(schema.outputs.len() + 3));
    let types: Vec<_> = (0..inputs).map(|_| dice.ty()).collect();
    let known: Vec<_> = (0..inputs).map(|_| dice.known_value()).collect();
    let has_inputs: Vec<_> = (0..inputs).map(|_| dice.roll(5) > 0).collect();
    let has_outputs: Vec<_> = (0..outputs).map(|_| dice.roll(5) > 0).collect();
    let types: Vec<_> = types.iter().map(Option::as_ref).collect();
    let known: Vec<_> = known.iter().map(Option::as_ref).collect();
    let mut cx = Infer::new(schema, &attributes, &types, &known, outputs)
        .with_present(Present { inputs: &has_inputs, outputs: &has_outputs });
    // Most of this is wrong, which must be reported or ignored.
    if rule(&mut cx).is_ok() {
        let _ = cx.finish();
    }
}

#[test]
fn every_version_of_every_operator_has_a_rule() {
    for operator in Registry::standard().operators() {
        for version in operator.versions() {
            let (name, since) = (operator.name, version.since);
            assert!(operator.inference_at(since).is_some(), "{name} {since}");
        }
    }
}

#[test]
fn nothing_makes_a_rule_panic() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for operator in Registry::standard().operators() {
        for version in operator.versions() {
            let schema = operator.schema_at(version.since).expect("its own version");
            for _ in 0..400 {
                infer_once(&mut dice, operator, &schema);
            }
        }
    }
}

/// Checks SHAPE-16+: unknown inputs and unknown ranks are not errors in any version.
#[test]
fn unknown_inputs_are_not_errors() {
    for operator in Registry::standard().operators() {
        for version in operator.versions() {
            let schema = operator.schema_at(version.since).expect("its own version");
            // Without required parts errors are expected. These need one of several inputs or
            // attributes, as those of other domains do.
            let needs_more = ["Constant", "Optional", "Resize"].contains(&schema.name);
            let needs_more = needs_more || !schema.domain.is_empty();
            if needs_more || schema.attributes.iter().any(|attribute| attribute.required) {
                continue;
            }
            let rule = operator.inference_at(version.since);
            let rule = rule.unwrap_or_else(|| panic!("{} has a rule", schema.name));
            let (count, _) = schema.input_count();
            let unknown = Type::Tensor(TensorType { elem: None, shape: None });
            for ty in [None, Some(unknown)] {
                let types = vec![ty.as_ref(); count];
                let given = Given(Vec::new());
                let mut cx = Infer::new(&schema, &given, &types, &[], schema.output_count().0);
                if let Err(error) = rule(&mut cx) {
                    panic!("version {}: {error}", version.since);
                }
            }
        }
    }
}
