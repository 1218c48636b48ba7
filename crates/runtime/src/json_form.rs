//! Implements `serde::Serialize` for ports and reports. The command uses these implementations for
//! `--json`, so the keys are the same.

use sardonyx_model::shown_domain;
use sardonyx_model::{Dim, Type};
use serde::{Serialize, Serializer};

use crate::error::UnsupportedOperator;
use crate::features::RequiredFeature;
use crate::inputs::Port;

/// Writes the keys `name`, `type` as text, `element_type`, `shape` and `required`. An unknown type,
/// element type, shape or dimension is null. A dimension that is an expression is a text.
impl Serialize for Port {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            name: &'a str,
            #[serde(rename = "type")]
            ty: Option<String>,
            element_type: Option<&'static str>,
            shape: Option<&'a [Dim]>,
            required: bool,
        }
        let ty = self.ty();
        let form = Form {
            name: self.name(),
            ty: ty.map(Type::to_string),
            element_type: ty.and_then(Type::elem).map(|elem| elem.name()),
            shape: ty.and_then(Type::shape).map(|shape| &shape[..]),
            required: self.is_required(),
        };
        form.serialize(serializer)
    }
}

/// Writes the keys `feature` and `operators` (their names, sorted).
impl Serialize for RequiredFeature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            feature: &'a str,
            operators: &'a [String],
        }
        Form { feature: self.feature, operators: &self.operators }.serialize(serializer)
    }
}

/// Writes the keys `domain` (`ai.onnx` for the default domain), `name`, `opset` (null if the model
/// does not import the domain), `nodes` (their number) and `why` (the reason why the operator
/// cannot run).
impl Serialize for UnsupportedOperator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            domain: &'a str,
            name: &'a str,
            opset: Option<i64>,
            nodes: usize,
            why: &'a str,
        }
        let form = Form {
            domain: shown_domain(&self.domain),
            name: &self.name,
            opset: self.opset,
            nodes: self.nodes,
            why: &self.why,
        };
        form.serialize(serializer)
    }
}
