//! Functions of operators as ONNX text, with signature and indentation.

use std::fmt::Write;

use crate::def::OpDef;
use crate::function::{Body, Call, Expand};
use crate::registry::Registry;
use crate::schema::{Arity, Param, Schema};

impl OpDef {
    /// Returns the operator at an opset version as a function in ONNX text; `call` is needed if the
    /// function depends on it.
    ///
    /// Takes the newest function that is written for that opset version or an older one. Returns
    /// `None` if there is none, if a call is needed and missing, if the standard has no function
    /// for this call, or if a function of an older opset version calls an operator of `ai.onnx`
    /// that has changed since, according to the registry. A function that is built for a call
    /// always fits, since it imports `opset`.
    pub fn function_text(
        &self,
        registry: &Registry,
        opset: u32,
        call: Option<&Call<'_>>,
    ) -> Option<String> {
        let version_of = |callee: &str, opset: u32| {
            registry.operator("", callee).and_then(|callee| callee.version_at(opset))
        };
        let schema = self.schema_at(opset)?;
        let (since, body) = self.bodies().rfind(|(since, _)| *since <= opset)?;
        match body {
            Body::Text(nodes) => {
                let fits = callees(nodes)
                    .all(|callee| version_of(callee, since) == version_of(callee, opset));
                fits.then(|| complete(registry, &schema, since, call, nodes))
            }
            Body::Built(build) => {
                let nodes = build(&Expand::new(&schema, opset, call?))?;
                Some(complete(registry, &schema, opset, call, &nodes))
            }
            Body::Reasoned(build) => {
                let nodes = build(&Expand::new(&schema, opset, call?)).ok()?;
                Some(complete(registry, &schema, opset, call, &nodes))
            }
        }
    }

    /// Returns the reason why the operator has no function for a call at an opset version, if its
    /// builder states one.
    pub fn why_no_function(&self, opset: u32, call: &Call<'_>) -> Option<String> {
        let schema = self.schema_at(opset)?;
        match self.bodies().rfind(|(since, _)| *since <= opset)?.1 {
            Body::Reasoned(build) => build(&Expand::new(&schema, opset, call)).err(),
            Body::Text(_) | Body::Built(_) => None,
        }
    }

    /// Returns a function in ONNX text through which a call is differentiated, for an operator that
    /// has neither a gradient rule nor a function.
    ///
    /// # Errors
    ///
    /// The reason why there is none for the call; empty if the operator has none at all.
    pub fn gradient_text(
        &self,
        registry: &Registry,
        opset: u32,
        call: &Call<'_>,
    ) -> Result<String, String> {
        let (schema, build) = self.schema_at(opset).zip(self.gradient_body()).ok_or("")?;
        let nodes = build(&Expand::new(&schema, opset, call))?;
        Ok(complete(registry, &schema, opset, Some(call), &nodes))
    }

    /// Returns a function in ONNX text that computes a call where axes are split that the operator
    /// itself needs whole, if there is one.
    pub fn split_text(&self, registry: &Registry, opset: u32, call: &Call<'_>) -> Option<String> {
        let (schema, build) = self.schema_at(opset).zip(self.split_nodes())?;
        let nodes = build(&Expand::new(&schema, opset, call))?;
        Some(complete(registry, &schema, opset, Some(call), &nodes))
    }

    /// Returns a function in ONNX text that can replace a call. Unlike
    /// [`function_text`](Self::function_text), a function whose operators have changed since
    /// imports the opset version that it was written for, and the nodes are corrected where the
    /// function is wrong for this call.
    ///
    /// # Errors
    ///
    /// The reason why the function may be wrong for the call, if no other nodes are known.
    pub fn expansion_text(
        &self,
        registry: &Registry,
        opset: u32,
        call: &Call<'_>,
    ) -> Result<Option<String>, String> {
        let Some(schema) = self.schema_at(opset) else { return Ok(None) };
        let Some((since, body)) = self.bodies().rfind(|(since, _)| *since <= opset) else {
            return Ok(None);
        };
        let cx = Expand::new(&schema, opset, call);
        let other = self.call_nodes().map_or(Ok(None), |build| build(&cx))?;
        let (opset, nodes) = match (other, body) {
            (Some(nodes), _) => (opset, Some(nodes)),
            (None, Body::Text(nodes)) => (since, Some(nodes.to_string())),
            (None, Body::Built(build)) => (opset, build(&cx)),
            (None, Body::Reasoned(build)) => (opset, build(&cx).ok()),
        };
        let Some(nodes) = nodes else { return Ok(None) };
        let is_open = |index: &usize| cx.has_input(*index) && cx.rank(*index) != Some(0);
        let open = self.scalar_inputs().iter().copied().filter(is_open);
        let squeezed: Vec<&str> =
            open.filter_map(|index| Some(schema.inputs.get(index)?.name)).collect();
        let text = complete_squeezing(registry, &schema, opset, Some(call), (&nodes, &squeezed));
        Ok(Some(text))
    }
}

/// Returns the operators that nodes call, except those that graphs in attributes call.
fn callees(nodes: &str) -> impl Iterator<Item = &str> {
    let mut brackets = 0;
    nodes.match_indices(['<', '>', '=']).filter_map(move |(at, sign)| {
        let rest = &nodes[at + 1..];
        match sign {
            "<" => brackets += 1,
            ">" if !nodes[..at].ends_with('=') => brackets -= 1,
            "=" if brackets == 0 => {
                let rest = rest.trim_start();
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                return Some(&rest[..end.unwrap_or(rest.len())]);
            }
            _ => {}
        }
        None
    })
}

