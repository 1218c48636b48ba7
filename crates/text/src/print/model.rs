//! Prints models, functions and graphs.

use sardonyx_model::{
    Function, Graph, GraphId, OperatorSetId, SparseInitializer, Symbol, TrainingInfo, ValueInfo,
};
use sardonyx_proto::{DeviceConfigurationProto, MessageType};

use super::{Notes, Printer, is_free_word};
use crate::layout;
use crate::words::is_float_word;

impl<'m> Printer<'m, '_, '_> {
    pub(super) fn write_model(&mut self) {
        let model = self.model;
        self.write_header();
        match model.main {
            Some(graph) => self.write_graph_statement(graph),
            None if self.is_full() => self.push("?\n"),
            None => {
                self.left_out
                    .add("the absence of a graph, which becomes an empty one", || "model".into());
                self.push(
                    "graph () => () {}
",
                );
            }
        }
        for function in &model.functions {
            self.push("\n");
            self.write_function_statement(function);
        }
        let header = &model.header;
        let here = &|| "model".to_string();
        if !self.is_full() {
            let mut notes = Notes::default();
            if !model.training_info.is_empty() {
                self.begin_note(&mut notes, "training_info", "training steps", here);
            }
            if !header.configuration.is_empty() {
                self.begin_harmless_note(
                    &mut notes,
                    "configuration",
                    "device configurations",
                    here,
                );
            }
            self.write_unknown(&mut notes, "unknown", &header.unknown, here);
            return;
        }
        if model.training_info.is_empty()
            && header.configuration.is_empty()
            && header.unknown.is_empty()
        {
            return;
        }
        self.push("\n");
        self.write_statement(|printer| {
            printer.has_lines = true;
            let mut notes = Notes::default();
            if !model.training_info.is_empty()
                && printer.begin_note(&mut notes, "training_info", "", here)
            {
                printer.push("[");
                let mut first = true;
                for info in &model.training_info {
                    printer.write_separator(&mut first);
                    printer.write_training_info(info);
                }
                printer.push("]");
            }
            if !header.configuration.is_empty()
                && printer.begin_note(&mut notes, "configuration", "", here)
            {
                printer.write_messages(DeviceConfigurationProto::DEF, &header.configuration);
            }
            printer.write_unknown(&mut notes, "unknown", &header.unknown, here);
            printer.end_notes(notes);
        });
        self.push("\n");
    }

    fn write_header(&mut self) {
        let model = self.model;
        let header = &model.header;
        let full = self.is_full();
        if full {
            self.collect_files();
            self.files_in_header = true;
        }
        let nothing = !full
            && header.ir_version.is_none()
            && header.opset_import.is_empty()
            && header.model_version.is_none()
            && header.metadata_props.is_empty()
            && [header.producer_name, header.producer_version, header.domain, header.doc_string]
                .iter()
                .all(Option::is_none);
        if nothing {
            return;
        }
        self.write_statement(|printer| {
            printer.has_lines = true;
            printer.push("<");
            let mut first = true;
            if full {
                printer.write_key(&mut first, "notation");
                printer.push("\"full\"");
            }
            if let Some(version) = header.ir_version {
                printer.write_key(&mut first, "ir_version");
                printer.write_integer(version);
            }
            printer.write_imports_entry(&mut first, &header.opset_import);
            printer.write_text_entry(&mut first, "producer_name", header.producer_name);
            printer.write_text_entry(&mut first, "producer_version", header.producer_version);
            printer.write_text_entry(&mut first, "domain", header.domain);
            if let Some(version) = header.model_version {
                printer.write_key(&mut first, "model_version");
                printer.write_integer(version);
            }
            printer.write_text_entry(&mut first, "doc_string", header.doc_string);
            if !header.metadata_props.is_empty() {
                printer.write_key(&mut first, "metadata_props");
                printer.write_pairs(&header.metadata_props, &|| "model".into());
            }
            if full && !printer.files.is_empty() {
                printer.write_key(&mut first, "files");
                printer.push("[");
                let mut first = true;
                for (location, digest) in std::mem::take(&mut printer.files) {
                    printer.write_separator(&mut first);
                    printer.write_quoted(location.as_bytes());
                    printer.push(": ");
                    printer.write_quoted(digest.as_bytes());
                }
                printer.push("]");
            }
            printer.push(">");
        });
        self.end_line();
    }

    fn write_key(&mut self, first: &mut bool, key: &str) {
        self.write_separator(first);
        self.push(key);
        self.push(": ");
    }

    fn write_text_entry(&mut self, first: &mut bool, key: &str, text: Option<Symbol>) {
        if let Some(text) = text {
            self.write_key(first, key);
            self.write_quoted_symbol(text);
        }
    }

