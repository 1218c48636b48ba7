//! Parses models and functions: headers, imports, and annotations at the end of the text.

use sardonyx_model::{
    Attribute, Entry, Function, Graph, GraphId, OperatorSetId, Span, TensorAnnotation,
    TrainingInfo, Unknowns, ValueInfo,
};
use sardonyx_proto::{DeviceConfigurationProto, MessageType};

use super::{Failed, Name, Parse, Parser};
use crate::tree::SyntaxKind;
use crate::words::{FUNCTION_KEYS, GRAPH_NOTES, MODEL_KEYS, MODEL_NOTES, TRAINING_KEYS};

impl<'a> Parser<'_, 'a> {
    /// Parses a whole text.
    pub(super) fn parse_model(&mut self) -> Parse {
        let part = self.open_at(SyntaxKind::Model, 0);
        // Training steps see the values of the main graph, even if they precede it.
        let mut failed = false;
        if self.report_not_text() {
            return Err(Failed);
        }
        if self.cursor.next() == b'<' {
            failed |= self.parse_header(MODEL_KEYS, Self::parse_model_entry).is_err();
        }
        if !self.at_notes() && !self.eat_absent_graph() {
            self.in_main_graph = true;
            let main = self.parse_graph(None, None);
            self.in_main_graph = false;
            match main {
                Ok(graph) => self.build.model.main = Some(graph),
                Err(Failed) => {
                    failed = true;
                    self.skip_to_function();
                }
            }
        }
        while !self.is_hopeless() && !self.at_end_or_notes() {
            if self.parse_function().is_err() {
                failed = true;
                self.skip_to_function();
            }
        }
        if self.at_notes() {
            failed |= self.parse_notes(MODEL_NOTES, Self::parse_model_note).is_err();
        }
        self.close(part);
        if failed { Err(Failed) } else { Ok(()) }
    }

    /// Reports input that is not text. Returns whether it did.
    fn report_not_text(&mut self) -> bool {
        let byte = self.cursor.next();
        let start = self.cursor.pos;
        let help = match self.cursor.text[start..] {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "this is UTF-16; texts are in UTF-8",
            _ if byte < b' ' && !self.cursor.at_end() => "this seems to be a binary file",
            _ => return false,
        };
        let _ = self.fail_expected_with::<()>("a model in ONNX text", help);
        self.cursor.pos = self.cursor.text.len();
        true
    }

    /// Skips a `?` in place of the graph. Before a parenthesis it would stand for the name.
    fn eat_absent_graph(&mut self) -> bool {
        let mut probe = self.cursor.clone();
        let found = probe.eat(b'?') && !matches!(probe.next(), b'(' | b'=');
        if found {
            self.cursor.pos += 1;
        }
        found
    }

    fn at_end_or_notes(&mut self) -> bool {
        self.cursor.next();
        self.cursor.at_end() || self.at_notes()
    }

    /// Moves to the next line that begins like the header of a function, or to the end.
    fn skip_to_function(&mut self) {
        loop {
            let before = self.cursor.pos;
            let byte = self.cursor.next();
            if self.cursor.at_end() {
                return;
            }
            let at_line_start =
                before < self.cursor.pos && self.cursor.text[self.cursor.pos - 1] == b'\n';
            if at_line_start && byte == b'<' {
                return;
            }
            self.skip_token(byte);
        }
    }

    /// Parses `<key: value, …>`; `entry` parses the value of a key.
    fn parse_header(
        &mut self,
        keys: &[&str],
        mut entry: impl FnMut(&mut Self, &[u8]) -> Parse,
    ) -> Parse {
        self.parse_part(SyntaxKind::Header, |parser| parser.parse_keys(keys, &mut entry))
    }

    /// Parses a list of `key: value` in `<>`.
    fn parse_keys(
        &mut self,
        keys: &[&str],
        entry: &mut dyn FnMut(&mut Self, &[u8]) -> Parse,
    ) -> Parse {
        self.parse_key_list(b'<', b'>', keys, entry)
    }

    /// Parses a list of `key: value` between two signs.
    pub(super) fn parse_key_list(
        &mut self,
        open: u8,
        close: u8,
        keys: &[&str],
        entry: &mut dyn FnMut(&mut Self, &[u8]) -> Parse,
    ) -> Parse {
        let mut seen: Vec<&[u8]> = Vec::new();
        let start = self.cursor.pos;
        self.cursor.next();
        let empty_is_wrong = open == b'<' && self.cursor.byte() == b'<';
        let what = format!("`{}`", open as char);
        self.parse_list_of(open, close, &what, Self::at_key, |parser| {
            let key = parser.parse_word("a key")?;
            let span = key.offset as usize..parser.cursor.pos;
            if !keys.iter().any(|known| known.as_bytes() == key.bytes) {
                let shown = sardonyx_proto::shown(key.bytes);
                let help = match crate::words::nearest(key.bytes, keys) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the keys here are {}", crate::words::join_words(keys)),
                };
                return parser.fail_with(span, format!("unexpected key `{shown}`"), help);
            }
            if seen.contains(&key.bytes) {
                let shown = sardonyx_proto::shown(key.bytes);
                parser.warn(
                    span,
                    format!("`{shown}` stands here twice"),
                    Some("of a number or text the last one counts; lists are joined"),
                );
            }
            seen.push(key.bytes);
            parser.expect(b':', "`:` after the key")?;
            entry(parser, key.bytes)
        })?;
        if empty_is_wrong && seen.is_empty() {
            let end = self.cursor.token_end();
            return self.fail_with(start..end, "a list of keys is never empty", "remove the `<>`");
        }
        Ok(())
    }

    /// Whether annotations come next.
    #[inline]
    pub(super) fn at_notes(&mut self) -> bool {
        self.cursor.next() == b'@' && self.cursor.byte_at(1) == b'<'
    }

    /// Parses `@<key: value, …>`. An empty list stands for an inner part without annotations, so
    /// that the next list belongs to the enclosing part.
    pub(super) fn parse_notes(
        &mut self,
        keys: &[&str],
        mut entry: impl FnMut(&mut Self, &[u8]) -> Parse,
    ) -> Parse {
        let part = self.open(SyntaxKind::Notes);
        self.cursor.next();
        self.cursor.pos += 1;
        let result = if self.cursor.byte() == b'<' && self.eat_empty_brackets() {
            Ok(())
        } else {
            self.parse_keys(keys, &mut entry)
        };
        self.close(part);
        result
    }

    /// Skips `<>`.
    fn eat_empty_brackets(&mut self) -> bool {
        let mut probe = self.cursor.clone();
        let found = probe.eat(b'<') && probe.eat(b'>');
        if found {
            self.cursor = probe;
        }
        found
    }

    fn parse_model_entry(&mut self, key: &[u8]) -> Parse {
        match key {
            b"notation" => {
                let at = self.next_offset() as usize;
                let form = self.parse_string("\"full\"")?;
                match form.bytes() {
                    b"full" => self.full = true,
                    b"portable" => self.full = false,
                    _ => {
                        let end = self.cursor.token_end();
                        return self.fail_with(
                            at..end,
                            "there is no such form of ONNX text",
                            "the forms are \"full\" and \"portable\"",
                        );
                    }
                }
            }
            b"ir_version" => {
                self.build.model.header.ir_version = Some(self.parse_integer("a number")?)
            }
            b"model_version" => {
                self.build.model.header.model_version = Some(self.parse_integer("a number")?)
            }
            b"opset_import" => {
                let imports = self.parse_imports()?;
                self.build.model.header.opset_import.extend(imports);
            }
            b"metadata_props" => {
                let pairs = self.parse_pairs()?;
                self.build.model.header.metadata_props.extend(pairs);
            }
            b"files" => {
                let pairs = self.parse_pairs()?;
                let model = &self.build.model;
                let text = |symbol| model.display(symbol).into_owned();
                let files = pairs.iter().map(|pair| (text(pair.key), text(pair.value)));
                self.files.extend(files);
            }
            _ => {
                let text = self.parse_string("a text in quotes")?;
                let symbol = Some(self.intern_name(&text)?);
                let header = &mut self.build.model.header;
                match key {
                    b"producer_name" => header.producer_name = symbol,
                    b"producer_version" => header.producer_version = symbol,
                    b"domain" => header.domain = symbol,
                    _ => header.doc_string = symbol,
                }
            }
        }
        Ok(())
    }

    fn parse_model_note(&mut self, key: &[u8]) -> Parse {
        match key {
            b"training_info" => self.parse_list(b'[', b']', "`[`", |parser| {
                let info = parser.parse_training_info()?;
                parser.build.model.training_info.push(info);
                Ok(())
            }),
            b"configuration" => {
                let spans = self.parse_messages(DeviceConfigurationProto::DEF)?;
                self.build.model.header.configuration.extend(spans);
                Ok(())
            }
            _ => {
                let unknown = self.parse_unknown()?;
                self.build.model.header.unknown = unknown;
                Ok(())
            }
        }
    }

    fn parse_training_info(&mut self) -> Parse<TrainingInfo> {
        let at = self.next_offset();
        let counted = self.build.count::<(TrainingInfo, Graph)>(at);
        self.check_built(counted)?;
        let mut info = TrainingInfo::default();
        let part = self.open(SyntaxKind::Message);
        let main = self.build.model.main;
        let result = self.parse_key_list(b'{', b'}', TRAINING_KEYS, &mut |parser, key| {
            match key {
                b"initialization" => info.initialization = Some(parser.parse_graph(None, None)?),
                b"algorithm" => info.algorithm = Some(parser.parse_graph(None, main)?),
                b"initialization_binding" => {
                    info.initialization_binding.extend(parser.parse_pairs()?)
                }
                b"update_binding" => info.update_binding.extend(parser.parse_pairs()?),
                _ => info.unknown = parser.parse_unknown()?,
            }
            Ok(())
        });
        self.close(part);
        result.map(|()| info)
    }

    /// Parses a function and adds it to the model.
    pub(super) fn parse_function(&mut self) -> Parse {
        self.parse_part(SyntaxKind::Function, Self::parse_function_content)
    }

    fn parse_function_content(&mut self) -> Parse {
        let at = self.next_offset();
        let counted = self.build.count::<Function>(at);
        self.check_built(counted)?;
        let body = self.build.add_graph(None, None, at);
        let body = self.check_built(body)?;
        let mut function = Function {
            name: None,
            domain: None,
            overload: None,
            doc_string: None,
            attributes: Vec::new(),
            attribute_protos: Vec::new(),
            opset_import: Vec::new(),
            body,
            metadata_props: Vec::new(),
            unknown: Unknowns::default(),
        };
        let mut failed = false;
        if self.is_not_function() {
            // The error before may have ended a part too early.
            if self.has_errors() {
                return Err(Failed);
            }
            return self.fail_expected("a function or the end of the text");
        }
        if self.cursor.next() == b'<' {
            let entry =
                |parser: &mut Self, key: &[u8]| parser.parse_function_entry(&mut function, key);
            failed |= self.parse_header(FUNCTION_KEYS, entry).is_err();
        }
        let name = self.parse_part(SyntaxKind::Definition, |parser| {
            parser.parse_maybe_name("the name of a function")
        })?;
        function.name = self.intern_maybe(name)?;
        if self.cursor.next() == b'<' {
            failed |= self.parse_parameters(&mut function).is_err();
        }
        let inputs = self.parse_function_values(body, Which::Inputs).is_err();
        failed |= self.parse_arrow("the inputs of a function", inputs)?;
        failed |= self.parse_function_values(body, Which::Outputs).is_err();
        if self.cursor.next() == b'<' {
            failed |= self
                .parse_list_of(b'<', b'>', "`<`", Self::at_value_start, |parser| {
                    let info = parser.parse_value_info()?;
                    parser.reject_value("functions have no constants", "use a Constant node")?;
                    parser.build.model.graph_mut(body).value_info.push(info);
                    Ok(())
                })
                .is_err();
        }
        failed |= self.parse_nodes(body, failed).is_err();
        self.build.model.functions.push(function);
        if failed { Err(Failed) } else { Ok(()) }
    }

    /// Whether the text at this position is not a function: neither a header, nor a name with a
    /// list after it.
    fn is_not_function(&self) -> bool {
        let mut probe = self.cursor.clone();
        let named = match probe.next() {
            b'<' | b'?' | b'(' => return false,
            b'"' => probe.eat_quoted().is_some(),
            b'x' if probe.byte_at(1) == b'"' => return false,
            _ => probe.eat_word().is_some(),
        };
        !named || !matches!(probe.next(), b'(' | b'<' | b'=')
    }

    fn parse_function_entry(&mut self, function: &mut Function, key: &[u8]) -> Parse {
        match key {
            b"opset_import" => {
                let imports = self.parse_imports()?;
                function.opset_import.extend(imports);
            }
            b"metadata_props" => {
                let pairs = self.parse_pairs()?;
                function.metadata_props.extend(pairs);
            }
            b"unknown" => function.unknown = self.parse_unknown()?,
            _ => {
                let text = self.parse_string("a text in quotes")?;
                let symbol = Some(self.intern_name(&text)?);
                match key {
                    b"domain" => function.domain = symbol,
                    b"overload" => function.overload = symbol,
                    _ => function.doc_string = symbol,
                }
            }
        }
        Ok(())
    }

    /// Parses the parameters of a function, with or without defaults.
    fn parse_parameters(&mut self, function: &mut Function) -> Parse {
        let start = self.cursor.pos;
        let mut count = 0;
        self.parse_list(b'<', b'>', "`<`", |parser| {
            count += 1;
            parser.parse_part(SyntaxKind::Parameter, |parser| parser.parse_parameter(function))
        })?;
        if count == 0 {
            let end = self.cursor.token_end();
            return self.fail_with(
                start..end,
                "a list of parameters is never empty",
                "remove the `<>`",
            );
        }
        Ok(())
    }

    fn parse_parameter(&mut self, function: &mut Function) -> Parse {
        let mut probe = self.cursor.clone();
        let quoted =
            matches!(probe.next(), b'"') || (probe.byte() == b'x' && probe.byte_at(1) == b'"');
        if quoted {
            if probe.byte() == b'x' {
                probe.pos += 1;
            }
            let _ = probe.eat_quoted();
        } else {
            probe.eat_word();
        }
        let alone = matches!(probe.next(), b',' | b'>') && probe.byte() != b'?';
        if alone && self.cursor.next() != b'?' {
            let name = self.parse_name("the name of a parameter")?;
            let symbol = self.intern_name(&name)?;
            function.attributes.push(symbol);
        } else {
            let mut attribute = Attribute::default();
            self.parse_attribute(&mut attribute, None)?;
            function.attribute_protos.push(attribute);
        }
        Ok(())
    }

    /// Parses the inputs or outputs of a function: names, optionally with types, which become value
    /// infos.
    fn parse_function_values(&mut self, body: GraphId, which: Which) -> Parse {
        let what = match which {
            Which::Inputs => "`(` and the inputs of the function",
            Which::Outputs => "`(` and the outputs of the function",
        };
        self.parse_list_of(b'(', b')', what, Self::at_value_start, |parser| {
            let at = parser.next_offset();
            let mut info = parser.parse_value_info()?;
            if !parser.at_arrow() {
                parser.reject_value(
                    "inputs and outputs of functions have no values",
                    "parameters have defaults: f <alpha: float = 1.0> (x) => (y)",
                )?;
            }
            let Some(name) = info.name else {
                return parser.fail(
                    at as usize..at as usize + 1,
                    "an input or output of a function has a name",
                );
            };
            let counted = parser.build.count::<ValueInfo>(at);
            parser.check_built(counted)?;
            let plain = ValueInfo { name: Some(name), ..ValueInfo::default() };
            match which {
                Which::Inputs => {
                    let built = parser.build.add_graph_input(body, plain, at);
                    parser.check_built(built)?;
                }
                Which::Outputs => parser.build.model.graph_mut(body).outputs.push(plain),
            }
            let said = info.ty.is_some()
                || info.doc_string.is_some()
                || !info.metadata_props.is_empty()
                || !info.unknown.is_empty();
            if said {
                info.value = None;
                parser.build.model.graph_mut(body).value_info.push(info);
            }
            Ok(())
        })
    }

    /// Reports a value where none is allowed.
    fn reject_value(&mut self, message: &str, help: &str) -> Parse {
        if self.cursor.next() != b'=' {
            return Ok(());
        }
        let at = self.cursor.pos;
        self.fail_with(at..at + 1, message, help)
    }

    /// Parses `=>`. Returns whether there was an error, in the part before (`failed`) or here,
    /// after which parsing can continue.
    pub(super) fn parse_arrow(&mut self, after: &str, failed: bool) -> Parse<bool> {
        self.cursor.next();
        if self.at_arrow() {
            self.cursor.pos += 2;
            return Ok(failed);
        }
        // A failed part before may have consumed the arrow.
        if !failed {
            let what = format!("`=>` after {after}");
            let start = self.cursor.pos;
            let mut probe = self.cursor.clone();
            if (probe.eat(b'=') || probe.eat(b'-')) && probe.eat(b'>') {
                self.cursor = probe;
                let found = &self.cursor.text[start..self.cursor.pos];
                let message = format!("expected {what}, found `{}`", sardonyx_proto::shown(found));
                let help = "the arrow is `=>`, without a blank in it".to_string();
                self.report(start..self.cursor.pos, message, Some(help));
            } else {
                let _ = self.fail_expected::<()>(&what);
            }
        }
        if self.cursor.next() == b'(' { Ok(true) } else { Err(Failed) }
    }

    /// Parses `["domain": version, …]`.
    fn parse_imports(&mut self) -> Parse<Vec<OperatorSetId>> {
        let mut imports = Vec::new();
        let what = "operator sets, as [\"\": 21]";
        self.parse_list(b'[', b']', what, |parser| {
            parser.parse_part(SyntaxKind::OperatorSet, |parser| {
                let at = parser.next_offset();
                let counted = parser.build.count::<OperatorSetId>(at);
                parser.check_built(counted)?;
                if parser.cursor.next().is_ascii_digit() {
                    return parser.fail_expected_with(
                        "the domain of an operator set",
                        "write `\"\": 21` for version 21 of the standard's operators",
                    );
                }
                let domain =
                    parser.parse_maybe_string("the domain of an operator set, in quotes")?;
                let domain = parser.intern_maybe(domain)?;
                parser.expect(b':', "`:` and a version")?;
                let version = if parser.eat_absent() {
                    None
                } else {
                    Some(parser.parse_integer("a version")?)
                };
                let mut unknown = Unknowns::default();
                parser.parse_unknown_notes(&mut unknown)?;
                imports.push(OperatorSetId { domain, version, unknown });
                Ok(())
            })
        })?;
        Ok(imports)
    }

    /// Parses `["key": "value", …]`.
    pub(super) fn parse_pairs(&mut self) -> Parse<Vec<Entry>> {
        let mut pairs = Vec::new();
        self.parse_list(b'[', b']', "pairs, as [\"key\": \"value\"]", |parser| {
            let pair = parser.parse_part(SyntaxKind::Pair, Self::parse_pair)?;
            pairs.push(pair);
            Ok(())
        })?;
        Ok(pairs)
    }

    fn parse_pair(&mut self) -> Parse<Entry> {
        let at = self.next_offset();
        let counted = self.build.count::<Entry>(at);
        self.check_built(counted)?;
        let key = self.parse_maybe_string("a key in quotes")?;
        self.expect(b':', "`:` and a value in quotes")?;
        let value = self.parse_maybe_string("a value in quotes")?;
        let mut unknown = Unknowns::default();
        self.parse_unknown_notes(&mut unknown)?;
        Ok(Entry { key: self.intern_maybe(key)?, value: self.intern_maybe(value)?, unknown })
    }

    /// Parses the annotations of a part that has only unknown fields.
    pub(super) fn parse_unknown_notes(&mut self, unknown: &mut Unknowns) -> Parse {
        if self.at_notes() {
            self.parse_notes(&["unknown"], |parser, _| {
                *unknown = parser.parse_unknown()?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Parses `[number: x"record", …]`: fields that this release does not know, each after the
    /// known field with this number.
    pub(super) fn parse_unknown(&mut self) -> Parse<Unknowns> {
        let mut unknown = Unknowns::default();
        self.parse_list(b'[', b']', "records, as [6: x\"...\"]", |parser| {
            let at = parser.next_offset();
            let after = parser.parse_integer("the number of the field before")?;
            let counted = parser.build.count::<(u32, Span)>(at);
            parser.check_built(counted)?;
            let Ok(after) = u32::try_from(after) else {
                let end = parser.cursor.token_end();
                return parser.fail(at as usize..end, "there is no field of that number");
            };
            parser.expect(b':', "`:` and a record")?;
            let start = parser.next_offset() as usize;
            let record = parser.parse_string("a record, as x\"...\"")?;
            if !super::message::are_records(record.bytes()) {
                let end = parser.cursor.token_end();
                return parser.fail(start..end, "these bytes are no field of a message");
            }
            let record = parser.keep_name(record);
            unknown.add(after, record);
            Ok(())
        })?;
        Ok(unknown)
    }

    /// Parses the annotations of a graph.
    pub(super) fn parse_graph_notes(&mut self, graph: GraphId) -> Parse {
        self.parse_notes(GRAPH_NOTES, |parser, key| {
            match key {
                b"doc_string" => {
                    let symbol = parser.parse_text_symbol()?;
                    parser.build.model.graph_mut(graph).doc_string = Some(symbol);
                }
                b"metadata_props" => {
                    let pairs = parser.parse_pairs()?;
                    let graph = parser.build.model.graph_mut(graph);
                    graph.metadata_props.extend(pairs);
                }
                b"quantization_annotation" => parser.parse_annotations(graph)?,
                _ => {
                    let unknown = parser.parse_unknown()?;
                    parser.build.model.graph_mut(graph).unknown = unknown;
                }
            }
            Ok(())
        })
    }

    /// Parses `["tensor": ["SCALE_TENSOR": "s", …], …]`.
    fn parse_annotations(&mut self, graph: GraphId) -> Parse {
        let what = "annotations, as [\"w\": [\"SCALE_TENSOR\": \"s\"]]";
        self.parse_list(b'[', b']', what, |parser| {
            let part = parser.open(SyntaxKind::Pair);
            let at = parser.next_offset();
            let counted = parser.build.count::<TensorAnnotation>(at);
            parser.check_built(counted)?;
            let name: Option<Name<'a>> =
                parser.parse_maybe_string("the name of a tensor, in quotes")?;
            let tensor_name = parser.intern_maybe(name)?;
            parser.expect(b':', "`:` and a list of pairs")?;
            let quant_parameter_tensor_names = parser.parse_pairs()?;
            let mut unknown = Unknowns::default();
            parser.parse_unknown_notes(&mut unknown)?;
            parser.close(part);
            let graph = parser.build.model.graph_mut(graph);
            graph.quantization_annotation.push(TensorAnnotation {
                tensor_name,
                quant_parameter_tensor_names,
                unknown,
            });
            Ok(())
        })
    }

    /// Parses and interns a quoted text.
    pub(super) fn parse_text_symbol(&mut self) -> Parse<sardonyx_model::Symbol> {
        let text = self.parse_string("a text in quotes")?;
        self.intern_name(&text)
    }
}

#[derive(Clone, Copy)]
enum Which {
    Inputs,
    Outputs,
}
