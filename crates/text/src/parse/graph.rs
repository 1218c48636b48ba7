//! Graphs, values and nodes.

use sardonyx_model::{GraphId, NodeExtras, NodeId, Text, TypeProto, Unknowns, ValueInfo};
use sardonyx_proto::{MessageType, NodeDeviceConfigurationProto};

use super::{Failed, Name, Parse, Parser};
use crate::cursor::{continues_word, starts_word};
use crate::tree::SyntaxKind;
use crate::words::{NODE_NOTES, VALUE_NOTES, is_type_word};

impl<'a> Parser<'_, 'a> {
    /// A graph: that of an attribute of `owner`, or one that stands alone.
    pub(super) fn graph(
        &mut self,
        owner: Option<NodeId>,
        parent: Option<GraphId>,
    ) -> Parse<GraphId> {
        let at = self.offset();
        let Some(levels) = self.graph_levels.checked_sub(1) else {
            let at = at as usize;
            // Everything that is open around it would report the same.
            self.cursor.pos = self.cursor.text.len();
            return self.fail(at..at + 1, "graphs are nested more deeply than the limit");
        };
        let part = self.open(SyntaxKind::Graph);
        let graph = self.build.add_graph(owner, parent, at);
        let graph = self.built(graph)?;
        self.graph_levels = levels;
        let around = self.in_main_graph;
        self.in_main_graph &= owner.is_none();
        let result = self.graph_content(graph);
        self.in_main_graph = around;
        self.graph_levels += 1;
        self.close(part);
        result.map(|()| graph)
    }

    fn graph_content(&mut self, graph: GraphId) -> Parse {
        let failed = self.graph_heading(graph)?;
        // What went wrong is written down. Whoever reads on after the graph must not look for it
        // again, level by level.
        self.nodes(graph, failed)
    }

    /// What stands before the nodes. Gives whether something in it is wrong. Inlined, its variables
    /// would take stack for each level of nesting.
    #[inline(never)]
    fn graph_heading(&mut self, graph: GraphId) -> Parse<bool> {
        let part = self.open(SyntaxKind::Definition);
        let name = self.maybe_name("the name of a graph")?;
        self.close(part);
        self.build.model.graph_mut(graph).name = self.maybe_symbol(name)?;
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
            return self.expected_graph();
        } else {
            failed |= self.graph_inputs(graph).is_err();
        }
        failed = self.arrow("the inputs of a graph", failed)?;
        failed |= self.graph_outputs(graph).is_err();
        if self.cursor.next() == b'<' {
            failed |= self
                .list_of(b'<', b'>', "`<`", Self::at_value_start, |parser| parser.graph_info(graph))
                .is_err();
        }
        if self.at_notes() {
            failed |= self.graph_notes(graph).is_err();
        }
        Ok(failed)
    }

    /// An error about something that is no graph.
    #[cold]
    fn expected_graph<T>(&mut self) -> Parse<T> {
        let what = "`(` and the inputs of the graph";
        if self.cursor.next() == b'=' {
            let help = "nodes stand in a graph: g (float[N] x) => (float[N] y) { y = Relu(x) }";
            return self.expected_with(what, help);
        }
        self.expected(what)
    }

    fn graph_inputs(&mut self, graph: GraphId) -> Parse {
        let begins = Self::at_value_start;
        self.list_of(b'(', b')', "`(` and the inputs of the graph", begins, |parser| {
            let part = parser.open(SyntaxKind::ValueInfo);
            let at = parser.offset();
            let mut info = ValueInfo::default();
            parser.value_info_content(&mut info)?;
            if parser.cursor.next() == b'=' && parser.cursor.byte_at(1) != b'>' {
                let tensor = parser.initializer(&info, at)?;
                let built = parser.build.add_initializer(graph, tensor, at);
                parser.built(built)?;
            }
            parser.close(part);
            let built = parser.build.add_graph_input(graph, info, at);
            parser.built(built)
        })
    }

    fn graph_outputs(&mut self, graph: GraphId) -> Parse {
        let begins = Self::at_value_start;
        self.list_of(b'(', b')', "`(` and the outputs of the graph", begins, |parser| {
            let info = parser.value_info()?;
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

    /// What stands in `<>` after the outputs of a graph: types of values, and constants.
    fn graph_info(&mut self, graph: GraphId) -> Parse {
        let at = self.offset();
        if self.at_sparse() {
            let tensor = self.sparse_tensor()?;
            let built = self.build.add_sparse_initializer(graph, tensor, at);
            return self.built(built);
        }
        let part = self.open(SyntaxKind::ValueInfo);
        let mut info = ValueInfo::default();
        self.value_info_content(&mut info)?;
        if self.cursor.next() == b'{' && !self.at_block() {
            let what = "`,` or `>`, or `=` before values";
            return self.expected(what);
        }
        if self.cursor.byte() == b'=' {
            let tensor = self.initializer(&info, at)?;
            self.close(part);
            let built = self.build.add_initializer(graph, tensor, at);
            return self.built(built);
        }
        self.close(part);
        self.build.model.graph_mut(graph).value_info.push(info);
        Ok(())
    }

    /// `[type] name [notes]`
    pub(super) fn value_info(&mut self) -> Parse<ValueInfo> {
        let mut info = ValueInfo::default();
        self.part(SyntaxKind::ValueInfo, |parser| parser.value_info_content(&mut info))?;
        Ok(info)
    }

    fn value_info_content(&mut self, info: &mut ValueInfo) -> Parse {
        let at = self.offset();
        let counted = self.build.count::<ValueInfo>(at);
        self.built(counted)?;
        if self.at_type() {
            self.type_into(info.ty.insert(TypeProto::default()))?;
        }
        let part = self.open(SyntaxKind::Definition);
        let name =
            if self.at_quoted() || starts_word(self.cursor.byte()) || self.cursor.byte() == b'?' {
                let name = self.maybe_name("a name")?;
                let byte = self.cursor.next();
                if info.ty.is_none() && (matches!(byte, b'[' | b'(') || starts_word(byte)) {
                    self.no_type(at as usize)?;
                }
                name
            } else if info.ty.is_some() {
                let start = at as usize;
                let end = self.cursor.token_end();
                let text = sardonyx_proto::shown(&self.cursor.text[start..end]);
                let (span, found) = self.token();
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
                return self.expected_name("the type or name of a value");
            };
        self.close(part);
        info.name = self.maybe_symbol(name)?;
        if self.at_notes() {
            self.notes(VALUE_NOTES, |parser, key| {
                match key {
                    b"doc_string" => info.doc_string = Some(parser.text_symbol()?),
                    b"metadata_props" => info.metadata_props.extend(parser.pairs()?),
                    _ => info.unknown = parser.unknown()?,
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// An error about a word that stands at `start` in the place of a type, if what is after it
    /// says that it does.
    #[cold]
    fn no_type(&mut self, start: usize) -> Parse {
        let end = self.cursor.token_end();
        let text = &self.cursor.text[start..end];
        let help = super::types::advice_on_type(text);
        let shape = matches!(self.cursor.byte(), b'[' | b'(');
        // Between two words a comma may be missing as well.
        let blank = end < self.cursor.pos;
        if !crate::cursor::is_word(text) || !(shape || (help.is_some() && blank)) {
            return Ok(());
        }
        let message = format!("`{}` is not a type", sardonyx_proto::shown(text));
        let help = help.unwrap_or_else(super::types::advice_on_types);
        self.fail_with(start..end, message, help)
    }

    /// `{ nodes }`. If something before them `failed`, it may have taken the brace along.
    pub(super) fn nodes(&mut self, graph: GraphId, failed: bool) -> Parse {
        let opened = self.offset() as usize;
        let mut failed = failed;
        if self.cursor.byte() == b'{' {
            self.cursor.pos += 1;
        } else {
            if !failed {
                let _ = self.expected::<()>("`{` and the nodes");
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
                // If something before went wrong, it may have taken the brace along.
                if !failed {
                    let help = self.advice_on_opened(opened, b'}');
                    return self.expected_with("a node or `}`", help);
                }
                return Err(Failed);
            }
            let begin = self.cursor.pos;
            if byte == b',' && self.attribute_is_behind() {
                let help = self.advice_on_opened(opened, b'}');
                return self.expected_with("a node or `}`", help);
            }
            if self.node(graph).is_err() {
                failed = true;
                if self.hopeless() {
                    return Err(Failed);
                }
                self.skip_to_next_node(begin);
            }
        }
    }

    /// Whether after the comma that stands here the node around goes on, as if the graph had been
    /// closed.
    #[cold]
    fn attribute_is_behind(&mut self) -> bool {
        let comma = self.cursor.pos;
        self.cursor.pos += 1;
        self.cursor.next();
        let found = self.at_attribute_start() && !self.at_node_start();
        self.cursor.pos = comma;
        found
    }

    /// A node, which is added to its graph.
    pub(super) fn node(&mut self, graph: GraphId) -> Parse<NodeId> {
        let part = self.open(SyntaxKind::Node);
        let result = self.node_content(graph);
        self.close(part);
        result
    }

    fn node_content(&mut self, graph: GraphId) -> Parse<NodeId> {
        let first = self.cursor.next();
        let at = self.cursor.pos;
        let node = self.build.add_node(graph, at as u64);
        let node = self.built(node)?;
        if first == b'[' {
            self.label(node)?;
        } else if first == b',' {
            self.warn(
                at..at + 1,
                "this comma leaves out the first output of the next node",
                Some("nothing is allowed between nodes; write `\"\"` for a missing output"),
            );
        }
        self.outputs(node)?;
        self.cursor.next();
        if self.cursor.byte() != b'=' {
            return self.expected_equals(at);
        }
        self.cursor.pos += 1;
        self.callee(node)?;
        let attributes_first = self.cursor.next() == b'<';
        if attributes_first {
            self.attributes(graph, node)?;
        }
        self.inputs(node)?;
        if self.cursor.next() == b'<' {
            if attributes_first {
                let at = self.cursor.pos;
                return self.fail_with(
                    at..at + 1,
                    "this node already has attributes before its inputs",
                    "put all attributes into one list",
                );
            }
            self.attributes(graph, node)?;
        }
        if self.at_notes() {
            self.node_notes(node)?;
        }
        Ok(node)
    }

    #[cold]
    fn expected_equals<T>(&mut self, start: usize) -> Parse<T> {
        let end = self.cursor.token_end().max(start);
        let text = &self.cursor.text[start..end];
        let operator = sardonyx_proto::shown(text);
        let byte = self.cursor.next();
        let (span, found) = self.token();
        if self.cursor.pos == start {
            let help = match byte {
                b';' => Some("nothing is allowed between nodes".to_string()),
                b'@' => Some("annotations begin with `@<`: @<doc_string: \"...\">".into()),
                _ => self.advice_on_name(),
            };
            return match help {
                Some(help) => self.expected_with("a node or `}`", help),
                None => self.expected("a node or `}`"),
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
            // What is in the way ends with the parenthesis of an operator, or does not.
            _ if end == span.start => match self.odd_name() {
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

    /// `[name]`
    fn label(&mut self, node: NodeId) -> Parse {
        self.cursor.pos += 1;
        let name = match self.operand(SyntaxKind::Definition)? {
            Some(name) => name,
            None if self.cursor.byte() == b']' => Text::Here(self.slice(0..0)),
            None => return self.expected_name("the name of a node"),
        };
        if !self.cursor.eat(b']') {
            let what = "`]` after the name of a node";
            return match self.odd_name() {
                Some(_) => self.expected_name(what),
                None => self.expected(what),
            };
        }
        if matches!(name, Text::Here(name) if name.bytes.is_empty()) {
            self.build.model.node_mut(node).name = Some(self.empty_symbol());
            return Ok(());
        }
        let named = self.build.name_node(node, name);
        self.built(named)
    }

    /// What a node gives back, up to the `=`.
    fn outputs(&mut self, node: NodeId) -> Parse {
        loop {
            let Some(name) = self.operand(SyntaxKind::Definition)? else {
                return Ok(());
            };
            let added = self.build.add_output(node, name);
            self.built(added)?;
            if self.cursor.next() != b',' {
                return Ok(());
            }
            self.cursor.pos += 1;
        }
    }

    /// What a node reads, in parentheses.
    fn inputs(&mut self, node: NodeId) -> Parse {
        if self.cursor.next() != b'(' {
            return self.expected_inputs();
        }
        self.cursor.pos += 1;
        while let Some(name) = self.operand(SyntaxKind::Reference)? {
            let added = self.build.add_input(node, name);
            self.built(added)?;
            if self.cursor.next() != b',' {
                break;
            }
            self.cursor.pos += 1;
        }
        if self.cursor.next() == b')' {
            self.cursor.pos += 1;
            return Ok(());
        }
        self.expected_input()
    }

    /// An error about what stands after an operator and is no parenthesis.
    #[cold]
    fn expected_inputs<T>(&mut self) -> Parse<T> {
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
            _ => return self.expected_name(what),
        };
        self.expected_with(what, help)
    }

    /// An error about what stands among the inputs of a node and is none.
    #[cold]
    fn expected_input<T>(&mut self) -> Parse<T> {
        let what = "`,` or `)` after an input";
        let end = self.cursor.token_end();
        let byte = self.cursor.next();
        let new_line = self.cursor.text[end..self.cursor.pos].contains(&b'\n');
        let closing = matches!(byte, b'}' | b']' | b'>') || self.cursor.at_end();
        if closing || (new_line && (self.at_attribute_start() || self.at_node_start())) {
            // A parenthesis within a name is rare, and gives the right line nearly always.
            let opened = self.cursor.text[..end].iter().rposition(|byte| *byte == b'(');
            let help = self.advice_on_opened(opened.unwrap_or(end), b')');
            return self.expected_with(what, help);
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
            _ => return self.expected(what),
        };
        self.expected_with(what, help)
    }

    /// An input or output: a name, or one left out, for which there is nothing before a comma, or
    /// an empty quote. `None` if the list is at its end.
    #[inline(always)]
    fn operand(&mut self, kind: SyntaxKind) -> Parse<Option<Text<'a>>> {
        let byte = self.cursor.next();
        if starts_word(byte) && !(byte == b'x' && self.cursor.byte_at(1) == b'"') {
            let part = self.open(kind);
            let start = self.cursor.pos;
            self.cursor.word();
            self.close(part);
            return Ok(Some(Text::Here(self.slice(start..self.cursor.pos))));
        }
        match byte {
            b'"' | b'x' => {
                let part = self.open(kind);
                let plain = if byte == b'"' { self.cursor.plain_quoted() } else { None };
                let text = match plain {
                    Some(range) => Text::Here(self.slice(range)),
                    None => {
                        let name = self.quoted()?;
                        self.text(name)
                    }
                };
                self.close(part);
                Ok(Some(text))
            }
            b',' => Ok(Some(Text::Here(self.slice(0..0)))),
            _ => Ok(None),
        }
    }

    /// `domain.op_type:overload`
    fn callee(&mut self, node: NodeId) -> Parse {
        self.cursor.next();
        let part = self.open(SyntaxKind::Callee);
        let start = self.cursor.pos;
        // Nearly always the standard's domain, and a word.
        if let Some(word) = self.cursor.word()
            && self.cursor.byte() != b'"'
        {
            let next = self.cursor.next();
            if next != b'.' && next != b':' {
                let op_type = Name::Here(self.slice(start..start + word.len()));
                let op_type = self.frequent_symbol(&op_type)?;
                let domain = (!self.full).then(|| self.empty_symbol());
                let node = self.build.model.node_mut(node);
                node.op_type = Some(op_type);
                node.domain = domain;
                self.close(part);
                return Ok(());
            }
        }
        self.cursor.pos = start;
        let result = self.long_callee(node);
        self.close(part);
        result
    }

    #[cold]
    fn long_callee(&mut self, node: NodeId) -> Parse {
        let mut domain: Option<Vec<u8>> = None;
        // A dot in front says nothing, as for the parser of the `onnx` package: without a domain
        // after it, that is empty.
        let leading_dot = self.cursor.eat(b'.');
        let mut op_type = self.callee_part("an operator")?;
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
            op_type = self.callee_part("an operator after its domain")?;
        }
        if leading_dot {
            domain.get_or_insert_default();
        }
        let overload = if self.cursor.next() == b':' {
            self.cursor.pos += 1;
            let name = self.name("an overload")?;
            Some(self.symbol(&name)?)
        } else {
            None
        };
        let op_type = match op_type {
            Some(name) => Some(self.frequent_symbol(&name)?),
            None => None,
        };
        let domain = match domain {
            Some(domain) => Some(self.build.own_name(&domain)),
            None if self.full => None,
            None => Some(self.empty_symbol()),
        };
        let node = self.build.model.node_mut(node);
        node.op_type = op_type;
        node.domain = domain;
        node.overload = overload;
        Ok(())
    }

    /// A part of a callee, or `?` for none. No type can stand here, so what follows the `?` does
    /// not matter.
    fn callee_part(&mut self, what: &str) -> Parse<Option<Name<'a>>> {
        if self.cursor.eat(b'?') {
            return Ok(None);
        }
        self.name(what).map(Some)
    }

    fn node_notes(&mut self, node: NodeId) -> Parse {
        let mut extras = NodeExtras::default();
        let at = self.offset();
        let counted = self.build.count::<NodeExtras>(at);
        self.built(counted)?;
        self.notes(NODE_NOTES, |parser, key| {
            match key {
                b"doc_string" => extras.doc_string = Some(parser.text_symbol()?),
                b"metadata_props" => extras.metadata_props.extend(parser.pairs()?),
                b"device_configurations" => {
                    let spans = parser.messages(NodeDeviceConfigurationProto::DEF)?;
                    extras.device_configurations.extend(spans);
                }
                _ => extras.unknown = parser.unknown()?,
            }
            Ok(())
        })?;
        if extras != NodeExtras::default() || !Unknowns::is_empty(&extras.unknown) {
            self.build.model.set_extras(node, extras);
        }
        Ok(())
    }
}