    fn write_imports_entry(&mut self, first: &mut bool, imports: &[OperatorSetId]) {
        if imports.is_empty() {
            return;
        }
        self.write_key(first, "opset_import");
        self.push("[");
        let place = &|| "opset_import".to_string();
        let mut first = true;
        for import in imports {
            self.write_separator(&mut first);
            self.write_maybe_quoted(import.domain, place);
            self.push(": ");
            match import.version {
                Some(version) => self.write_integer(version),
                None if self.is_full() => self.push("?"),
                None => {
                    self.left_out.add("operator sets without a version, which becomes 0", place);
                    self.push("0");
                }
            }
            self.write_unknown_notes(&import.unknown, place);
        }
        self.push("]");
    }

    fn write_training_info(&mut self, info: &TrainingInfo) {
        self.push("{");
        let mut first = true;
        let place = &|| "training_info".to_string();
        for (key, graph) in [("initialization", info.initialization), ("algorithm", info.algorithm)]
        {
            if let Some(graph) = graph {
                self.write_key(&mut first, key);
                self.write_graph_here(graph, false);
            }
        }
        for (key, entries) in [
            ("initialization_binding", &info.initialization_binding),
            ("update_binding", &info.update_binding),
        ] {
            if !entries.is_empty() {
                self.write_key(&mut first, key);
                self.write_pairs(entries, place);
            }
        }
        if !info.unknown.is_empty() {
            self.write_key(&mut first, "unknown");
            self.write_unknown_list(&info.unknown);
        }
        self.push("}");
    }

    // Graphs.

    /// Writes a graph on lines of its own.
    pub(super) fn write_graph_statement(&mut self, id: GraphId) {
        self.write_graph_here(id, false);
        self.out.push(b'\n');
        if self.out.len() > super::CHUNK && self.sink.is_some() {
            self.flush();
        }
    }

    /// Writes a graph at the current position: inside a statement, possibly as the value of an
    /// attribute, or as a statement.
    pub(super) fn write_graph_here(&mut self, id: GraphId, is_value: bool) {
        let graph = self.model.graph(id);
        let has_block = self.has_info(graph);
        let own_lines = !self.nested;
        let has_notes = self.is_full() && has_notes(graph);
        let tail = match (has_block, has_notes) {
            (true, _) => " <".len(),
            (false, true) => " @<".len(),
            (false, false) => block_tail(graph),
        };
        self.write_statement_before(tail, |printer| {
            printer.write_graph_name(graph, is_value);
            printer.push(" (");
            let mut first = true;
            for info in &graph.inputs {
                printer.write_separator(&mut first);
                printer.write_value_info(info, "graph inputs");
            }
            printer.push(") => (");
            let mut first = true;
            for info in &graph.outputs {
                printer.write_separator(&mut first);
                printer.write_value_info(info, "graph outputs");
            }
            printer.push(")");
        });
        if has_block {
            self.push(" <");
            self.begin_block();
            let sparse = if self.is_full() { &graph.sparse_initializers[..] } else { &[] };
            let total = graph.initializers.len() + sparse.len() + graph.value_info.len();
            let mut done = 0;
            let mut entry = |printer: &mut Self, write: &mut dyn FnMut(&mut Self)| {
                done += 1;
                let last = done == total;
                printer.write_statement_before(usize::from(!last), write);
                if !last {
                    printer.push(",");
                }
                printer.end_line();
            };
            for initializer in &graph.initializers {
                entry(self, &mut |printer| {
                    printer.write_initializer(&initializer.tensor, own_lines)
                });
            }
            for SparseInitializer { tensor, .. } in sparse {
                entry(self, &mut |printer| printer.write_sparse_tensor(tensor));
            }
            for info in &graph.value_info {
                entry(self, &mut |printer| printer.write_value_info(info, "value_info"));
            }
            self.end_block();
            self.push(">");
        }
        if !self.is_full() {
            for sparse in &graph.sparse_initializers {
                let name = sparse.tensor.values.as_ref().and_then(|values| values.name);
                let model = self.model;
                self.left_out.add("sparse initializers", || model.display(name).into_owned());
            }
        }
        self.write_graph_notes(graph);
        self.push(" {");
        self.write_nodes(graph);
        self.push("}");
    }

    /// Writes the nodes of a graph, each on its line, if this form can express any of them.
    fn write_nodes(&mut self, graph: &Graph) {
        if graph.nodes.is_empty() {
            return;
        }
        let opened = self.out.len();
        self.begin_block();
        let mut any = false;
        for node in &graph.nodes {
            any |= self.write_node_line(*node);
        }
        self.end_block();
        // Without a line, nothing was flushed either.
        if !any {
            self.out.truncate(opened);
        }
    }

