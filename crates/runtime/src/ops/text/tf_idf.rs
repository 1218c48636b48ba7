//! TfIdfVectorizer: counts the n-grams of a vocabulary in rows of tokens.
//!
//! Tokens are numbered, and the vocabulary is a tree: an n-gram is the path from its root along the
//! numbers of its tokens. A row is numbered once, and searched from each of its tokens.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use sardonyx_kernels::{Ended, Pace};
use sardonyx_ops::AttrValue;
use sardonyx_tensor::{DataType, Dims, shape};

use super::texts;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Number of a token outside of the vocabulary.
const UNKNOWN: u32 = u32::MAX;
/// Value: column of a node of the tree at which no n-gram ends.
const NO_COLUMN: usize = usize::MAX;
/// Root of the tree.
const ROOT: u32 = 0;

/// Binds `TfIdfVectorizer`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(vectorizer(site)?))
}

fn vectorizer(site: &Site<'_>) -> Result<Vectorizer, BindError> {
    let int = |name: &str, least: usize| -> Result<usize, BindError> {
        let Some(number) = site.int(name) else { fail!("attribute '{name}' is missing") };
        match usize::try_from(number) {
            Ok(number) if number >= least => Ok(number),
            _ => fail!("attribute '{name}' is {number}, but must be at least {least}"),
        }
    };
    let (least, most) = (int("min_gram_length", 1)?, int("max_gram_length", 1)?);
    if least > most {
        fail!("attribute 'min_gram_length' is {least}, greater than 'max_gram_length' {most}");
    }
    let gaps = int("max_skip_count", 0)?;
    let modes = [
        ("TF", Mode { counts: true, weighs: false }),
        ("IDF", Mode { counts: false, weighs: true }),
        ("TFIDF", Mode { counts: true, weighs: true }),
    ];
    let mode = site.find_named("mode", &modes)?;
    let (known, pool) = pool(site)?;
    let columns = columns(site)?;
    let width = columns.iter().max().map_or(0, |last| last.saturating_add(1));
    let tree = Tree::new(&starts(site, pool.len())?, &pool, &columns, least..=most)?;
    let weights = match site.attributes.get("weights") {
        Some(AttrValue::Floats(weights)) if mode.weighs && !weights.is_empty() => {
            let (given, wanted) = (weights.len(), columns.len());
            if given != wanted {
                fail!("attribute 'weights' has {given} elements, but 'ngram_indexes' has {wanted}");
            }
            columns.into_iter().zip(weights.into_owned()).collect()
        }
        _ => BTreeMap::new(),
    };
    Ok(Vectorizer { lengths: [least, most], gaps, mode, known, tree, width, weights })
}

#[derive(Debug, Clone, Copy)]
struct Mode {
    /// Whether repeated n-grams count.
    counts: bool,
    weighs: bool,
}

/// Numbers of the tokens of a vocabulary.
enum Vocabulary {
    Ints(HashMap<i64, u32>),
    Strings(HashMap<Vec<u8>, u32>),
}

/// Reads the vocabulary: its tokens, and their numbers in order.
fn pool(site: &Site<'_>) -> Result<(Vocabulary, Vec<u32>), BindError> {
    let ints = site.ints("pool_int64s").unwrap_or_default();
    let strings = match site.attributes.get("pool_strings") {
        Some(AttrValue::Strings(strings)) => strings,
        _ => Vec::new(),
    };
    if ints.len().max(strings.len()) >= UNKNOWN as usize {
        fail!("the vocabulary has too many tokens");
    }
    // Duplicate tokens have the number of their first position.
    let found = match (ints.is_empty(), strings.is_empty()) {
        (false, true) => {
            let mut known = HashMap::new();
            let numbers = ints.into_iter().zip(0..);
            let pool = numbers.map(|(token, number)| *known.entry(token).or_insert(number));
            let pool = pool.collect();
            (Vocabulary::Ints(known), pool)
        }
        (true, false) => {
            let mut known = HashMap::new();
            let numbers = strings.into_iter().map(|token| token.into_owned()).zip(0..);
            let pool = numbers.map(|(token, number)| *known.entry(token).or_insert(number));
            let pool = pool.collect();
            (Vocabulary::Strings(known), pool)
        }
        (true, true) => {
            fail!(
                "attributes 'pool_int64s' and 'pool_strings' are both empty or missing; one of them must be the \
                 vocabulary"
            );
        }
        (false, false) => {
            fail!(
                "attributes 'pool_int64s' and 'pool_strings' are both present; only one of them can be the vocabulary"
            );
        }
    };
    let of_strings = site.elem(0).ok().map(|elem| elem == DataType::String);
    match (&found.0, of_strings) {
        (Vocabulary::Ints(_), Some(true)) => {
            fail!("attribute 'pool_int64s' is the vocabulary, but the input is strings")
        }
        (Vocabulary::Strings(_), Some(false)) => {
            fail!("attribute 'pool_strings' is the vocabulary, but the input is integers")
        }
        _ => Ok(found),
    }
}

