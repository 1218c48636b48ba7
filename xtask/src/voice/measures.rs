//! Counts of one crate: documentation, comments, names, parameters and closures.

use super::lists::Lists;
use crate::rust_source::{Source, has_word, is_word};
use std::collections::BTreeSet;
use std::fmt;

/// A rule whose violations may only become fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Documentation opens with a word of `openings.tsv`.
    Opening,
    /// A comment has a word of `words.tsv`.
    Word,
    /// A parameter is a tuple or an array.
    Tuple,
    /// A function is called by a participle or an adverb alone.
    Name,
    /// A local closure has a name.
    Closure,
    /// Documentation of a function does not open with a verb in the third person.
    Verb,
}

impl Rule {
    pub(crate) const ALL: [Rule; 6] =
        [Rule::Opening, Rule::Word, Rule::Tuple, Rule::Name, Rule::Closure, Rule::Verb];

    /// Returns the title of the rule's column in `tests/voice/counts.tsv`.
    pub(crate) fn column(self) -> &'static str {
        match self {
            Rule::Opening => "openings",
            Rule::Word => "words",
            Rule::Tuple => "tuples",
            Rule::Name => "names",
            Rule::Closure => "closures",
            Rule::Verb => "no verb",
        }
    }
}

/// One place that a rule complains about.
#[derive(Clone)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    path: String,
    line: usize,
    text: String,
    advice: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { rule, path, line, text, advice } = self;
        write!(f, "{path}:{line}: {}: {text}", rule.column())?;
        if advice.is_empty() { Ok(()) } else { write!(f, " ({advice})") }
    }
}

/// Measures of the sources of one crate.
#[derive(Default)]
pub(crate) struct Measures {
    /// Lines with code on them.
    pub(crate) code_lines: usize,
    /// Items, fields, variants and modules with documentation.
    pub(crate) docs: usize,
    /// Documentation that opens with "What".
    pub(crate) what: usize,
    /// Documentation that opens with another question word.
    pub(crate) questions: usize,
    /// Documentation that opens with a preposition.
    pub(crate) prepositions: usize,
    /// Documentation that opens with "Returns".
    pub(crate) returns: usize,
    /// Words in comments.
    pub(crate) words: usize,
    /// Forms of the verb for talking in comments: the first column of the table.
    pub(crate) say: usize,
    /// Indirect nouns in comments, the second column.
    pub(crate) what_is: usize,
    /// Pronouns for unnamed persons in comments, the third column.
    pub(crate) nobody: usize,
    /// Negated nouns in comments, the fourth column.
    pub(crate) is_no: usize,
    /// Functions, with and without documentation.
    pub(crate) functions: usize,
    /// Functions with documentation.
    pub(crate) documented_functions: usize,
    /// Local closures with a name that are called in one place.
    pub(crate) closures_called_once: usize,
    /// Types called `Kind`, `Form`, `Step`, `Layout` or `Part`.
    pub(crate) shared_type_names: usize,
    /// Places, in the order of the sources.
    pub(crate) violations: Vec<Violation>,
    /// Indices of the exceptions that were needed.
    pub(crate) exceptions_used: BTreeSet<usize>,
}

const QUESTIONS: &[&str] = &["How", "Who", "Why", "Where", "Which"];
const PREPOSITIONS: &[&str] = &["Of", "By", "As", "In", "For", "From"];
const SHARED_TYPE_NAMES: &[&str] = &["Kind", "Form", "Step", "Layout", "Part"];

impl Measures {
    /// Counts the violations of `rule`.
    pub(crate) fn count(&self, rule: Rule) -> usize {
        self.violations.iter().filter(|violation| violation.rule == rule).count()
    }

    /// Adds the numbers of another crate.
    pub(crate) fn merge(&mut self, other: &Measures) {
        let numbers: [(&mut usize, usize); 15] = [
            (&mut self.code_lines, other.code_lines),
            (&mut self.docs, other.docs),
            (&mut self.what, other.what),
            (&mut self.questions, other.questions),
            (&mut self.prepositions, other.prepositions),
            (&mut self.returns, other.returns),
            (&mut self.words, other.words),
            (&mut self.say, other.say),
            (&mut self.what_is, other.what_is),
            (&mut self.nobody, other.nobody),
            (&mut self.is_no, other.is_no),
            (&mut self.functions, other.functions),
            (&mut self.documented_functions, other.documented_functions),
            (&mut self.closures_called_once, other.closures_called_once),
            (&mut self.shared_type_names, other.shared_type_names),
        ];
        for (own, others) in numbers {
            *own += others;
        }
        self.violations.extend(other.violations.iter().cloned());
    }

    /// Measures one more source file, whose violations are reported at `path`.
    pub(crate) fn add(&mut self, path: &str, source: &Source<'_>, lists: &Lists) {
        self.code_lines += source.code.lines().filter(|line| !line.trim().is_empty()).count();
        let mut file = File { measures: self, path, lists };
        file.measure_docs(source);
        file.measure_comments(source);
        file.measure_functions(source);
        file.measure_closures(source);
    }
}

