//! Dimensions as a list of operations, to be computed for many sets of sizes.
//!
//! Replacing symbols in expressions gives an expression again, with everything that keeps those in
//! normal form. Where all symbols become numbers, and often, a list that is walked front to back
//! says the same in far less time.

use std::collections::HashMap;

use super::{Atom, Dim, floor_div, floor_rem};

/// Expressions over some symbols, each part of them computed once.
#[derive(Debug, Default)]
pub struct Formulas {
    symbols: usize,
    steps: Vec<Step>,
    numbers_of: HashMap<Dim, Formula>,
    numbers_of_steps: HashMap<Step, Formula>,
}

/// The number of an expression in [`Formulas`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Formula(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    /// What is given for a symbol.
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
    /// None yet, over these symbols.
    pub fn over<'s>(symbols: impl IntoIterator<Item = &'s str>) -> Formulas {
        let mut formulas = Formulas::default();
        for symbol in symbols {
            let formula = formulas.step(Step::Symbol(formulas.symbols as u32));
            formulas.numbers_of.insert(Dim::symbol(symbol), formula);
            formulas.symbols += 1;
        }
        formulas
    }

    /// Adds an expression. `None` if it is unknown, or has a symbol that is none of these.
    pub fn add(&mut self, dim: &Dim) -> Option<Formula> {
        let expr = match dim {
            Dim::Known(number) => return Some(self.step(Step::Number(*number))),
            Dim::Unknown => return None,
            Dim::Expr(expr) => expr,
        };
        if let Some(formula) = self.numbers_of.get(dim) {
            return Some(*formula);
        }
        let mut sum = None;
        for (product, factor) in &expr.terms {
            let mut term =
                (product.is_empty() || *factor != 1).then(|| self.step(Step::Number(*factor)));
            for atom in product {
                let atom = self.atom(atom)?;
                term = Some(match term {
                    Some(term) => self.step(Step::Product(term, atom)),
                    None => atom,
                });
            }
            sum = match (sum, term) {
                (Some(sum), Some(term)) => Some(self.step(Step::Sum(sum, term))),
                (sum, term) => sum.or(term),
            };
        }
        self.numbers_of.insert(dim.clone(), sum?);
        sum
    }

    fn atom(&mut self, atom: &Atom) -> Option<Formula> {
        let (step, a, b): (fn(Formula, Formula) -> Step, _, _) = match atom {
            Atom::Symbol(name) => return self.numbers_of.get(&Dim::symbol(name)).copied(),
            Atom::FloorDiv(a, b) => (Step::FloorDiv, a, b),
            Atom::Mod(a, b) => (Step::Mod, a, b),
            Atom::Max(a, b) => (Step::Max, a, b),
            Atom::Min(a, b) => (Step::Min, a, b),
            Atom::Broadcast(a, b) => (Step::Broadcast, a, b),
        };
        let (a, b) = (self.add(a)?, self.add(b)?);
        Some(self.step(step(a, b)))
    }

    fn step(&mut self, step: Step) -> Formula {
        // Every part of every expression is in memory, so 32 bits count them.
        let next = Formula(self.steps.len() as u32);
        *self.numbers_of_steps.entry(step).or_insert_with(|| {
            self.steps.push(step);
            next
        })
    }

    /// The number of an expression without symbols.
    pub fn constant(&self, formula: Formula) -> Option<i64> {
        match self.steps[formula.0 as usize] {
            Step::Number(number) => Some(number),
            _ => None,
        }
    }

    /// All expressions for some sizes, one for each symbol in their order. `None` if one is not a
    /// number: it does not fit 64 bits, divides by 0, or is what two sizes broadcast to that do not
    /// broadcast.
    pub fn compute(&self, sizes: &[i64]) -> Option<Computed> {
        let mut numbers: Vec<i64> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let at = |formula: &Formula| numbers[formula.0 as usize];
            let number = match step {
                Step::Symbol(index) => *sizes.get(*index as usize)?,
                Step::Number(number) => *number,
                Step::Sum(a, b) => at(a).checked_add(at(b))?,
                Step::Product(a, b) => at(a).checked_mul(at(b))?,
                Step::FloorDiv(a, b) => {
                    at(a).checked_div(at(b))?;
                    floor_div(at(a), at(b))
                }
                Step::Mod(a, b) => {
                    at(a).checked_rem(at(b))?;
                    floor_rem(at(a), at(b))
                }
                Step::Max(a, b) => at(a).max(at(b)),
                Step::Min(a, b) => at(a).min(at(b)),
                Step::Broadcast(a, b) => broadcast(at(a), at(b))?,
            };
            numbers.push(number);
        }
        Some(Computed(numbers))
    }
}

/// What two sizes broadcast to, if they do.
fn broadcast(a: i64, b: i64) -> Option<i64> {
    match (a, b) {
        (1, size) | (size, 1) => Some(size),
        _ => (a == b).then_some(a),
    }
}

/// The numbers of [`Formulas`].
#[derive(Debug)]
pub struct Computed(Vec<i64>);

impl Computed {
    /// The number of an expression.
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
        let mut formulas = Formulas::over(["N", "M"]);
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
        let mut formulas = Formulas::over(["N"]);
        let a = formulas.add(&Dim::parse("floor((N + 1)/2) + 3"));
        let before = formulas.steps.len();
        assert_eq!(a, formulas.add(&Dim::parse("3 + floor((N + 1)/2)")));
        formulas.add(&Dim::parse("floor((N + 1)/2)"));
        assert_eq!(formulas.steps.len(), before);
    }

    #[test]
    fn what_is_not_a_number_is_none() {
        let mut formulas = Formulas::over(["N", "M"]);
        assert_eq!(formulas.add(&Dim::Unknown), None);
        assert_eq!(formulas.add(&Dim::parse("N + K")), None);
        for (text, sizes) in [
            ("floor(N/M)", [1, 0]),
            ("mod(N, M)", [1, 0]),
            ("N*M", [1 << 40, 1 << 40]),
            ("N + M", [i64::MAX, 1]),
            ("broadcast(N, M)", [2, 3]),
        ] {
            let mut formulas = Formulas::over(["N", "M"]);
            formulas.add(&Dim::parse(text)).expect("only these symbols");
            assert!(formulas.compute(&sizes).is_none(), "{text} for {sizes:?}");
        }
    }
}