    fn has_info(&self, graph: &Graph) -> bool {
        !graph.initializers.is_empty()
            || !graph.value_info.is_empty()
            || (self.is_full() && !graph.sparse_initializers.is_empty())
    }

    /// Begins lines within a bracket.
    fn begin_block(&mut self) {
        if self.nested {
            self.has_lines = true;
        } else {
            self.out.push(b'\n');
            self.indent += layout::INDENT;
        }
    }

    fn end_block(&mut self) {
        if self.nested {
            // Removes the blank after the last statement.
            self.out.truncate(self.out.trim_ascii_end().len());
        } else {
            self.indent -= layout::INDENT;
            self.out.resize(self.out.len() + self.indent, b' ');
        }
    }

    fn write_graph_name(&mut self, graph: &Graph, is_value: bool) {
        match graph.name {
            Some(name) if !self.is_full() && is_value && self.value_name_is_odd(name) => {
                let model = self.model;
                self.left_out.add_harmless("names of subgraphs that are no identifiers", || {
                    model.display(Some(name)).into_owned()
                });
                self.push("graph");
            }
            Some(name) => self.write_name(name),
            None if self.is_full() => self.push("?"),
            None => {
                self.left_out.add("graphs without a name, which get one", || "graph".into());
                self.push("graph");
            }
        }
    }

    /// Whether the name of a graph in an attribute would need quotes, which the `onnx` package
    /// cannot parse.
    fn value_name_is_odd(&self, name: Symbol) -> bool {
        let text = self.model.text(name);
        // The package parses the first letters of some names as a number.
        let like_number = text.get(..3).is_some_and(is_float_word);
        !is_free_word(text) || like_number
    }

    fn write_graph_notes(&mut self, graph: &Graph) {
        let model = self.model;
        let place = &|| format!("graph {}", model.display(graph.name));
        if !has_notes(graph) {
            return;
        }
        let mut write = |printer: &mut Self| {
            let mut notes = Notes::default();
            printer.write_doc_note(&mut notes, graph.doc_string, place);
            if !graph.quantization_annotation.is_empty()
                && printer.begin_note(
                    &mut notes,
                    "quantization_annotation",
                    "quantization annotations",
                    place,
                )
            {
                printer.push("[");
                let mut first = true;
                for annotation in &graph.quantization_annotation {
                    printer.write_separator(&mut first);
                    printer.write_maybe_quoted(annotation.tensor_name, place);
                    printer.push(": ");
                    printer.write_pairs(&annotation.quant_parameter_tensor_names, place);
                    printer.write_unknown_notes(&annotation.unknown, place);
                }
                printer.push("]");
            }
            printer.write_metadata_note(&mut notes, &graph.metadata_props, place);
            printer.write_unknown(&mut notes, "unknown", &graph.unknown, place);
            printer.end_notes(notes);
        };
        self.write_continuation(block_tail(graph), &mut write);
    }

    /// Continues a statement whose last line has been written already.
    fn write_continuation(&mut self, tail: usize, write: &mut dyn FnMut(&mut Self)) {
        if self.nested {
            return write(self);
        }
        let line = self.out.iter().rposition(|byte| *byte == b'\n');
        let line = line.map_or(0, |at| at + 1);
        let start = self.out.len();
        self.nested = true;
        self.has_lines = false;
        write(self);
        self.nested = false;
        if self.has_lines || self.out.len() + tail - line > layout::WIDTH {
            let flat = self.out.split_off(start);
            layout::lay_out_continuation(&flat, self.indent, start - line, tail, &mut self.out);
        }
    }

    /// Writes `type name` and the annotations of a value.
    pub(super) fn write_value_info(&mut self, info: &ValueInfo, what: &str) {
        let model = self.model;
        let place = &|| format!("{what}: {}", model.display(info.name));
        if let Some(ty) = &info.ty
            && self.write_type_proto(ty, place)
        {
            self.push(" ");
        }
        match info.name {
            Some(name) => self.write_name(name),
            None if self.is_full() => self.push("?"),
            None => {
                self.left_out.add("values without a name, which becomes empty", place);
                self.push("\"\"");
            }
        }
        let mut notes = Notes::with_marks();
        self.write_doc_note(&mut notes, info.doc_string, place);
        self.write_metadata_note(&mut notes, &info.metadata_props, place);
        self.write_unknown(&mut notes, "unknown", &info.unknown, place);
        self.end_notes(notes);
    }