/// A file that is being measured.
struct File<'a> {
    measures: &'a mut Measures,
    path: &'a str,
    lists: &'a Lists,
}

impl File<'_> {
    fn report(&mut self, rule: Rule, line: usize, text: &str, advice: &str) {
        if let Some(exception) = self.lists.exception(self.path, text) {
            self.measures.exceptions_used.insert(exception);
            return;
        }
        let (path, text, advice) = (self.path.to_string(), text.to_string(), advice.to_string());
        self.measures.violations.push(Violation { rule, path, line, text, advice });
    }

    fn measure_docs(&mut self, source: &Source<'_>) {
        for doc in source.docs() {
            let sentence = first_sentence(&doc.text);
            let first = sentence.split_whitespace().next().unwrap_or_default();
            self.measures.docs += 1;
            self.measures.what += usize::from(first == "What");
            self.measures.questions += usize::from(QUESTIONS.contains(&first));
            self.measures.prepositions += usize::from(PREPOSITIONS.contains(&first));
            self.measures.returns += usize::from(first == "Returns");
            let lists = self.lists;
            let mut openings = lists.openings.iter();
            let opening = openings.find(|opening| opens_with(sentence, &opening.text));
            if let Some(opening) = opening {
                self.report(Rule::Opening, doc.line, sentence, &opening.better);
            }
            if doc.is_function {
                self.measures.documented_functions += 1;
                if !opens_with_verb(sentence, lists) {
                    self.report(Rule::Verb, doc.line, sentence, "");
                }
            }
        }
    }

    fn measure_comments(&mut self, source: &Source<'_>) {
        for comment in source.comments() {
            let text = comment.text.to_lowercase();
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '\'');
            let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
            self.measures.words += words.len();
            let count = |list: &[&str]| words.iter().filter(|word| list.contains(word)).count();
            self.measures.say += count(&["says", "say", "said", "told"]);
            self.measures.nobody += count(&["nobody", "somebody"]);
            let pairs = || words.windows(2).map(|pair| (pair[0], pair[1]));
            self.measures.what_is += pairs().filter(|pair| *pair == ("what", "is")).count();
            self.measures.is_no += pairs().filter(|pair| *pair == ("is", "no")).count();
            let lists = self.lists;
            for word in lists.words.iter().filter(|word| has_word(&text, &word.text)) {
                self.report(Rule::Word, comment.line, &word.text, &word.better);
            }
        }
    }

    fn measure_functions(&mut self, source: &Source<'_>) {
        for function in source.functions() {
            self.measures.functions += 1;
            let lists = self.lists;
            let listed = lists.names.iter().find(|entry| entry.text == function.name);
            if let Some(entry) = listed {
                self.report(Rule::Name, function.line, function.name, &entry.better);
            } else if function.name.ends_with("ed") && !function.name.contains('_') {
                self.report(Rule::Name, function.line, function.name, "a verb or a noun");
            }
            for parameter in parameters(function.parameters) {
                if is_tuple_or_array(parameter) {
                    let text = format!("{}: {parameter}", function.name);
                    self.report(Rule::Tuple, function.line, &text, "");
                }
            }
        }
        for name in SHARED_TYPE_NAMES {
            let declared = source.code.lines().filter(|line| declares_type(line, name));
            self.measures.shared_type_names += declared.count();
        }
    }

    fn measure_closures(&mut self, source: &Source<'_>) {
        for closure in source.closures() {
            self.measures.closures_called_once += usize::from(closure.is_called_once);
            let advice = if closure.is_called_once { "called once" } else { "" };
            self.report(Rule::Closure, closure.line, closure.name, advice);
        }
    }
}

/// Returns the first sentence of documentation, which ends with its first paragraph at the latest.
fn first_sentence(text: &str) -> &str {
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let end = paragraph.find(". ").or_else(|| paragraph.find(".\n")).unwrap_or(paragraph.len());
    paragraph[..end].trim_end().trim_end_matches('.')
}

/// Whether `sentence` begins with the words of `opening`.
fn opens_with(sentence: &str, opening: &str) -> bool {
    let rest = sentence.strip_prefix(opening);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '\''))
}

/// Words that follow a verb and not a noun: "Formats a row".
const DETERMINERS: &[&str] =
    &["a", "all", "an", "both", "each", "every", "its", "some", "the", "their", "these", "this"];

/// Whether `sentence` opens with a verb in the third person, or is a predicate.
fn opens_with_verb(sentence: &str, lists: &Lists) -> bool {
    let mut words = sentence.split_whitespace();
    let first = words.next().unwrap_or_default().trim_end_matches([',', ':', '.']);
    let is_word = first.chars().all(|c| c.is_alphabetic() || c == '-');
    let is_noun = lists.not_verbs.contains(first)
        && !words
            .next()
            .is_some_and(|second| DETERMINERS.contains(&second) || second.starts_with('`'));
    first == "Whether" || is_word && first.ends_with('s') && !is_noun
}

