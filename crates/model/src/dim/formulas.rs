//! Dimensions compiled to a list of operations, to be computed for many sets of sizes.
//!
//! Substituting symbols in expressions builds expressions in normal form again. If all symbols
//! become numbers, evaluating a list of operations gives the same result in far less time.

use std::collections::HashMap;

use super::{Atom, Dim, floor_div, floor_rem};

/// Expressions over a set of symbols; common subexpressions are computed once.
#[derive(Debug, Default)]
pub struct Formulas {
    symbols: usize,
    steps: Vec<Operation>,
    numbers_of: HashMap<Dim, Formula>,
    numbers_of_steps: HashMap<Operation, Formula>,
}

/// Index of an expression in [`Formulas`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Formula(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    /// Size of the symbol at this index.
    Symbol(u32),
    Number(i64),
    Sum(Formula, Formula),
    Product(Formula, Formula),
    FloorDiv(Formula, Formula),
    Mod(Formula, Formula),
    Max(Formula, Formula),
    Min(Formula, Formula),
    Broadcast(Formula, Formula),
}

impl Formulas {
    /// Creates an empty list of expressions over `symbols`.
    pub fn new<'s>(symbols: impl IntoIterator<Item = &'s str>) -> Formulas {
        let mut formulas = Formulas::default();
        for symbol in symbols {
            let formula = formulas.add_step(Operation::Symbol(formulas.symbols as u32));
            formulas.numbers_of.insert(Dim::symbol(symbol), formula);
            formulas.symbols += 1;
        }
        formulas
    }

    /// Adds an expression. Returns `None` if it is unknown, or has another symbol.
    pub fn add(&mut self, dim: &Dim) -> Option<Formula> {
        let expr = match dim {
            Dim::Known(number) => return Some(self.add_step(Operation::Number(*number))),
            Dim::Unknown => return None,
            Dim::Expr(expr) => expr,
        };
        if let Some(formula) = self.numbers_of.get(dim) {
            return Some(*formula);
        }
        let mut sum = None;
        for (product, factor) in &expr.terms {
            let mut term = (product.is_empty() || *factor != 1)
                .then(|| self.add_step(Operation::Number(*factor)));
            for atom in product {
                let atom = self.add_atom(atom)?;
                term = Some(match term {
                    Some(term) => self.add_step(Operation::Product(term, atom)),
                    None => atom,
                });
            }
            sum = match (sum, term) {
                (Some(sum), Some(term)) => Some(self.add_step(Operation::Sum(sum, term))),
                (sum, term) => sum.or(term),
            };
        }
        self.numbers_of.insert(dim.clone(), sum?);
        sum
    }

    fn add_atom(&mut self, atom: &Atom) -> Option<Formula> {
        let (step, a, b): (fn(Formula, Formula) -> Operation, _, _) = match atom {
            Atom::Symbol(name) => return self.numbers_of.get(&Dim::symbol(name)).copied(),
            Atom::FloorDiv(a, b) => (Operation::FloorDiv, a, b),
            Atom::Mod(a, b) => (Operation::Mod, a, b),
            Atom::Max(a, b) => (Operation::Max, a, b),
            Atom::Min(a, b) => (Operation::Min, a, b),
            Atom::Broadcast(a, b) => (Operation::Broadcast, a, b),
        };
        let (a, b) = (self.add(a)?, self.add(b)?);
        Some(self.add_step(step(a, b)))
    }

    fn add_step(&mut self, step: Operation) -> Formula {
        // The cast is safe: each index is an entry in memory, and 2^32 of them do not fit.
        let next = Formula(self.steps.len() as u32);
        *self.numbers_of_steps.entry(step).or_insert_with(|| {
            self.steps.push(step);
            next
        })
    }

    /// Returns the number, if the expression has no symbols.
    pub fn constant(&self, formula: Formula) -> Option<i64> {
        match self.steps[formula.0 as usize] {
            Operation::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Computes all expressions for `sizes`, one for each symbol in the order of creation. Returns
    /// `None` if a result is not a number: it exceeds 64 bits, divides by 0, or broadcasts two
    /// sizes that do not match.
    pub fn compute(&self, sizes: &[i64]) -> Option<Computed> {
        let mut numbers: Vec<i64> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let at = |formula: &Formula| numbers[formula.0 as usize];
            let number = match step {
                Operation::Symbol(index) => *sizes.get(*index as usize)?,
                Operation::Number(number) => *number,
                Operation::Sum(a, b) => at(a).checked_add(at(b))?,
                Operation::Product(a, b) => at(a).checked_mul(at(b))?,
                Operation::FloorDiv(a, b) => {
                    at(a).checked_div(at(b))?;
                    floor_div(at(a), at(b))
                }
                Operation::Mod(a, b) => {
                    at(a).checked_rem(at(b))?;
                    floor_rem(at(a), at(b))
                }
                Operation::Max(a, b) => at(a).max(at(b)),
                Operation::Min(a, b) => at(a).min(at(b)),
                Operation::Broadcast(a, b) => broadcast(at(a), at(b))?,
            };
            numbers.push(number);
        }
        Some(Computed(numbers))
    }
}

