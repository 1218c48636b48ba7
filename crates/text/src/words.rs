//! Words of the notation that parser, printer and editors share.

use sardonyx_proto::AttributeType;
use sardonyx_tensor::DataType;

/// Keys of a model's header.
pub const MODEL_KEYS: &[&str] = &[
    "notation",
    "ir_version",
    "opset_import",
    "producer_name",
    "producer_version",
    "domain",
    "model_version",
    "doc_string",
    "metadata_props",
    "files",
];

/// Keys of a function's header.
pub const FUNCTION_KEYS: &[&str] =
    &["domain", "overload", "opset_import", "doc_string", "metadata_props", "unknown"];

/// Keys of a model's annotations.
pub const MODEL_NOTES: &[&str] = &["training_info", "configuration", "unknown"];

/// Keys of a training step.
pub const TRAINING_KEYS: &[&str] =
    &["initialization", "algorithm", "initialization_binding", "update_binding", "unknown"];

/// Keys of a graph's annotations.
pub const GRAPH_NOTES: &[&str] =
    &["doc_string", "quantization_annotation", "metadata_props", "unknown"];

/// Keys of a node's annotations.
pub const NODE_NOTES: &[&str] =
    &["doc_string", "metadata_props", "device_configurations", "unknown"];

/// Keys of the annotations of an input, an output or the type of a value.
pub const VALUE_NOTES: &[&str] = &["doc_string", "metadata_props", "unknown"];

/// Keys of an attribute's annotations.
pub const ATTRIBUTE_NOTES: &[&str] = &[
    "doc_string",
    "f",
    "i",
    "s",
    "t",
    "g",
    "floats",
    "ints",
    "strings",
    "tensors",
    "graphs",
    "tp",
    "type_protos",
    "sparse_tensor",
    "sparse_tensors",
    "unknown",
];

/// Keys of a tensor's annotations.
pub const TENSOR_NOTES: &[&str] = &[
    "segment",
    "raw_data",
    "fields",
    "doc_string",
    "external_data",
    "data_location",
    "metadata_props",
    "unknown",
];

/// Keys of a type's annotations.
pub const TYPE_NOTES: &[&str] = &["denotation", "unknown", "kind_unknown", "shape_unknown"];

/// Keys of a dimension's annotations.
pub const DIMENSION_NOTES: &[&str] = &["denotation", "unknown"];

/// Words that begin a type with parentheses.
pub const TYPE_CONSTRUCTORS: &[&str] = &["seq", "map", "optional", "sparse_tensor", "opaque"];

/// Words after `=` that select the storage of a tensor's values.
pub const STORAGE_WORDS: &[&str] = &["raw", "fields", "elided"];

/// Attribute types: word, type, and the element type of a list.
pub const ATTRIBUTE_TYPES: &[(&str, AttributeType, Option<AttributeType>)] = &[
    ("float", AttributeType::FLOAT, None),
    ("int", AttributeType::INT, None),
    ("string", AttributeType::STRING, None),
    ("tensor", AttributeType::TENSOR, None),
    ("graph", AttributeType::GRAPH, None),
    ("sparse_tensor", AttributeType::SPARSE_TENSOR, None),
    ("type_proto", AttributeType::TYPE_PROTO, None),
    ("floats", AttributeType::FLOATS, Some(AttributeType::FLOAT)),
    ("ints", AttributeType::INTS, Some(AttributeType::INT)),
    ("strings", AttributeType::STRINGS, Some(AttributeType::STRING)),
    ("tensors", AttributeType::TENSORS, Some(AttributeType::TENSOR)),
    ("graphs", AttributeType::GRAPHS, Some(AttributeType::GRAPH)),
    ("sparse_tensors", AttributeType::SPARSE_TENSORS, Some(AttributeType::SPARSE_TENSOR)),
    ("type_protos", AttributeType::TYPE_PROTOS, Some(AttributeType::TYPE_PROTO)),
];

/// Returns the attribute type with a name.
pub(crate) fn attribute_type(word: &[u8]) -> Option<AttributeType> {
    let found = ATTRIBUTE_TYPES.iter().find(|(name, ..)| name.as_bytes() == word);
    found.map(|(_, ty, _)| *ty)
}

/// Returns the name of an attribute type.
pub(crate) fn attribute_word(ty: AttributeType) -> Option<&'static str> {
    let found = ATTRIBUTE_TYPES.iter().find(|(_, other, _)| *other == ty);
    found.map(|(name, ..)| *name)
}

/// Returns the element type of a list type; `None` for other types.
pub(crate) fn element_of(ty: AttributeType) -> Option<AttributeType> {
    let found = ATTRIBUTE_TYPES.iter().find(|(_, other, _)| *other == ty);
    found.and_then(|(.., element)| *element)
}

/// Returns the list type with elements of a type.
pub(crate) fn list_of(element: AttributeType) -> Option<AttributeType> {
    let found = ATTRIBUTE_TYPES.iter().find(|(.., other)| *other == Some(element));
    found.map(|(_, ty, _)| *ty)
}

/// Returns the element type with a name.
#[inline]
pub(crate) fn element_type(word: &[u8]) -> Option<DataType> {
    // Fast path: nearly all words are names of values.
    if !matches!(word.first()?, b'f' | b'd' | b'b' | b'i' | b'u' | b's' | b'c')
        || !(3..=14).contains(&word.len())
    {
        return None;
    }
    DataType::from_name(word)
}

/// Whether `word` begins a type.
#[inline]
pub(crate) fn is_type_word(word: &[u8]) -> bool {
    element_type(word).is_some()
        || TYPE_CONSTRUCTORS.iter().any(|constructor| constructor.as_bytes() == word)
}

/// Whether a word is a float: `inf`, `infinity` or `nan` in any case.
pub(crate) fn is_float_word(word: &[u8]) -> bool {
    [&b"inf"[..], b"infinity", b"nan"].iter().any(|float| word.eq_ignore_ascii_case(float))
}

/// Returns the known word that is similar to `word`, if there is one.
pub(crate) fn nearest<'w>(word: &[u8], known: &[&'w str]) -> Option<&'w str> {
    let close = |candidate: &&str| distance(word, candidate.as_bytes());
    let best = known.iter().min_by_key(|candidate| close(candidate))?;
    (close(best) <= 1 + best.len() / 5).then_some(*best)
}

/// Counts the insertions, deletions, replacements and swaps of neighbours between two words.
/// Damerau, "A technique for computer detection and correction of spelling errors" (1964).
fn distance(a: &[u8], b: &[u8]) -> usize {
    if a.len().abs_diff(b.len()) > 8 {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let same = usize::from(a[i - 1] != b[j - 1]);
                let mut best =
                    (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + same);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

/// Joins words for a sentence: `a`, `b` and `c`.
pub(crate) fn join_words(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}
