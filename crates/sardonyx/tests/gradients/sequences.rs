//! Tests of gradients of random models with sequences and with loops that change sizes, against
//! differences.

use std::fmt::Write;

use super::{Known, Random, parse_blocks};

/// Number of models, unless the environment variable `GRADIENT_DRAWS` sets it.
const DRAWS: u64 = 60;

/// A random model under construction, as the inputs and nodes of a block. All tensors are vectors.
struct Draw {
    random: Random,
    inputs: Vec<String>,
    nodes: Vec<String>,
    /// Names and lengths.
    vectors: Vec<(String, usize)>,
    /// Names, and the lengths of the items.
    sequences: Vec<(String, Vec<usize>)>,
    names: usize,
}

impl Draw {
    fn new(seed: u64) -> Draw {
        let mut draw = Draw {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            inputs: Vec::new(),
            nodes: Vec::new(),
            vectors: Vec::new(),
            sequences: Vec::new(),
            names: 0,
        };
        draw.random.next();
        for _ in 0..2 {
            let length = 1 + draw.next_below(4);
            let name = draw.name("x");
            draw.inputs.push(format!("< double[{length}] {name} in -1 1"));
            draw.vectors.push((name, length));
        }
        draw
    }

    fn next_below(&mut self, count: usize) -> usize {
        ((self.random.next() * count as f64) as usize).min(count - 1)
    }

    fn name(&mut self, hint: &str) -> String {
        self.names += 1;
        format!("{hint}{}", self.names)
    }

    fn node(&mut self, hint: &str, made: &str) -> String {
        let name = self.name(hint);
        self.nodes.push(format!("{name} = {made}"));
        name
    }

    fn vector(&mut self) -> (String, usize) {
        let index = self.next_below(self.vectors.len());
        self.vectors[index].clone()
    }

    /// Selects a sequence of at least `least` items.
    fn sequence(&mut self, least: usize) -> Option<(String, Vec<usize>)> {
        let found = self.sequences.iter().filter(|(_, items)| items.len() >= least);
        let found: Vec<_> = found.cloned().collect();
        if found.is_empty() { None } else { Some(found[self.next_below(found.len())].clone()) }
    }

    /// Adds an `int64` scalar: a constant, or one computed from an input.
    fn number(&mut self, value: i64) -> String {
        if self.next_below(2) == 0 {
            return self.node("p", &format!("Constant <value_int = {value}> ()"));
        }
        let name = self.name("k");
        self.inputs.push(format!("< double {name} = {{{:?}}}", value as f64 + 0.5));
        let floor = self.node("f", &format!("Floor ({name})"));
        self.node("p", &format!("Cast <to = 7> ({floor})"))
    }

    /// Adds a position up to `places`, counted from the front or from the end of `length` items.
    /// Returns its name and the index from the front.
    fn position(&mut self, length: usize, places: usize) -> (String, usize) {
        let index = self.next_below(places);
        let is_from_end = index < length && self.next_below(2) == 0;
        let value = if is_from_end { index as i64 - length as i64 } else { index as i64 };
        (self.number(value), index)
    }

    fn step(&mut self) {
        match self.next_below(10) {
            0 => self.split(),
            1 => self.construct(),
            2 => self.insert(),
            3 => self.erase(),
            4 => self.at(),
            5 => self.join(),
            6 => self.map(),
            7 => self.branch(),
            8 => self.iterate(),
            _ => {
                let ((a, length), (b, _)) = (self.vector(), self.vector());
                let sum = self.node("s", &format!("ReduceSum <keepdims = 0> ({b})"));
                let sine = self.node("v", &format!("Sin ({a})"));
                let product = self.node("v", &format!("Mul ({sine}, {sum})"));
                self.vectors.push((product, length));
            }
        }
    }

    fn split(&mut self) {
        let (vector, length) = self.vector();
        let (made, items) = match self.next_below(3) {
            0 => (format!("SplitToSequence ({vector})"), vec![1; length]),
            1 => {
                let size = 1 + self.next_below(3);
                let number = self.number(size as i64);
                let whole = vec![size; length / size];
                let rest = (length % size > 0).then_some(length % size);
                let items = whole.into_iter().chain(rest).collect();
                (format!("SplitToSequence <axis = -1> ({vector}, {number})"), items)
            }
            _ => {
                let first = self.next_below(length + 1);
                let items = vec![first, length - first];
                let sizes = self.node("c", &format!("Constant <value_ints = {items:?}> ()"));
                (format!("SplitToSequence ({vector}, {sizes})"), items)
            }
        };
        let name = self.node("q", &made);
        self.sequences.push((name, items));
    }