/// Returns the size that two sizes broadcast to, if they do.
fn broadcast(a: i64, b: i64) -> Option<i64> {
    match (a, b) {
        (1, size) | (size, 1) => Some(size),
        _ => (a == b).then_some(a),
    }
}

/// Results of [`Formulas::compute`].
#[derive(Debug)]
pub struct Computed(Vec<i64>);

impl Computed {
    /// Returns the value of an expression.
    pub fn number(&self, formula: Formula) -> i64 {
        self.0[formula.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_give_the_numbers_of_expressions() {
        let texts = [
            "7",
            "N",
            "2*N - M + 5",
            "N*M*M",
            "floor((N + 1)/2)",
            "mod(N - 5, M)",
            "max(N - 3, 0)",
            "min(N, M + 1)",
            "floor((N*M)/(M + 1)) + max(floor((N + 1)/2), M)",
            "3*broadcast(N, min(1, N))",
        ];
        let dims = texts.map(Dim::parse);
        let mut formulas = Formulas::new(["N", "M"]);
        let found: Vec<Formula> =
            dims.iter().map(|dim| formulas.add(dim).expect("only these symbols")).collect();
        for [n, m] in [[1, 1], [2, 3], [1 << 20, 7], [9, 100]] {
            let computed = formulas.compute(&[n, m]).expect("numbers");
            for ((dim, formula), text) in dims.iter().zip(&found).zip(texts) {
                let put_in = dim.substitute(&|name| Some((if name == "N" { n } else { m }).into()));
                assert_eq!(
                    Some(computed.number(*formula)),
                    put_in.known(),
                    "{text} for N = {n}, M = {m}"
                );
            }
        }
    }

    #[test]
    fn equal_parts_are_computed_once() {
        let mut formulas = Formulas::new(["N"]);
        let a = formulas.add(&Dim::parse("floor((N + 1)/2) + 3"));
        let before = formulas.steps.len();
        assert_eq!(a, formulas.add(&Dim::parse("3 + floor((N + 1)/2)")));
        formulas.add(&Dim::parse("floor((N + 1)/2)"));
        assert_eq!(formulas.steps.len(), before);
    }

    #[test]
    fn formulas_without_a_number_are_none() {
        let mut formulas = Formulas::new(["N", "M"]);
        assert_eq!(formulas.add(&Dim::Unknown), None);
        assert_eq!(formulas.add(&Dim::parse("N + K")), None);
        for (text, sizes) in [
            ("floor(N/M)", [1, 0]),
            ("mod(N, M)", [1, 0]),
            ("N*M", [1 << 40, 1 << 40]),
            ("N + M", [i64::MAX, 1]),
            ("broadcast(N, M)", [2, 3]),
        ] {
            let mut formulas = Formulas::new(["N", "M"]);
            formulas.add(&Dim::parse(text)).expect("only these symbols");
            assert!(formulas.compute(&sizes).is_none(), "{text} for {sizes:?}");
        }
    }
}