/// Suffix of an input's name if the scalar that is made of it takes the name itself.
const GIVEN: &str = "_given";

/// Puts the signature of a function before its nodes, each on its own line.
fn complete(
    registry: &Registry,
    schema: &Schema,
    opset: u32,
    call: Option<&Call<'_>>,
    nodes: &str,
) -> String {
    complete_squeezing(registry, schema, opset, call, (nodes, &[]))
}

/// Puts the signature of a function before its nodes, after nodes that make scalars of the inputs
/// `squeezed`.
fn complete_squeezing(
    registry: &Registry,
    schema: &Schema,
    opset: u32,
    call: Option<&Call<'_>>,
    (nodes, squeezed): (&str, &[&str]),
) -> String {
    let newest = registry.versions("").map(|(_, newest)| newest);
    // A function that is added to `ai.onnx` consists of the newest operators, whatever version
    // calls it.
    let is_added = schema.domain.is_empty() && registry.is_added(schema);
    let opset = newest.filter(|_| is_added).unwrap_or(opset);
    let mut text =
        format!("<domain: {:?}, opset_import: [{:?}: {opset}", schema.domain, schema.domain);
    // Functions in other domains consist of operators of `ai.onnx`.
    if let (false, Some(newest)) = (schema.domain.is_empty(), newest) {
        let _ = write!(text, ", \"\": {newest}");
    }
    text += "]>\n";
    text += schema.name;
    if !schema.attributes.is_empty() {
        let names: Vec<_> = schema.attributes.iter().map(|attribute| attribute.name).collect();
        let _ = write!(text, " <{}>", names.join(", "));
    }
    let mut inputs = parameters(&schema.inputs, call.map(|call| call.inputs.len()));
    for input in inputs.iter_mut().filter(|input| squeezed.contains(&input.as_str())) {
        *input += GIVEN;
    }
    let outputs = parameters(&schema.outputs, call.map(|call| call.outputs.len()));
    let _ = writeln!(text, " ({}) => ({})\n{{", inputs.join(", "), outputs.join(", "));
    for input in squeezed {
        let _ = writeln!(text, "  {input} = Squeeze ({input}{GIVEN})");
    }
    let mut level = 1_usize;
    for line in lines(nodes) {
        if line.starts_with(['}', '>']) {
            level = level.saturating_sub(1);
        }
        let _ = writeln!(text, "{:1$}{line}", "", 2 * level);
        if line.ends_with(['{', '<']) {
            level += 1;
        }
    }
    text + "}\n"
}

/// Returns the lines of a text that are not blank, trimmed. Line breaks in strings, which graphs of
/// a call may have, do not end a line.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let (mut in_string, mut is_escaped) = (false, false);
    let ends_line = move |c: char| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if in_string => is_escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
        c == '\n' && !in_string
    };
    text.split(ends_line).map(str::trim).filter(|line| !line.is_empty())
}

/// Returns the names of parameters. A variadic one has as many as the call: its name and the
/// position.
fn parameters(params: &[Param], count: Option<usize>) -> Vec<String> {
    let mut names = Vec::new();
    for (index, param) in params.iter().enumerate() {
        match param.arity {
            Arity::Variadic { .. } => {
                let end = count.unwrap_or(index + 1);
                names.extend((index..end).map(|position| format!("{}_{position}", param.name)));
            }
            Arity::Single | Arity::Optional => names.push(param.name.to_string()),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(name: &str) -> &'static OpDef {
        Registry::standard().operator("", name).unwrap()
    }

    #[test]
    fn calls_are_found_in_text_and_not_in_graphs_of_attributes() {
        let nodes = "a, b = Split <axis = -1, num_outputs = 2> (x)
            c = If (b) <
                then_branch = g () => (d) { d = Neg (a) },
                else_branch = h () => (e) { e = Abs (a) }
            >
            f=Relu(c)";
        let found: Vec<_> = callees(nodes).collect();
        assert_eq!(found, ["Split", "If", "Relu"]);
    }

    #[test]
    fn versions_without_functions_of_their_own_have_the_older_ones() {
        let rows: [(&str, u32, &[(u32, bool)]); 9] = [
            ("Elu", 1, &[]),
            ("Elu", 6, &[(18, false)]),
            ("Elu", 22, &[(18, false)]),
            ("MeanVarianceNormalization", 9, &[(9, false)]),
            ("MeanVarianceNormalization", 13, &[(13, false), (18, false)]),
            ("Softmax", 11, &[]),
            ("Softmax", 13, &[(13, true), (18, true)]),
            ("Celu", 28, &[(28, false)]),
            ("CastLike", 25, &[(25, true)]),
        ];
        for (name, version, expected) in rows {
            let found = operator(name).functions_of(version);
            let found: Vec<_> =
                found.iter().map(|function| (function.since, function.needs_call)).collect();
            assert_eq!(found, expected, "{name}-{version}");
        }
    }

    #[test]
    fn a_function_holds_until_an_operator_in_it_changes() {
        // `CastLike` and `Constant` changed in 19; `Or` and `Equal` in 13, `Greater` too.
        let rows = [
            ("Elu", 17, false),
            ("Elu", 18, true),
            ("Elu", 19, false),
            ("Elu", 22, false),
            ("GreaterOrEqual", 12, true),
            ("GreaterOrEqual", 13, false),
            ("GreaterOrEqual", 16, true),
            ("SwiGLU", 28, true),
            ("HardSwish", 14, true),
            ("HardSwish", 21, true),
        ];
        for (name, opset, expected) in rows {
            let text = operator(name).function_text(&Registry::standard(), opset, None);
            assert_eq!(text.is_some(), expected, "{name} at opset {opset}");
        }
    }
}