    fn construct(&mut self) {
        let vectors: Vec<_> = (0..=self.next_below(3)).map(|_| self.vector()).collect();
        let (names, items): (Vec<String>, Vec<usize>) = vectors.into_iter().unzip();
        let name = self.node("q", &format!("SequenceConstruct ({})", names.join(", ")));
        self.sequences.push((name, items));
    }

    fn insert(&mut self) {
        let Some((sequence, mut items)) = self.sequence(0) else { return };
        let (vector, length) = self.vector();
        let made = if self.next_below(2) == 0 {
            items.push(length);
            format!("SequenceInsert ({sequence}, {vector})")
        } else {
            let (position, index) = self.position(items.len(), items.len() + 1);
            items.insert(index, length);
            format!("SequenceInsert ({sequence}, {vector}, {position})")
        };
        let name = self.node("q", &made);
        self.sequences.push((name, items));
    }

    fn erase(&mut self) {
        let Some((sequence, mut items)) = self.sequence(1) else { return };
        let made = if self.next_below(2) == 0 {
            items.pop();
            format!("SequenceErase ({sequence})")
        } else {
            let (position, index) = self.position(items.len(), items.len());
            items.remove(index);
            format!("SequenceErase ({sequence}, {position})")
        };
        let name = self.node("q", &made);
        self.sequences.push((name, items));
    }

    fn at(&mut self) {
        let Some((sequence, items)) = self.sequence(1) else { return };
        let (position, index) = self.position(items.len(), items.len());
        let name = self.node("v", &format!("SequenceAt ({sequence}, {position})"));
        self.vectors.push((name, items[index]));
    }

    fn join(&mut self) {
        let Some((sequence, items)) = self.sequence(1) else { return };
        let name = self.node("v", &format!("ConcatFromSequence <axis = 0> ({sequence})"));
        self.vectors.push((name, items.iter().sum()));
    }