/// Splits a list of parameters at its commas.
fn parameters(list: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0i32, 0, Vec::new());
    let bytes = list.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b')' | b']' | b'}' | b'>' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(list[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[from..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Whether a parameter is a tuple or an array, or a reference to one.
fn is_tuple_or_array(parameter: &str) -> bool {
    let Some(kind) = type_of(parameter) else { return false };
    let mut kind = kind.trim_start();
    while let Some(rest) = kind.strip_prefix('&') {
        kind = rest.trim_start();
        if kind.starts_with('\'') {
            kind = kind.split_once(' ').map_or("", |(_, rest)| rest).trim_start();
        }
        kind = kind.strip_prefix("mut ").unwrap_or(kind).trim_start();
    }
    let inner = |open| kind.strip_prefix(open).and_then(|rest| rest.get(..rest.len() - 1));
    match (inner('('), inner('[')) {
        (Some(inner), _) => kind.ends_with(')') && parameters(inner).len() > 1,
        (_, Some(inner)) => kind.ends_with(']') && has_length(inner),
        _ => false,
    }
}

/// Returns the type of a parameter: the text after the colon that is not part of a path.
fn type_of(parameter: &str) -> Option<&str> {
    let bytes = parameter.as_bytes();
    let mut depth = 0i32;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' | b'>' => depth -= 1,
            b':' if depth == 0 && bytes.get(at + 1) != Some(&b':') => {
                return parameter.get(at + 1..);
            }
            _ => {}
        }
    }
    None
}

/// Whether the inside of brackets has a length, so that they are an array and not a slice.
fn has_length(inner: &str) -> bool {
    let mut depth = 0i32;
    inner.bytes().any(|byte| {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        byte == b';' && depth == 0
    })
}

/// Whether a line of code declares a type called `name`.
fn declares_type(line: &str, name: &str) -> bool {
    ["struct ", "enum "].iter().any(|keyword| {
        let after = line.find(keyword).map(|at| &line[at + keyword.len()..]);
        let rest = after.and_then(|after| after.strip_prefix(name));
        rest.is_some_and(|rest| !rest.bytes().next().is_some_and(is_word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure_source(source: &str) -> Measures {
        let mut measures = Measures::default();
        measures.add("a.rs", &Source::new(source), &Lists::read().unwrap());
        measures
    }

    fn counts(source: &str) -> [usize; 6] {
        let measures = measure_source(source);
        Rule::ALL.map(|rule| measures.count(rule))
    }

    #[test]
    fn openings_are_those_of_the_first_sentence() {
        for (source, found) in [
            ("/// What it is.\nstruct A;", 1),
            ("/// The thing that counts.\nstruct A;", 1),
            ("/// Whatever.\nstruct A;", 0),
            ("/// A name.\n///\n/// What it is.\nstruct A;", 0),
            ("let a = \"\n/// What it is.\n\";", 0),
            ("struct A {\n    /// How many.\n    a: u8,\n}", 1),
            ("//! Of all.\n", 1),
        ] {
            assert_eq!(counts(source)[0], found, "{source}");
        }
    }

    #[test]
    fn functions_open_with_a_verb_or_a_predicate() {
        for (source, found) in [
            ("/// Packs the weights.\nfn a() {}", 0),
            (
                "/// Whether it is full.\n#[inline]\n#[cfg(any(\n    a,\n))]\npub(crate) const unsafe fn a() {}",
                0,
            ),
            ("/// The weights.\npub async fn a() {}", 1),
            ("/// Bytes of a row.\nfn a() {}", 1),
            ("/// Lines the cells up.\nfn a() {}", 0),
            ("/// The weights.\nstruct A;", 0),
            ("/// The body.\ntype A = fn(u8);", 0),
        ] {
            assert_eq!(counts(source)[5], found, "{source}");
        }
    }

    #[test]
    fn words_are_found_in_comments_only() {
        assert_eq!(counts("// The file says so.\nlet a = \"nobody says\"; // nobody\n")[1], 2);
        assert_eq!(counts("/// Essays.\n/// ```\n/// // says\n/// ```\nstruct A;")[1], 0);
    }

    #[test]
    fn tuples_and_arrays_are_found_behind_references() {
        for (parameters, found) in [
            ("a: (u8, u8), b: &'a mut (u8, [u8; 2])", 2),
            ("a: [usize; 3]", 1),
            ("&self, a: &[(u8, u8)], b: Option<(u8, u8)>, c: (), d: &[u8]", 0),
            ("f: impl Fn((u8, u8)) -> [u8; 2], b: Vec<u8>", 0),
            ("(a, b): (u8, u8)", 1),
        ] {
            assert_eq!(
                counts(&format!("fn a<T: Fn(u8) -> u8>({parameters}) {{}}"))[2],
                found,
                "{parameters}"
            );
        }
    }

    #[test]
    fn names_and_closures_are_counted() {
        let source = "fn held() {\n    let twice = |a| a + a;\n    let once = move || 1;\n    let b = a || c;\n    \
                      twice(1) + once() + twice(2)\n}\nfn other() { once() }\n";
        let measures = measure_source(source);
        assert_eq!(counts(source)[3..5], [1, 2]);
        assert_eq!(measures.closures_called_once, 1);
    }
}
