//! Form of the differences between two models.

use sardonyx_model::shown_domain;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::diff::{
    ConstantChange, FieldChange, GraphDiff, Impact, ImportChange, ModelDiff, NodeChange,
    NodeDetail, PartChange, PortChange, Spread, TensorChange, VersionAdvice, format_version,
};

/// Writes whether the models are `equal`, the changed fields of the `header`, `imports`, `ports`,
/// `parts` (functions and training steps), `graphs`, and advice on the `version`.
impl Serialize for ModelDiff {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            equal: bool,
            header: &'a [FieldChange],
            imports: &'a [ImportChange],
            ports: &'a [PortChange],
            parts: &'a [PartChange],
            graphs: &'a [GraphDiff],
            weights_only: bool,
            version: &'a VersionAdvice,
        }
        let form = Form {
            equal: self.is_empty(),
            header: &self.header,
            imports: &self.imports,
            ports: &self.ports,
            parts: &self.parts,
            graphs: &self.graphs,
            weights_only: self.is_weights_only(),
            version: &self.version,
        };
        form.serialize(serializer)
    }
}

/// Writes `none`, `patch`, `minor` or `major`.
impl Serialize for Impact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Writes the `impact`, the versions `before`, `after` and `advised` as texts, and whether the
/// advice is `followed`.
impl Serialize for VersionAdvice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form {
            impact: Impact,
            before: String,
            after: String,
            advised: Option<String>,
            followed: bool,
        }
        let form = Form {
            impact: self.impact,
            before: format_version(self.before),
            after: format_version(self.after),
            advised: self.advised.map(format_version),
            followed: self.is_followed,
        };
        form.serialize(serializer)
    }
}

/// Writes `field`, `before` and `after`.
impl Serialize for FieldChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("field", &self.field)?;
        map.serialize_entry("before", &self.before)?;
        map.serialize_entry("after", &self.after)?;
        map.end()
    }
}

/// Writes the `domain` and the versions `before` and `after`.
impl Serialize for ImportChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("domain", shown_domain(&self.domain))?;
        map.serialize_entry("before", &self.before)?;
        map.serialize_entry("after", &self.after)?;
        map.end()
    }
}

/// Writes `kind`, `name`, the declarations `before` and `after`, `impact` and `meaning`.
impl Serialize for PortChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            kind: &'a str,
            name: &'a str,
            before: Option<&'a str>,
            after: Option<&'a str>,
            impact: Impact,
            meaning: &'a str,
        }
        let form = Form {
            kind: self.kind.name(),
            name: &self.name,
            before: self.before.as_deref(),
            after: self.after.as_deref(),
            impact: self.impact,
            meaning: self.meaning,
        };
        form.serialize(serializer)
    }
}

/// Writes the `name` and the `change`, `added` or `removed`.
impl Serialize for PartChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("change", if self.is_added { "added" } else { "removed" })?;
        map.end()
    }
}

/// Writes the `place`, numbers of nodes, changed `nodes` and `constants`, moved `outputs`, `ports`,
/// the number of changed `types`, and changed `fields`.
impl Serialize for GraphDiff {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            place: &'a str,
            nodes_before: usize,
            nodes_after: usize,
            nodes: &'a [NodeChange],
            constants: &'a [ConstantChange],
            outputs: &'a [String],
            ports: &'a [PortChange],
            types: usize,
            fields: &'a [FieldChange],
        }
        let form = Form {
            place: &self.place,
            nodes_before: self.nodes_before,
            nodes_after: self.nodes_after,
            nodes: &self.nodes,
            constants: &self.constants,
            outputs: &self.outputs,
            ports: &self.ports,
            types: self.types,
            fields: &self.fields,
        };
        form.serialize(serializer)
    }
}

/// Writes `change`, `place`, the nodes `before` and `after`, and `details`.
impl Serialize for NodeChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            change: &'a str,
            place: &'a str,
            before: Option<&'a str>,
            after: Option<&'a str>,
            details: &'a [NodeDetail],
        }
        let form = Form {
            change: self.kind.name(),
            place: &self.place,
            before: self.before.as_deref(),
            after: self.after.as_deref(),
            details: &self.details,
        };
        form.serialize(serializer)
    }
}

/// Writes the `kind`, what identifies the part (`name`, `index` or `field`), `before` and `after`,
/// and for an attribute how its `content` differs.
impl Serialize for NodeDetail {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            NodeDetail::Callee { before, after } => {
                map.serialize_entry("kind", "operator")?;
                map.serialize_entry("before", before)?;
                map.serialize_entry("after", after)?;
            }
            NodeDetail::Attribute { name, before, after, content } => {
                map.serialize_entry("kind", "attribute")?;
                map.serialize_entry("name", name)?;
                map.serialize_entry("before", before)?;
                map.serialize_entry("after", after)?;
                map.serialize_entry("content", content)?;
            }
            NodeDetail::Input { index, before, after } => {
                map.serialize_entry("kind", "input")?;
                map.serialize_entry("index", index)?;
                map.serialize_entry("before", before)?;
                map.serialize_entry("after", after)?;
            }
            NodeDetail::Output { index, before, after } => {
                map.serialize_entry("kind", "output")?;
                map.serialize_entry("index", index)?;
                map.serialize_entry("before", before)?;
                map.serialize_entry("after", after)?;
            }
            NodeDetail::Field(FieldChange { field, before, after }) => {
                map.serialize_entry("field", field)?;
                map.serialize_entry("before", before)?;
                map.serialize_entry("after", after)?;
                map.serialize_entry("kind", "field")?;
            }
        }
        map.end()
    }
}

/// Writes the declarations `before` and `after`, and how the `content` differs.
impl Serialize for ConstantChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("before", &self.before)?;
        map.serialize_entry("after", &self.after)?;
        map.serialize_entry("content", &self.content)?;
        map.end()
    }
}

/// Writes null for equal tensors; otherwise in what they `differs`: `type`, `values` with numbers,
/// or `unknown` with the reason.
impl Serialize for TensorChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = match self {
            TensorChange::None => return serializer.serialize_none(),
            _ => serializer.serialize_map(None)?,
        };
        match self {
            TensorChange::None => {}
            TensorChange::Type => map.serialize_entry("differs", "type")?,
            TensorChange::Values(Spread { count, total, largest, mean }) => {
                map.serialize_entry("differs", "values")?;
                map.serialize_entry("count", count)?;
                map.serialize_entry("total", total)?;
                map.serialize_entry("largest", &Some(largest).filter(|found| found.is_finite()))?;
                map.serialize_entry("mean", &Some(mean).filter(|found| found.is_finite()))?;
            }
            TensorChange::Unknown(why) => {
                map.serialize_entry("differs", "unknown")?;
                map.serialize_entry("why", why)?;
            }
        }
        map.end()
    }
}
