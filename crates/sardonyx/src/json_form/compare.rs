//! Implements `serde::Serialize` for comparisons of models.

use sardonyx_tensor::WorstElement;
use serde::{Serialize, Serializer};

use crate::compare::{ComparedValue, Comparison, DivergingPart};

/// Number that may be infinite, which JSON lacks: it becomes the text `inf`.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f64(self.0)
        } else {
            serializer.serialize_str("inf")
        }
    }
}

/// Serializes a compared value with the keys `name`, `other_name`, `node`, `other_node`, `type`,
/// `sure`, `differs`, `message`, `elements`, `differing`, `max_absolute`, `mean_absolute`,
/// `max_relative`, `signal_to_noise_db` and `worst` (`index`, `value`, `expected`; null if the
/// value agrees).
impl Serialize for ComparedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Worst<'a> {
            index: &'a [usize],
            value: &'a str,
            expected: &'a str,
        }
        #[derive(Serialize)]
        struct Fields<'a> {
            name: &'a str,
            other_name: &'a str,
            node: &'a str,
            other_node: &'a str,
            r#type: &'a str,
            sure: bool,
            differs: bool,
            message: Option<String>,
            elements: usize,
            differing: usize,
            max_absolute: Number,
            mean_absolute: Number,
            max_relative: Number,
            signal_to_noise_db: Option<Number>,
            worst: Option<Worst<'a>>,
        }
        let worst = self.worst.as_ref().filter(|_| self.differs);
        Fields {
            name: &self.name,
            other_name: &self.other_name,
            node: &self.node,
            other_node: &self.other_node,
            r#type: &self.ty,
            sure: self.is_sure,
            differs: self.differs,
            message: self.describe(),
            elements: self.elements,
            differing: self.differing,
            max_absolute: Number(self.largest),
            mean_absolute: Number(self.mean),
            max_relative: Number(self.relative),
            signal_to_noise_db: self.decibels.map(Number),
            worst: worst.map(|WorstElement { index, got, want, .. }| Worst {
                index,
                value: got,
                expected: want,
            }),
        }
        .serialize(serializer)
    }
}

/// Serializes a part that differs with the keys `nodes`, `other_nodes`, `inputs` (names), `output`,
/// `differs_alone` and `message`; `other_nodes` and `differs_alone` are null for stored values.
impl Serialize for DivergingPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            nodes: &'a [String],
            other_nodes: Option<&'a [String]>,
            inputs: Vec<&'a str>,
            output: &'a str,
            differs_alone: Option<bool>,
            message: Option<&'a str>,
        }
        let has_other = self.other.is_some();
        Fields {
            nodes: &self.nodes,
            other_nodes: has_other.then_some(&self.other_nodes),
            inputs: self.inputs.iter().map(|(name, _)| name.as_str()).collect(),
            output: &self.output.0,
            differs_alone: has_other.then_some(self.difference.is_some()),
            message: self.difference.as_deref(),
        }
        .serialize(serializer)
    }
}

/// Serializes a comparison with the keys `compared`, `matched`, `unmatched`, `differing`,
/// `doubtful`, `first`, `part`, `not_in_model` and `not_in_double`.
impl Serialize for Comparison {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            compared: usize,
            matched: usize,
            unmatched: usize,
            differing: usize,
            doubtful: usize,
            first: Option<&'a ComparedValue>,
            part: Option<&'a DivergingPart>,
            not_in_model: &'a [String],
            not_in_double: &'a [String],
        }
        Fields {
            compared: self.compared,
            matched: self.matched,
            unmatched: self.unmatched,
            differing: self.differing,
            doubtful: self.doubtful,
            first: self.first.as_ref(),
            part: self.part.as_ref(),
            not_in_model: &self.unknown,
            not_in_double: &self.narrow,
        }
        .serialize(serializer)
    }
}