/// Returns the output column of each n-gram.
fn columns(site: &Site<'_>) -> Result<Vec<usize>, BindError> {
    let indexes = site.ints("ngram_indexes").unwrap_or_default();
    if indexes.is_empty() {
        fail!("attribute 'ngram_indexes' has no elements");
    }
    let column = |index: i64| -> Result<usize, BindError> {
        let column = usize::try_from(index).ok().filter(|column| *column != NO_COLUMN);
        match column {
            Some(column) => Ok(column),
            None => fail!("attribute 'ngram_indexes' has the negative element {index}"),
        }
    };
    indexes.into_iter().map(column).collect()
}

/// Returns the start of the n-grams of each length in the pool, and its end.
fn starts(site: &Site<'_>, end: usize) -> Result<Vec<usize>, BindError> {
    let counts = site.ints("ngram_counts").unwrap_or_default();
    let mut starts = Vec::with_capacity(counts.len() + 1);
    for count in &counts {
        let least = starts.last().copied().unwrap_or(0);
        match usize::try_from(*count) {
            Ok(start) if (least..=end).contains(&start) => starts.push(start),
            _ => {
                fail!(
                    "attribute 'ngram_counts' has the element {count}, but must be from {least} to {end}, the length \
                     of the vocabulary"
                );
            }
        }
    }
    starts.push(end);
    Ok(starts)
}

/// N-grams of a vocabulary.
struct Tree {
    /// Child of a node, by the number of a token.
    next: HashMap<(u32, u32), u32>,
    /// Output column of the n-gram that ends at each node.
    columns: Vec<usize>,
}

impl Tree {
    /// Makes the tree of the n-grams with the given lengths. The others use up columns, too.
    fn new(
        starts: &[usize],
        pool: &[u32],
        columns: &[usize],
        lengths: std::ops::RangeInclusive<usize>,
    ) -> Result<Tree, BindError> {
        let mut tree = Tree { next: HashMap::new(), columns: vec![NO_COLUMN] };
        let mut left = columns.iter();
        let mut grams = 0;
        for (length, bounds) in (1..).zip(starts.windows(2)) {
            let tokens = &pool[bounds[0]..bounds[1]];
            if !tokens.len().is_multiple_of(length) {
                fail!(
                    "attribute 'ngram_counts' has {} tokens for n-grams of length {length}, which is not a multiple",
                    tokens.len()
                );
            }
            for gram in tokens.chunks_exact(length) {
                grams += 1;
                if let Some(column) = left.next()
                    && lengths.contains(&length)
                {
                    tree.insert(gram, *column);
                }
            }
        }
        if grams > columns.len() {
            fail!(
                "attribute 'ngram_indexes' has {} elements, but there are {grams} n-grams",
                columns.len()
            );
        }
        Ok(tree)
    }

    /// Inserts an n-gram. Of duplicates the last one counts, as in the reference implementation.
    fn insert(&mut self, gram: &[u32], column: usize) {
        let mut node = ROOT;
        for token in gram {
            // There are at most as many nodes as tokens, and the root.
            let new = self.columns.len() as u32;
            node = *self.next.entry((node, *token)).or_insert(new);
            if node == new {
                self.columns.push(NO_COLUMN);
            }
        }
        self.columns[node as usize] = column;
    }
}

struct Vectorizer {
    /// Least and largest number of tokens of an n-gram.
    lengths: [usize; 2],
    /// Maximum number of tokens skipped between two tokens of an n-gram.
    gaps: usize,
    mode: Mode,
    known: Vocabulary,
    tree: Tree,
    width: usize,
    /// Weights by output column. A weight belongs to an n-gram of the vocabulary; of n-grams with
    /// one column, the last one counts.
    weights: BTreeMap<usize, f32>,
}

