//! Parses graphs, values and nodes.

use sardonyx_model::{GraphId, NodeExtras, NodeId, Text, TypeProto, Unknowns, ValueInfo};
use sardonyx_proto::{MessageType, NodeDeviceConfigurationProto};

use super::{Failed, Name, Parse, Parser};
use crate::cursor::{continues_word, starts_word};
use crate::tree::SyntaxKind;
use crate::words::{NODE_NOTES, VALUE_NOTES, is_type_word};

impl<'a> Parser<'_, 'a> {
    /// Parses a graph: that of an attribute of `owner`, or a graph without owner.
    pub(super) fn parse_graph(
        &mut self,
        owner: Option<NodeId>,
        parent: Option<GraphId>,
    ) -> Parse<GraphId> {
        let at = self.next_offset();
        let Some(levels) = self.graph_levels.checked_sub(1) else {
            let at = at as usize;
            // Skips the rest, as all enclosing parts would report the same error.
            self.cursor.pos = self.cursor.text.len();
            return self.fail(at..at + 1, "graphs are nested more deeply than the limit");
        };
        let part = self.open(SyntaxKind::Graph);
        let graph = self.build.add_graph(owner, parent, at);
        let graph = self.check_built(graph)?;
        self.graph_levels = levels;
        let around = self.in_main_graph;
        self.in_main_graph &= owner.is_none();
        let result = self.parse_graph_content(graph);
        self.in_main_graph = around;
        self.graph_levels += 1;
        self.close(part);
        result.map(|()| graph)
    }

    fn parse_graph_content(&mut self, graph: GraphId) -> Parse {
        let failed = self.parse_graph_heading(graph)?;
        // Errors have been recorded. The enclosing parts must not search for the end of the graph
        // again, level by level.
        self.parse_nodes(graph, failed)
    }

    /// Parses the part before the nodes. Returns whether it has errors. Not inlined, as its
    /// variables would take stack space at each nesting level.
    #[inline(never)]
    fn parse_graph_heading(&mut self, graph: GraphId) -> Parse<bool> {
        let part = self.open(SyntaxKind::Definition);
        let name = self.parse_maybe_name("the name of a graph")?;
        self.close(part);
        self.build.model.graph_mut(graph).name = self.intern_maybe(name)?;
        let mut failed = false;
        self.cursor.next();
        if self.at_arrow() {
            let at = self.cursor.pos;
            self.warn(
                at..at + 2,
                "the graph has no list of inputs",
                Some("write `()` for a graph without inputs"),
            );
        } else if self.cursor.byte() != b'(' {
            return self.fail_expected_graph();
        } else {
            failed |= self.parse_graph_inputs(graph).is_err();
        }
        failed = self.parse_arrow("the inputs of a graph", failed)?;
        failed |= self.parse_graph_outputs(graph).is_err();
        if self.cursor.next() == b'<' {
            failed |= self
                .parse_list_of(b'<', b'>', "`<`", Self::at_value_start, |parser| {
                    parser.parse_graph_info(graph)
                })
                .is_err();
        }
        if self.at_notes() {
            failed |= self.parse_graph_notes(graph).is_err();
        }
        Ok(failed)
    }

    /// Reports text that is not a graph.
    #[cold]
    fn fail_expected_graph<T>(&mut self) -> Parse<T> {
        let what = "`(` and the inputs of the graph";
        if self.cursor.next() == b'=' {
            let help = "nodes stand in a graph: g (float[N] x) => (float[N] y) { y = Relu(x) }";
            return self.fail_expected_with(what, help);
        }
        self.fail_expected(what)
    }

    fn parse_graph_inputs(&mut self, graph: GraphId) -> Parse {
        let begins = Self::at_value_start;
        self.parse_list_of(b'(', b')', "`(` and the inputs of the graph", begins, |parser| {
            let part = parser.open(SyntaxKind::ValueInfo);
            let at = parser.next_offset();
            let mut info = ValueInfo::default();
            parser.parse_value_info_content(&mut info)?;
            if parser.cursor.next() == b'=' && parser.cursor.byte_at(1) != b'>' {
                let tensor = parser.parse_initializer(&info, at)?;
                let built = parser.build.add_initializer(graph, tensor, at);
                parser.check_built(built)?;
            }
            parser.close(part);
            let built = parser.build.add_graph_input(graph, info, at);
            parser.check_built(built)
        })
    }

    fn parse_graph_outputs(&mut self, graph: GraphId) -> Parse {
        let begins = Self::at_value_start;
        self.parse_list_of(b'(', b')', "`(` and the outputs of the graph", begins, |parser| {
            let info = parser.parse_value_info()?;
            if parser.cursor.next() == b'=' {
                let at = parser.cursor.pos;
                return parser.fail_with(
                    at..at + 1,
                    "an output cannot have a value",
                    "write initializers in `<>` after the outputs",
                );
            }
            parser.build.model.graph_mut(graph).outputs.push(info);
            Ok(())
        })
    }

    /// Parses an entry in `<>` after the outputs of a graph: the type of a value, or a constant.
    fn parse_graph_info(&mut self, graph: GraphId) -> Parse {
        let at = self.next_offset();
        if self.at_sparse() {
            let tensor = self.parse_sparse_tensor()?;
            let built = self.build.add_sparse_initializer(graph, tensor, at);
            return self.check_built(built);
        }
        let part = self.open(SyntaxKind::ValueInfo);
        let mut info = ValueInfo::default();
        self.parse_value_info_content(&mut info)?;
        if self.cursor.next() == b'{' && !self.at_block() {
            let what = "`,` or `>`, or `=` before values";
            return self.fail_expected(what);
        }
        if self.cursor.byte() == b'=' {
            let tensor = self.parse_initializer(&info, at)?;
            self.close(part);
            let built = self.build.add_initializer(graph, tensor, at);
            return self.check_built(built);
        }
        self.close(part);
        self.build.model.graph_mut(graph).value_info.push(info);
        Ok(())
    }

    /// Parses `[type] name [annotations]`.
    pub(super) fn parse_value_info(&mut self) -> Parse<ValueInfo> {
        let mut info = ValueInfo::default();
        self.parse_part(SyntaxKind::ValueInfo, |parser| {
            parser.parse_value_info_content(&mut info)
        })?;
        Ok(info)
    }

    fn parse_value_info_content(&mut self, info: &mut ValueInfo) -> Parse {
        let at = self.next_offset();
        let counted = self.build.count::<ValueInfo>(at);
        self.check_built(counted)?;
        if self.at_type() {
            self.parse_type_into(info.ty.insert(TypeProto::default()))?;
        }
        let part = self.open(SyntaxKind::Definition);
        let name =
            if self.at_quoted() || starts_word(self.cursor.byte()) || self.cursor.byte() == b'?' {
                let name = self.parse_maybe_name("a name")?;
                let byte = self.cursor.next();
                if info.ty.is_none() && (matches!(byte, b'[' | b'(') || starts_word(byte)) {
                    self.report_wrong_type(at as usize)?;
                }
                name
            } else if info.ty.is_some() {
                let start = at as usize;
                let end = self.cursor.token_end();
                let text = sardonyx_proto::shown(&self.cursor.text[start..end]);
                let (span, found) = self.describe_token();
                let message = format!("expected the name of a value after its type, found {found}");
                if self.cursor.next() == b'(' {
                    let help = format!("write dimensions in brackets: {text}[3, 4]");
                    return self.fail_with(span, message, help);
                }
                if is_type_word(text.as_bytes()) {
                    let help = format!(
                        "`{text}` is a type here; a value of that name stands in quotes: \"{text}\""
                    );
                    return self.fail_with(span, message, help);
                }
                let help = self.advice_on_name();
                self.report(span, message, help);
                return Err(Failed);
            } else {
                return self.fail_expected_name("the type or name of a value");
            };
        self.close(part);
        info.name = self.intern_maybe(name)?;
        if self.at_notes() {
            self.parse_notes(VALUE_NOTES, |parser, key| {
                match key {
                    b"doc_string" => info.doc_string = Some(parser.parse_text_symbol()?),
                    b"metadata_props" => info.metadata_props.extend(parser.parse_pairs()?),
                    _ => info.unknown = parser.parse_unknown()?,
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Reports the word at `start` if the following text shows that it is in the place of a type.
    #[cold]
    fn report_wrong_type(&mut self, start: usize) -> Parse {
        let end = self.cursor.token_end();
        let text = &self.cursor.text[start..end];
        let help = super::types::advice_on_type(text);
        let shape = matches!(self.cursor.byte(), b'[' | b'(');
        // Between two words, a comma may be missing as well.
        let blank = end < self.cursor.pos;
        if !crate::cursor::is_word(text) || !(shape || (help.is_some() && blank)) {
            return Ok(());
        }
        let message = format!("`{}` is not a type", sardonyx_proto::shown(text));
        let help = help.unwrap_or_else(super::types::advice_on_types);
        self.fail_with(start..end, message, help)
    }

    /// Parses `{ nodes }`. If the part before them `failed`, it may have consumed the brace.
    pub(super) fn parse_nodes(&mut self, graph: GraphId, failed: bool) -> Parse {
        let opened = self.next_offset() as usize;
        let mut failed = failed;
        if self.cursor.byte() == b'{' {
            self.cursor.pos += 1;
        } else {
            if !failed {
                let _ = self.fail_expected::<()>("`{` and the nodes");
            }
            failed = true;
            if !self.at_node_start() {
                return Err(Failed);
            }
        }
        loop {
            let byte = self.cursor.next();
            if byte == b'}' {
                self.cursor.pos += 1;
                return Ok(());
            }
            if self.cursor.at_end() {
                // A failed part before may have consumed the brace.
                if !failed {
                    let help = self.advice_on_opened(opened, b'}');
                    return self.fail_expected_with("a node or `}`", help);
                }
                return Err(Failed);
            }
            let begin = self.cursor.pos;
            if byte == b',' && self.at_attribute_after_comma() {
                let help = self.advice_on_opened(opened, b'}');
                return self.fail_expected_with("a node or `}`", help);
            }
            if self.parse_node(graph).is_err() {
                failed = true;
                if self.is_hopeless() {
                    return Err(Failed);
                }
                self.skip_to_next_node(begin);
            }
        }
    }

    /// Whether the text after the comma continues the attributes of the enclosing node, which means
    /// that the graph was not closed.
    #[cold]
    fn at_attribute_after_comma(&mut self) -> bool {
        let comma = self.cursor.pos;
        self.cursor.pos += 1;
        self.cursor.next();
        let found = self.at_attribute_start() && !self.at_node_start();
        self.cursor.pos = comma;
        found
    }

    /// Parses a node and adds it to its graph.
    pub(super) fn parse_node(&mut self, graph: GraphId) -> Parse<NodeId> {
        let part = self.open(SyntaxKind::Node);
        let result = self.parse_node_content(graph);
        self.close(part);
        result
    }

    fn parse_node_content(&mut self, graph: GraphId) -> Parse<NodeId> {
        let first = self.cursor.next();
        let at = self.cursor.pos;
        let node = self.build.add_node(graph, at as u64);
        let node = self.check_built(node)?;
        if first == b'[' {
            self.parse_label(node)?;
        } else if first == b',' {
            self.warn(
                at..at + 1,
                "this comma leaves out the first output of the next node",
                Some("nothing is allowed between nodes; write `\"\"` for a missing output"),
            );
        }
        self.parse_outputs(node)?;
        self.cursor.next();
        if self.cursor.byte() != b'=' {
            return self.fail_expected_equals(at);
        }
        self.cursor.pos += 1;
        self.parse_callee(node)?;
        let attributes_first = self.cursor.next() == b'<';
        if attributes_first {
            self.parse_attributes(graph, node)?;
        }
        self.parse_inputs(node)?;
        if self.cursor.next() == b'<' {
            if attributes_first {
                let at = self.cursor.pos;
                return self.fail_with(
                    at..at + 1,
                    "this node already has attributes before its inputs",
                    "put all attributes into one list",
                );
            }
            self.parse_attributes(graph, node)?;
        }
        if self.at_notes() {
            self.parse_node_notes(node)?;
        }
        Ok(node)
    }

    #[cold]
    fn fail_expected_equals<T>(&mut self, start: usize) -> Parse<T> {
        let end = self.cursor.token_end().max(start);
        let text = &self.cursor.text[start..end];
        let operator = sardonyx_proto::shown(text);
        let byte = self.cursor.next();
        let (span, found) = self.describe_token();
        if self.cursor.pos == start {
            let help = match byte {
                b';' => Some("nothing is allowed between nodes".to_string()),
                b'@' => Some("annotations begin with `@<`: @<doc_string: \"...\">".into()),
                _ => self.advice_on_name(),
            };
            return match help {
                Some(help) => self.fail_expected_with("a node or `}`", help),
                None => self.fail_expected("a node or `}`"),
            };
        }
        let message = format!("expected `=` after the outputs of a node, found {found}");
        let first = |operator: &str| {
            format!("a node begins with its outputs, if only with `=`: y = {operator}(...)")
        };
        let help = match byte {
            b'(' | b'<' => Some(first(&operator)),
            b'[' if is_type_word(text) => {
                Some("types of values stand in `<>` after the outputs of the graph".into())
            }
            b']' => Some(format!("write the name of a node in brackets: [{operator}]")),
            // The text in the way may end with the parenthesis of an operator.
            _ if end == span.start => match self.find_odd_name() {
                Some(name) => {
                    let rest =
                        &self.cursor.text[(start + name.len()).min(self.cursor.text.len())..];
                    match rest.first() {
                        Some(b'(' | b'<') => Some(first(&name)),
                        _ => self.advice_on_name(),
                    }
                }
                None => None,
            },
            _ => None,
        };
        let help = match self.advice_on_character() {
            Some(advice) => Some(advice.to_string()),
            None => help,
        };
        self.report(span, message, help);
        Err(Failed)
    }

    /// Parses `[name]`.
    fn parse_label(&mut self, node: NodeId) -> Parse {
        self.cursor.pos += 1;
        let name = match self.parse_operand(SyntaxKind::Definition)? {
            Some(name) => name,
            None if self.cursor.byte() == b']' => Text::Here(self.slice(0..0)),
            None => return self.fail_expected_name("the name of a node"),
        };
        if !self.cursor.eat(b']') {
            let what = "`]` after the name of a node";
            return match self.find_odd_name() {
                Some(_) => self.fail_expected_name(what),
                None => self.fail_expected(what),
            };
        }
        if matches!(name, Text::Here(name) if name.bytes.is_empty()) {
            self.build.model.node_mut(node).name = Some(self.intern_empty());
            return Ok(());
        }
        let named = self.build.name_node(node, name);
        self.check_built(named)
    }

    /// Parses the outputs of a node, up to the `=`.
    fn parse_outputs(&mut self, node: NodeId) -> Parse {
        loop {
            let Some(name) = self.parse_operand(SyntaxKind::Definition)? else {
                return Ok(());
            };
            let added = self.build.add_output(node, name);
            self.check_built(added)?;
            if self.cursor.next() != b',' {
                return Ok(());
            }
            self.cursor.pos += 1;
        }
    }

    /// Parses the inputs of a node, in parentheses.
    fn parse_inputs(&mut self, node: NodeId) -> Parse {
        if self.cursor.next() != b'(' {
            return self.fail_expected_inputs();
        }
        self.cursor.pos += 1;
        while let Some(name) = self.parse_operand(SyntaxKind::Reference)? {
            let added = self.build.add_input(node, name);
            self.check_built(added)?;
            if self.cursor.next() != b',' {
                break;
            }
            self.cursor.pos += 1;
        }
        if self.cursor.next() == b')' {
            self.cursor.pos += 1;
            return Ok(());
        }
        self.fail_expected_input()
    }

    /// Reports text after an operator that is not a parenthesis.
    #[cold]
    fn fail_expected_inputs<T>(&mut self) -> Parse<T> {
        let what = "`(` and the inputs of the node";
        let end = self.cursor.token_end();
        let text = &self.cursor.text[..end];
        let length = text.iter().rev().take_while(|byte| continues_word(**byte)).count();
        let operator = sardonyx_proto::shown(&text[end - length..]);
        let help = match self.cursor.next() {
            b'[' => format!("write attributes in `<>`: {operator}<axis = 0>(...)"),
            b'+' | b'-' | b'*' | b'/' if end < self.cursor.pos => {
                "what a node does has a name: z = Add(x, y)".to_string()
            }
            byte if starts_word(byte) || matches!(byte, b'"' | b'}' | b',' | b'@') => {
                format!(
                    "`{operator}` is an operator here; write its inputs in parentheses: {operator}(x)"
                )
            }
            _ => return self.fail_expected_name(what),
        };
        self.fail_expected_with(what, help)
    }

    /// Reports text among the inputs of a node that is not an input.
    #[cold]
    fn fail_expected_input<T>(&mut self) -> Parse<T> {
        let what = "`,` or `)` after an input";
        let end = self.cursor.token_end();
        let byte = self.cursor.next();
        let new_line = self.cursor.text[end..self.cursor.pos].contains(&b'\n');
        let closing = matches!(byte, b'}' | b']' | b'>') || self.cursor.at_end();
        if closing || (new_line && (self.at_attribute_start() || self.at_node_start())) {
            // A parenthesis within a name is rare, so this nearly always finds the right line.
            let opened = self.cursor.text[..end].iter().rposition(|byte| *byte == b'(');
            let help = self.advice_on_opened(opened.unwrap_or(end), b')');
            return self.fail_expected_with(what, help);
        }
        let help = match (byte, self.advice_on_name()) {
            (b'=', _) => {
                "write attributes in `<>` before the inputs: Concat<axis = 0>(x, y)".into()
            }
            (b'(', _) => "inputs are names; name the output of a node first".into(),
            (b'.' | b'/' | b'-' | b'0'..=b'9', Some(help)) => help,
            (byte, _) if byte.is_ascii_digit() || byte == b'-' => {
                "inputs are names; numbers are attributes or constants".into()
            }
            (byte, _) if starts_word(byte) || byte == b'"' => {
                "inputs are separated by commas".into()
            }
            (_, Some(help)) => help,
            _ => return self.fail_expected(what),
        };
        self.fail_expected_with(what, help)
    }

    /// Parses an input or output: a name, or an omitted one, which is an empty quote or nothing
    /// before a comma. Returns `None` at the end of the list.
    #[inline(always)]
    fn parse_operand(&mut self, kind: SyntaxKind) -> Parse<Option<Text<'a>>> {
        let byte = self.cursor.next();
        if starts_word(byte) && !(byte == b'x' && self.cursor.byte_at(1) == b'"') {
            let part = self.open(kind);
            let start = self.cursor.pos;
            self.cursor.eat_word();
            self.close(part);
            return Ok(Some(Text::Here(self.slice(start..self.cursor.pos))));
        }
        match byte {
            b'"' | b'x' => {
                let part = self.open(kind);
                let plain = if byte == b'"' { self.cursor.eat_plain_quoted() } else { None };
                let text = match plain {
                    Some(range) => Text::Here(self.slice(range)),
                    None => {
                        let name = self.parse_quoted()?;
                        self.convert_name(name)
                    }
                };
                self.close(part);
                Ok(Some(text))
            }
            b',' => Ok(Some(Text::Here(self.slice(0..0)))),
            _ => Ok(None),
        }
    }

    /// Parses `domain.op_type:overload`.
    fn parse_callee(&mut self, node: NodeId) -> Parse {
        self.cursor.next();
        let part = self.open(SyntaxKind::Callee);
        let start = self.cursor.pos;
        // Fast path: nearly always a word in the standard's domain.
        if let Some(word) = self.cursor.eat_word()
            && self.cursor.byte() != b'"'
        {
            let next = self.cursor.next();
            if next != b'.' && next != b':' {
                let op_type = Name::Here(self.slice(start..start + word.len()));
                let op_type = self.intern_frequent(&op_type)?;
                let domain = (!self.full).then(|| self.intern_empty());
                let node = self.build.model.node_mut(node);
                node.op_type = Some(op_type);
                node.domain = domain;
                self.close(part);
                return Ok(());
            }
        }
        self.cursor.pos = start;
        let result = self.parse_long_callee(node);
        self.close(part);
        result
    }

    #[cold]
    fn parse_long_callee(&mut self, node: NodeId) -> Parse {
        let mut domain: Option<Vec<u8>> = None;
        // A leading dot has no effect, like in the parser of the `onnx` package: without a domain
        // after it, the domain is empty.
        let leading_dot = self.cursor.eat(b'.');
        let mut op_type = self.parse_callee_part("an operator")?;
        while self.cursor.next() == b'.' {
            self.cursor.pos += 1;
            let part = op_type.as_ref().map_or(&b""[..], Name::bytes);
            match &mut domain {
                None => domain = Some(part.to_vec()),
                Some(domain) => {
                    domain.push(b'.');
                    domain.extend_from_slice(part);
                }
            }
            op_type = self.parse_callee_part("an operator after its domain")?;
        }
        if leading_dot {
            domain.get_or_insert_default();
        }
        let overload = if self.cursor.next() == b':' {
            self.cursor.pos += 1;
            let name = self.parse_name("an overload")?;
            Some(self.intern_name(&name)?)
        } else {
            None
        };
        let op_type = match op_type {
            Some(name) => Some(self.intern_frequent(&name)?),
            None => None,
        };
        let domain = match domain {
            Some(domain) => Some(self.build.own_name(&domain)),
            None if self.full => None,
            None => Some(self.intern_empty()),
        };
        let node = self.build.model.node_mut(node);
        node.op_type = op_type;
        node.domain = domain;
        node.overload = overload;
        Ok(())
    }

    /// Parses a part of a callee, or `?` for none. A type cannot occur here, so the text after `?`
    /// does not matter.
    fn parse_callee_part(&mut self, what: &str) -> Parse<Option<Name<'a>>> {
        if self.cursor.eat(b'?') {
            return Ok(None);
        }
        self.parse_name(what).map(Some)
    }

    fn parse_node_notes(&mut self, node: NodeId) -> Parse {
        let mut extras = NodeExtras::default();
        let at = self.next_offset();
        let counted = self.build.count::<NodeExtras>(at);
        self.check_built(counted)?;
        self.parse_notes(NODE_NOTES, |parser, key| {
            match key {
                b"doc_string" => extras.doc_string = Some(parser.parse_text_symbol()?),
                b"metadata_props" => extras.metadata_props.extend(parser.parse_pairs()?),
                b"device_configurations" => {
                    let spans = parser.parse_messages(NodeDeviceConfigurationProto::DEF)?;
                    extras.device_configurations.extend(spans);
                }
                _ => extras.unknown = parser.parse_unknown()?,
            }
            Ok(())
        })?;
        if extras != NodeExtras::default() || !Unknowns::is_empty(&extras.unknown) {
            self.build.model.set_extras(node, extras);
        }
        Ok(())
    }
}