    /// Returns whether a value info has more than a name. Others are not printed as entries.
    fn has_content(&self, info: &ValueInfo) -> bool {
        let typed = info.ty.as_ref().is_some_and(|ty| self.is_full() || self.type_is_portable(ty));
        let noted = info.doc_string.is_some()
            || !info.metadata_props.is_empty()
            || !info.unknown.is_empty();
        info.name.is_some() && (typed || (self.is_full() && noted))
    }

    // Functions.

    pub(super) fn write_function_statement(&mut self, function: &'m Function) {
        let model = self.model;
        let body = model.graph(function.body);
        let place = &|| format!("function {}", model.display(function.name));
        self.write_function_header(function, place);
        let mut infos = body.value_info.iter().peekable();
        self.write_statement_before(block_tail(body), |printer| {
            match function.name {
                None if !printer.is_full() => {
                    printer.left_out.add("functions without a name, which get one", place);
                    printer.push("function");
                }
                name => printer.write_maybe_name(name),
            }
            if !function.attributes.is_empty() || !function.attribute_protos.is_empty() {
                printer.write_parameters(function, place);
            }
            printer.push(" (");
            // The types of inputs and outputs are expected first in the list of types, in this
            // order.
            for (values, arrow) in [(&body.inputs, ") => ("), (&body.outputs, ")")] {
                let mut first = true;
                for value in values {
                    printer.write_separator(&mut first);
                    match infos.next_if(|info| info.name == value.name && printer.has_content(info))
                    {
                        Some(info) => printer.write_value_info(info, "value_info"),
                        None => printer.write_maybe_name(value.name),
                    }
                }
                printer.push(arrow);
            }
        });
        let rest: Vec<&ValueInfo> = infos.collect();
        if !rest.is_empty() {
            self.push(" <");
            self.begin_block();
            let count = rest.len();
            for (index, info) in rest.into_iter().enumerate() {
                let last = index + 1 == count;
                self.write_statement_before(usize::from(!last), |printer| {
                    printer.write_value_info(info, "value_info");
                });
                if !last {
                    self.push(",");
                }
                self.end_line();
            }
            self.end_block();
            self.push(">");
        }
        self.push(" {");
        self.write_nodes(body);
        self.push("}\n");
    }

    fn write_function_header(&mut self, function: &Function, place: &dyn Fn() -> String) {
        let full = self.is_full();
        if !full {
            let mut notes = Notes::default();
            if !function.metadata_props.is_empty() {
                self.begin_harmless_note(&mut notes, "", "metadata", place);
            }
            if !function.unknown.is_empty() {
                self.begin_note(&mut notes, "", "unknown fields", place);
            }
        }
        let said = function.domain.is_some()
            || function.overload.is_some()
            || function.doc_string.is_some()
            || !function.opset_import.is_empty()
            || (full && (!function.metadata_props.is_empty() || !function.unknown.is_empty()));
        if !said {
            return;
        }
        self.write_statement(|printer| {
            printer.has_lines = true;
            printer.push("<");
            let mut first = true;
            printer.write_text_entry(&mut first, "domain", function.domain);
            printer.write_text_entry(&mut first, "overload", function.overload);
            printer.write_imports_entry(&mut first, &function.opset_import);
            printer.write_text_entry(&mut first, "doc_string", function.doc_string);
            if full && !function.metadata_props.is_empty() {
                printer.write_key(&mut first, "metadata_props");
                printer.write_pairs(&function.metadata_props, place);
            }
            if full && !function.unknown.is_empty() {
                printer.write_key(&mut first, "unknown");
                printer.write_unknown_list(&function.unknown);
            }
            printer.push(">");
        });
        self.end_line();
    }

    fn write_parameters(&mut self, function: &Function, place: &dyn Fn() -> String) {
        self.push(" <");
        let mut first = true;
        for name in &function.attributes {
            self.write_separator(&mut first);
            self.write_name(*name);
        }
        for attribute in &function.attribute_protos {
            let mut before = first;
            let start = self.out.len();
            self.write_separator(&mut before);
            if self.write_attribute(attribute, place) {
                first = false;
            } else {
                self.out.truncate(start);
            }
        }
        if first {
            // No parameter could be printed.
            self.out.truncate(self.out.len() - 2);
        } else {
            self.push(">");
        }
    }
}

fn has_notes(graph: &Graph) -> bool {
    graph.doc_string.is_some()
        || !graph.quantization_annotation.is_empty()
        || !graph.metadata_props.is_empty()
        || !graph.unknown.is_empty()
}

/// Returns the number of bytes that follow the head of a graph in its line.
fn block_tail(graph: &Graph) -> usize {
    if graph.nodes.is_empty() { " {}".len() } else { " {".len() }
}