    fn map(&mut self) {
        let Some((sequence, items)) = self.sequence(0) else { return };
        let (other, _) = self.vector();
        let sum = self.node("s", &format!("ReduceSum <keepdims = 0> ({other})"));
        let [a, b, c] = ["a", "b", "c"].map(|hint| self.name(hint));
        let made = format!(
            "SequenceMap ({sequence}) <body = each (double[n] {a}) => (double[n] {c}) {{
                {b} = Mul ({a}, {sum})
                {c} = Cos ({b})
            }}>"
        );
        let name = self.node("q", &made);
        self.sequences.push((name, items));
    }

    /// Adds an `If` whose branches insert an item into a sequence or remove the last one.
    fn branch(&mut self) {
        let Some((sequence, mut items)) = self.sequence(1) else { return };
        let (vector, length) = self.vector();
        let is_then = self.next_below(2) == 0;
        let choice = self.name("k");
        let value = if is_then { 0.5 } else { -0.5 };
        self.inputs.push(format!("< double {choice} = {{{value}}}"));
        let zero = self.node("c", "Constant <value = double {0.0}> ()");
        let condition = self.node("b", &format!("Greater ({choice}, {zero})"));
        let [yes, no] = ["y", "n"].map(|hint| self.name(hint));
        let made = format!(
            "If ({condition}) <
                then_branch = yes () => (seq(double[]) {yes}) {{
                    {yes} = SequenceInsert ({sequence}, {vector})
                }},
                else_branch = no () => (seq(double[]) {no}) {{ {no} = SequenceErase ({sequence}) }}
            >"
        );
        let name = self.node("q", &made);
        if is_then {
            items.push(length);
        } else {
            items.pop();
        }
        self.sequences.push((name, items));
    }

    /// Adds a `Loop` that carries a vector and a sequence, and reads another sequence.
    fn iterate(&mut self) {
        let Some(sequence) = self.sequence(0) else { return };
        let vector = self.vector();
        let count = self.next_below(4);
        let outer = self.sequence(count.max(1));
        let (reads, writes) = (self.next_below(3), self.next_below(4));
        let doubles = vector.1 <= 4 && self.next_below(3) == 0;
        let number = self.number(count as i64);
        let (a_in, t_in) = (self.name("a"), self.name("t"));
        // All iterations share one body, so it only has nodes that are valid in each of them.
        let (mut body, mut names) = (String::new(), self.names);
        let (mut a, mut t) = (a_in.clone(), t_in.clone());
        let mut name = |hint: &str| {
            names += 1;
            format!("{hint}{names}")
        };
        let [i, c, c2, zero] = ["i", "c", "g", "z"].map(&mut name);
        let mut add = |line: String| writeln!(body, "                {line}").unwrap();
        add(format!("{c2} = Identity ({c})"));
        add(format!("{zero} = Constant <value_int = 0> ()"));
        let (mut length, mut items) = (vector.1, sequence.1.clone());
        let has_item = !items.is_empty();
        if let (Some((outer, _)), 0) = (&outer, reads) {
            let [e, s, m] = ["e", "s", "m"].map(&mut name);
            add(format!("{e} = SequenceAt ({outer}, {i})"));
            add(format!("{s} = ReduceSum <keepdims = 0> ({e})"));
            add(format!("{m} = Mul ({a}, {s})"));
            a = m;
        }
        if reads == 1 && has_item {
            let [e, s, m] = ["e", "s", "m"].map(&mut name);
            add(format!("{e} = SequenceAt ({t}, {zero})"));
            add(format!("{s} = ReduceSum <keepdims = 0> ({e})"));
            add(format!("{m} = Add ({a}, {s})"));
            a = m;
        }
        let sine = name("s");
        add(format!("{sine} = Sin ({a})"));
        a = sine;
        if doubles {
            let joined = name("j");
            add(format!("{joined} = Concat <axis = 0> ({a}, {a})"));
            a = joined;
        }
        let made = name("t");
        match writes {
            0 => add(format!("{made} = Identity ({t})")),
            1 => add(format!("{made} = SequenceInsert ({t}, {a})")),
            2 if has_item => {
                let rest = name("t");
                add(format!("{rest} = SequenceErase ({t}, {zero})"));
                add(format!("{made} = SequenceInsert ({rest}, {a})"));
            }
            _ => add(format!("{made} = SequenceInsert ({t}, {a}, {zero})")),
        }
        t = made;
        for _ in 0..count {
            length *= 1 + usize::from(doubles);
            match writes {
                0 => {}
                1 => items.push(length),
                2 if has_item => {
                    items.remove(0);
                    items.push(length);
                }
                _ => items.insert(0, length),
            }
        }
        let [vector_out, sequence_out] = ["v", "q"].map(&mut name);
        self.names = names;
        self.nodes.push(format!(
            "{vector_out}, {sequence_out} = Loop ({number}, , {}, {}) <
                body = turn (int64 {i}, bool {c}, double[] {a_in}, seq(double[]) {t_in})
                => (bool {c2}, double[] {a}, seq(double[]) {t}) {{
                {}
            }}>",
            vector.0,
            sequence.0,
            body.trim()
        ));
        self.vectors.push((vector_out, length));
        self.sequences.push((sequence_out, items));
    }

    /// Returns the text of the block.
    fn text(mut self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (sequence, items) in self.sequences.clone().into_iter().rev().take(2) {
            if !items.is_empty() {
                let made = format!("ConcatFromSequence <axis = 0> ({sequence})");
                parts.push(self.node("v", &made));
            }
        }
        parts.extend(self.vectors.iter().rev().take(3).map(|(name, _)| name.clone()));
        let all = self.node("v", &format!("Concat <axis = 0> ({})", parts.join(", ")));
        self.nodes.push(format!("y = Sin ({all})"));
        let (inputs, nodes) = (self.inputs.join("\n"), self.nodes.join("\n  "));
        format!("Drawn\n{inputs}\n  {nodes}\n")
    }
}

#[test]
fn gradients_through_drawn_sequences_are_those_of_differences() {
    let set = std::env::var("GRADIENT_DRAWS").ok().and_then(|count| count.parse().ok());
    let mut wrong = Vec::new();
    for seed in 0..set.unwrap_or(DRAWS) {
        let mut draw = Draw::new(seed);
        let steps = 3 + draw.next_below(8);
        (0..steps).for_each(|_| draw.step());
        let text = draw.text();
        let mut block = parse_blocks(&text).remove(0);
        // Second derivatives are slow, so only every fourth model has one.
        block.is_once = seed % 4 > 0;
        let known = if seed % 3 == 0 { Known::Nothing } else { Known::Shapes };
        if let Err(why) = block.check(known) {
            wrong.push(format!("seed {seed}, {known:?}: {why}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong.join("\n"));
}