impl Vectorizer {
    /// Writes the numbers of the tokens of the input.
    fn number(&self, call: &Call<'_>, tokens: &mut [u32]) -> Result<(), KernelError> {
        let view = call.tensor(0)?;
        match (&self.known, view.data_type()) {
            (Vocabulary::Ints(known), DataType::Int64 | DataType::Int32) => {
                let number = |token: i64| known.get(&token).copied().unwrap_or(UNKNOWN);
                if view.data_type() == DataType::Int64 {
                    let given = view.as_slice::<i64>()?.iter();
                    tokens.iter_mut().zip(given).for_each(|(to, token)| *to = number(*token));
                } else {
                    let given = view.as_slice::<i32>()?.iter();
                    tokens
                        .iter_mut()
                        .zip(given)
                        .for_each(|(to, token)| *to = number((*token).into()));
                }
            }
            (Vocabulary::Strings(known), DataType::String) => {
                for (to, token) in tokens.iter_mut().zip(texts(view)?) {
                    *to = known.get(token?).copied().unwrap_or(UNKNOWN);
                }
            }
            (_, other) => fail!("the input is {other}, but the vocabulary is not"),
        }
        Ok(())
    }

    /// Counts the n-grams of a row by output column.
    fn count(&self, row: &[u32], counts: &mut [u64]) -> Result<(), Ended> {
        let [mut least, most] = self.lengths;
        // No two tokens are further apart than the length of the row.
        let last = self.gaps.saturating_add(1).min(row.len());
        let pace = Pace::default();
        for distance in 1..=last {
            for start in 0..row.len() {
                pace.count(1)?;
                let mut node = ROOT;
                for (length, token) in (1..=most).zip(row[start..].iter().step_by(distance)) {
                    let Some(next) = self.tree.next.get(&(node, *token)) else {
                        break;
                    };
                    node = *next;
                    let column = self.tree.columns[node as usize];
                    if length >= least && column != NO_COLUMN {
                        counts[column] += 1;
                    }
                }
            }
            // Single tokens are counted for the first distance only.
            least = least.max(2);
            if least > most {
                break;
            }
        }
        Ok(())
    }

    fn weigh(&self, counts: &[u64], out: &mut [f32]) {
        for (out, count) in out.iter_mut().zip(counts) {
            *out = if self.mode.counts { *count as f32 } else { f32::from(u8::from(*count > 0)) };
        }
        for (column, weight) in &self.weights {
            let out = &mut out[*column];
            // A missing n-gram is zero, whatever its weight.
            *out = if *out == 0.0 && !self.mode.counts { 0.0 } else { *out * weight };
        }
    }
}

