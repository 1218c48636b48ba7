//! Sums of sizes, some of which are unknown.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use sardonyx_model::Dim;

/// Assumed size of every symbol when formulas are compared.
pub const ASSUMED_SIZE: i64 = 1024;

/// Sum with unknown summands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sum {
    /// Sum of the known summands; unknown if it became too large to represent.
    pub known: Dim,
    /// Number of unknown summands.
    pub missing: usize,
}

impl Default for Sum {
    fn default() -> Self {
        Dim::Known(0).into()
    }
}

impl From<Dim> for Sum {
    fn from(size: Dim) -> Self {
        match size {
            Dim::Unknown => Sum { known: Dim::Known(0), missing: 1 },
            known => Sum { known, missing: 0 },
        }
    }
}

impl Sum {
    /// Multiplies the sum by a number of runs.
    pub fn times(&self, runs: &Dim) -> Sum {
        match runs {
            Dim::Known(1) => self.clone(),
            Dim::Known(0) => Sum::default(),
            runs => Sum { known: self.known.mul(runs), missing: self.missing },
        }
    }
}

/// Accumulator of a sum. Counts equal formulas and adds them at the end: a model with many nodes
/// has few different formulas, which are slow to add.
#[derive(Debug, Default)]
pub(super) struct Adder {
    number: i128,
    formulas: BTreeMap<Dim, i64>,
    missing: usize,
    is_lost: bool,
}

impl Adder {
    pub(super) fn add(&mut self, sum: &Sum) {
        self.missing = self.missing.saturating_add(sum.missing);
        match &sum.known {
            Dim::Known(number) => self.number += i128::from(*number),
            Dim::Unknown => self.is_lost = true,
            formula => *self.formulas.entry(formula.clone()).or_insert(0) += 1,
        }
    }

    pub(super) fn finish(self) -> Sum {
        let number = i64::try_from(self.number).map_or(Dim::Unknown, Dim::Known);
        let number = if self.is_lost { Dim::Unknown } else { number };
        let formulas = self.formulas.iter();
        Sum {
            known: formulas
                .fold(number, |sum, (formula, times)| sum.add(&formula.mul(&Dim::Known(*times)))),
            missing: self.missing,
        }
    }
}

/// Cache of sizes with [`ASSUMED_SIZE`] for every symbol.
#[derive(Debug, Default)]
pub(super) struct Assumed(HashMap<Dim, i64>);

impl Assumed {
    pub(super) fn size(&mut self, dim: &Dim) -> i128 {
        let Dim::Expr(_) = dim else {
            return at_assumed_sizes(dim).into();
        };
        if let Some(size) = self.0.get(dim) {
            return (*size).into();
        }
        let size = at_assumed_sizes(dim);
        self.0.insert(dim.clone(), size);
        size.into()
    }
}

/// Returns a size with [`ASSUMED_SIZE`] for every symbol: 0 if it is unknown, and `i64::MAX` if it
/// is too large.
pub fn at_assumed_sizes(dim: &Dim) -> i64 {
    match dim {
        Dim::Known(size) => *size,
        Dim::Unknown => 0,
        formula => {
            let number = formula.substitute(&|_| Some(Dim::Known(ASSUMED_SIZE)));
            number.known().unwrap_or(i64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_formulas_are_counted() {
        let mut adder = Adder::default();
        for _ in 0..100_000 {
            adder.add(&Dim::symbol("N").into());
        }
        adder.add(&Dim::Known(7).into());
        adder.add(&Dim::Unknown.into());
        let sum = adder.finish();
        assert_eq!(sum.known.to_string(), "100000*N + 7");
        assert_eq!(sum.missing, 1);
    }

    #[test]
    fn too_large_a_sum_is_unknown() {
        let mut adder = Adder::default();
        adder.add(&Dim::Known(i64::MAX).into());
        adder.add(&Dim::Known(i64::MAX).into());
        assert!(adder.finish().known.is_unknown());
        let mut adder = Adder::default();
        for index in 0..100 {
            adder.add(&Dim::symbol(&format!("s{index}")).into());
        }
        assert!(adder.finish().known.is_unknown());
    }
}