impl Kernel for Vectorizer {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (dims, rows, len) = match call.tensor(0)?.dims() {
            [len] => (Dims::from_slice(&[self.width]), 1, *len),
            [rows, len] => (Dims::from_slice(&[*rows, self.width]), *rows, *len),
            other => fail!("the input has shape {other:?}, but must have rank 1 or 2"),
        };
        shape::elems(&dims)?;
        let mut tokens = call.scratch::<u32>(rows * len)?;
        self.number(call, &mut tokens)?;
        let mut counts = call.scratch::<u64>(self.width)?;
        let out = call.output_slice::<f32>(0, &dims)?;
        for (row, out) in out.chunks_exact_mut(self.width).enumerate() {
            counts.fill(0);
            self.count(&tokens[row * len..][..len], &mut counts)?;
            self.weigh(&counts, out);
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let [least, most] = self.lengths;
        format!("count n-grams of {least} to {most} tokens")
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Floats, Int, Ints, String, Strings};
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, strings, tensor};

    type VectorizerAttributes = Vec<(&'static str, AttrValue<'static>)>;

    /// Four single tokens, and three pairs.
    const POOL: [i64; 10] = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7];
    const ROWS: [i32; 12] = [1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8];

    /// Makes attributes for the vocabulary: the lengths, the gaps, and others that replace
    /// defaults.
    fn make_attributes(
        [least, most, gaps]: [i64; 3],
        others: VectorizerAttributes,
    ) -> VectorizerAttributes {
        let usual = [
            ("min_gram_length", Int(least)),
            ("max_gram_length", Int(most)),
            ("max_skip_count", Int(gaps)),
            ("mode", String(b"TF".into())),
            ("ngram_counts", Ints(vec![0, 4].into())),
            ("ngram_indexes", Ints(vec![0, 1, 2, 3, 4, 5, 6].into())),
            ("pool_int64s", Ints(POOL.to_vec().into())),
        ];
        let kept =
            usual.into_iter().filter(|(name, _)| others.iter().all(|(other, _)| other != name));
        kept.collect::<Vec<_>>().into_iter().chain(others).collect()
    }

    fn mode(name: &'static str) -> (&'static str, AttrValue<'static>) {
        ("mode", String(name.as_bytes().into()))
    }

    fn vectors(x: &Tensor, given: &VectorizerAttributes) -> Result<Tensor, std::string::String> {
        Ok(run("TfIdfVectorizer", given, &[Some(x)], 1)?.remove(0))
    }

    #[test]
    fn n_grams_are_counted() {
        // (lengths and gaps, counts of both rows)
        let rows: [([i64; 3], [u8; 14]); 7] = [
            ([1, 1, 0], [0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
            ([2, 2, 0], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]),
            ([2, 2, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]),
            ([2, 2, 5], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]),
            ([1, 2, 5], [0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1]),
            ([1, i64::MAX, 5], [0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1]),
            ([1, 2, i64::MAX], [0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1]),
        ];
        let long = ROWS.map(i64::from);
        let named = ROWS.map(|token| token.to_string());
        let pool = POOL.iter().map(|token| token.to_string().into_bytes().into()).collect();
        let pool = vec![("pool_strings", Strings(pool)), ("pool_int64s", Ints(vec![].into()))];
        for (numbers, counts) in rows {
            let counts = counts.map(f32::from);
            let ints = make_attributes(numbers, vec![]);
            let expected = tensor(&[2, 7], &counts);
            assert_eq!(vectors(&tensor(&[2, 6], &ROWS), &ints).unwrap(), expected, "{numbers:?}");
            assert_eq!(vectors(&tensor(&[2, 6], &long), &ints).unwrap(), expected);
            let of_strings = make_attributes(numbers, pool.clone());
            assert_eq!(vectors(&strings(&[2, 6], &named), &of_strings).unwrap(), expected);
            let row = vectors(&tensor(&[6], &long[6..]), &ints).unwrap();
            assert_eq!(row, tensor(&[7], &counts[7..]));
        }
        let ints = make_attributes([1, 2, 5], vec![]);
        for dims in [&[0usize][..], &[2, 0], &[0, 3]] {
            let found = vectors(&tensor::<i64>(dims, &[]), &ints).unwrap();
            let expected: Vec<usize> = dims[..dims.len() - 1].iter().copied().chain([7]).collect();
            assert_eq!(found, Tensor::zeros(sardonyx_tensor::DataType::Float, &expected).unwrap());
        }
    }

    #[test]
    fn places_and_weights() {
        let x = tensor(&[5], &[3i64, 3, 3, 5, 6]);
        let weights =
            || ("weights", Floats(vec![0.5, 2.0, 3.0, f32::INFINITY, 8.0, 1.0, 1.0].into()));
        let back = || ("ngram_indexes", Ints(vec![6, 1, 0, 3, 5, 4, 2].into()));
        // (attributes, counts)
        let rows: [(VectorizerAttributes, [f32; 7]); 7] = [
            (vec![mode("TF"), weights()], [0.0, 3.0, 1.0, 0.0, 1.0, 0.0, 0.0]),
            (vec![mode("IDF")], [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0]),
            (vec![mode("IDF"), weights()], [0.0, 2.0, 3.0, 0.0, 8.0, 0.0, 0.0]),
            (vec![mode("TFIDF")], [0.0, 3.0, 1.0, 0.0, 1.0, 0.0, 0.0]),
            // As in numpy, `inf * 0` is NaN.
            (vec![mode("TFIDF"), weights()], [0.0, 6.0, 3.0, f32::NAN, 8.0, 0.0, 0.0]),
            (vec![back()], [1.0, 3.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
            (vec![mode("IDF"), back(), weights()], [3.0, 2.0, 0.0, 0.0, 0.0, 8.0, 0.0]),
        ];
        for (others, expected) in rows {
            let given = make_attributes([1, 2, 0], others);
            let found = vectors(&x, &given).unwrap();
            let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
            assert!(found.as_slice::<f32>().unwrap().iter().zip(&expected).all(same), "{found:?}");
        }
        // Several n-grams with one place, and one that is there twice.
        let others = vec![
            ("pool_int64s", Ints(vec![3, 5, 3].into())),
            ("ngram_counts", Ints(vec![0].into())),
            ("ngram_indexes", Ints(vec![0, 1, 1].into())),
        ];
        assert_eq!(
            vectors(&x, &make_attributes([1, 1, 0], others)).unwrap(),
            tensor(&[2], &[0f32, 4.0])
        );
    }

    #[test]
    fn refusals() {
        let ints = |name: &'static str, list: &[i64]| vec![(name, Ints(list.to_vec().into()))];
        let texts = || ("pool_strings", Strings(vec![b"a"[..].into()]));
        let rows: [([i64; 3], VectorizerAttributes, &str); 14] = [
            ([0, 1, 0], vec![], "attribute 'min_gram_length' is 0, but must be at least 1"),
            (
                [2, 1, 0],
                vec![],
                "attribute 'min_gram_length' is 2, greater than 'max_gram_length' 1",
            ),
            ([1, 2, -1], vec![], "attribute 'max_skip_count' is -1, but must be at least 0"),
            (
                [1, 2, 0],
                vec![mode("tf")],
                "attribute 'mode' is 'tf', which is not one of TF, IDF, TFIDF",
            ),
            ([1, 2, 0], ints("ngram_indexes", &[]), "attribute 'ngram_indexes' has no elements"),
            (
                [1, 2, 0],
                ints("ngram_indexes", &[0, -2]),
                "attribute 'ngram_indexes' has the negative element -2",
            ),
            (
                [1, 2, 0],
                ints("ngram_indexes", &[0, 1]),
                "attribute 'ngram_indexes' has 2 elements, but there are 7 n-grams",
            ),
            (
                [1, 2, 0],
                ints("ngram_counts", &[0, 11]),
                "attribute 'ngram_counts' has the element 11, but must be from 0 to 10, the length of the vocabulary",
            ),
            (
                [1, 2, 0],
                ints("ngram_counts", &[4, 3]),
                "attribute 'ngram_counts' has the element 3, but must be from 4 to 10, the length of the vocabulary",
            ),
            (
                [1, 2, 0],
                ints("ngram_counts", &[0, 3]),
                "attribute 'ngram_counts' has 7 tokens for n-grams of length 2, which is not a multiple",
            ),
            (
                [1, 2, 0],
                ints("pool_int64s", &[]),
                "attributes 'pool_int64s' and 'pool_strings' are both empty or missing; one of them must be the \
                 vocabulary",
            ),
            (
                [1, 2, 0],
                vec![texts()],
                "attributes 'pool_int64s' and 'pool_strings' are both present; only one of them can be the vocabulary",
            ),
            (
                [1, 2, 0],
                vec![texts(), ("pool_int64s", Ints(vec![].into()))],
                "attribute 'pool_strings' is the vocabulary, but the input is integers",
            ),
            (
                [1, 2, 0],
                vec![mode("IDF"), ("weights", Floats(vec![1.0].into()))],
                "attribute 'weights' has 1 elements, but 'ngram_indexes' has 7",
            ),
        ];
        let x = tensor(&[1], &[3i64]);
        for (numbers, others, refusal) in rows {
            assert_eq!(vectors(&x, &make_attributes(numbers, others)).unwrap_err(), refusal);
        }
        let usual = make_attributes([1, 2, 0], vec![]);
        for (x, refusal) in [
            (Tensor::scalar(3i64), "the input has shape [], but must have rank 1 or 2"),
            (
                strings(&[1], &["a"]),
                "attribute 'pool_int64s' is the vocabulary, but the input is strings",
            ),
        ] {
            assert_eq!(vectors(&x, &usual).unwrap_err(), refusal);
        }
        // More places than there is memory for.
        let far = ints("ngram_indexes", &[0, 1, 2, 3, 4, 5, i64::MAX - 1]);
        assert!(vectors(&x, &make_attributes([1, 2, 0], far)).is_err());
    }
}
