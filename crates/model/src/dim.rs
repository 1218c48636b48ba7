//! Dimensions: numbers, expressions over symbols, or unknown sizes.
//!
//! An expression is kept in a normal form, a sum of products with integer factors, so that equal
//! expressions are equal values: `N + M` and `M + N` compare equal, `2*N - N` is `N`. A term that
//! is not a polynomial (a division that may have a remainder, a remainder, a maximum) is an atom,
//! which behaves like a symbol. Arithmetic is checked: a result that exceeds 64 bits is unknown,
//! never wrong.
//!
//! Dimensions are never negative, but shape vectors such as the `-1` of a `Reshape` use the same
//! arithmetic, so a [`Dim`] may be negative.

mod formulas;
mod parse;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

pub use formulas::{Computed, Formula, Formulas};

/// Dimension of a shape, or element of a vector of sizes: a number, an expression over symbols, or
/// unknown. Equal expressions compare equal: `N + M` is `M + N`, and `2*N - N` is `N`. A result
/// that exceeds 64 bits, or an expression of more than 64 terms, becomes unknown.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A number. Sizes are at least 0, but elements of vectors, such as the `-1` of a `Reshape`,
    /// may be negative.
    Known(i64),
    /// An expression with at least one symbol, in normal form.
    Expr(Arc<Expr>),
    /// An unknown size. Two unknown dimensions compare equal, but may be different sizes.
    Unknown,
}

/// Sum of products over symbols, in normal form: terms with equal products are joined, and those
/// with the factor 0 removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Expr {
    /// Products, each with its factor. The empty product is the constant.
    terms: BTreeMap<Product, i64>,
}

/// A sorted list of atoms.
type Product = Vec<Atom>;

/// Factor of a product that is not expanded further.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Symbol(Arc<str>),
    /// Quotient rounded down.
    FloorDiv(Dim, Dim),
    /// Remainder of the floor division, with the sign of the divisor.
    Mod(Dim, Dim),
    Max(Dim, Dim),
    Min(Dim, Dim),
    /// Size that two sizes broadcast to: the first unless it is 1, then the second.
    Broadcast(Dim, Dim),
}

impl Atom {
    /// Iterates over the operands of a function; none for a symbol.
    fn operands(&self) -> impl Iterator<Item = &Dim> {
        let (a, b) = match self {
            Atom::Symbol(_) => (None, None),
            Atom::FloorDiv(a, b)
            | Atom::Mod(a, b)
            | Atom::Max(a, b)
            | Atom::Min(a, b)
            | Atom::Broadcast(a, b) => (Some(a), Some(b)),
        };
        a.into_iter().chain(b)
    }

    fn is_never_negative(&self) -> bool {
        match self {
            Atom::Mod(_, divisor) => divisor.is_never_negative(),
            Atom::Max(..) => self.operands().any(Dim::is_never_negative),
            _ => self.operands().all(Dim::is_never_negative),
        }
    }

    fn mentions(&self, symbol: &str) -> bool {
        match self {
            Atom::Symbol(name) => &**name == symbol,
            _ => self.operands().any(|operand| operand.mentions(symbol)),
        }
    }
}

/// Maximum number of terms and of factors of a product. Larger expressions become unknown, as a
/// malicious file could otherwise make products grow exponentially.
const MAX_TERMS: usize = 64;

impl Dim {
    /// Makes a dimension of the symbol `name`, such as `batch`.
    pub fn symbol(name: &str) -> Dim {
        Dim::from_terms([(vec![Atom::Symbol(name.into())], 1)].into())
    }

    /// Returns the number; `None` for expressions and unknown dimensions.
    pub fn known(&self) -> Option<i64> {
        match self {
            Dim::Known(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the number as a size; `None` for expressions, unknown dimensions and negative
    /// numbers.
    pub fn size(&self) -> Option<usize> {
        self.known().and_then(|value| usize::try_from(value).ok())
    }

    /// Whether the dimension is unknown.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Dim::Unknown)
    }

    /// Whether both are equal for all values of the symbols: the same number or the same
    /// expression.
    pub fn surely_equals(&self, other: &Dim) -> bool {
        !self.is_unknown() && self == other
    }

    /// Whether the two differ for all values of the symbols.
    pub fn surely_differs(&self, other: &Dim) -> bool {
        self.sub(other).known().is_some_and(|difference| difference != 0)
    }

    /// Adds two dimensions.
    pub fn add(&self, other: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (self, other) {
            return a.checked_add(*b).map_or(Dim::Unknown, Dim::Known);
        }
        match (self, other) {
            (Dim::Known(0), sum) | (sum, Dim::Known(0)) => return sum.clone(),
            _ => {}
        }
        let (Some(mut terms), Some(more)) = (self.terms(), other.terms()) else {
            return Dim::Unknown;
        };
        for (product, factor) in more {
            let sum = terms.get(&product).copied().unwrap_or(0).checked_add(factor);
            match sum {
                Some(sum) => terms.insert(product, sum),
                None => return Dim::Unknown,
            };
        }
        Dim::from_terms(terms)
    }

    /// Subtracts `other` from this dimension.
    pub fn sub(&self, other: &Dim) -> Dim {
        self.add(&other.mul(&Dim::Known(-1)))
    }

    /// Multiplies two dimensions.
    pub fn mul(&self, other: &Dim) -> Dim {
        // Zero times anything is zero, even times an unknown size.
        if self.known() == Some(0) || other.known() == Some(0) {
            return Dim::Known(0);
        }
        if let (Dim::Known(a), Dim::Known(b)) = (self, other) {
            return a.checked_mul(*b).map_or(Dim::Unknown, Dim::Known);
        }
        match (self, other) {
            (Dim::Known(1), product) | (product, Dim::Known(1)) => return product.clone(),
            (Dim::Known(factor), Dim::Expr(expr)) | (Dim::Expr(expr), Dim::Known(factor)) => {
                return expr.times(*factor);
            }
            _ => {}
        }
        let (Some(left), Some(right)) = (self.terms(), other.terms()) else {
            return Dim::Unknown;
        };
        let mut terms = BTreeMap::new();
        for (a, x) in &left {
            for (b, y) in &right {
                let mut product: Product = a.iter().chain(b).cloned().collect();
                product.sort();
                let sum = x
                    .checked_mul(*y)
                    .and_then(|xy| terms.get(&product).copied().unwrap_or(0i64).checked_add(xy));
                match sum {
                    Some(sum) => terms.insert(product, sum),
                    None => return Dim::Unknown,
                };
            }
        }
        Dim::from_terms(terms)
    }

    /// Divides by `divisor` and rounds down. Unknown if `divisor` is 0.
    pub fn floor_div(&self, divisor: &Dim) -> Dim {
        match (self, divisor) {
            (_, Dim::Known(0)) | (Dim::Unknown, _) | (_, Dim::Unknown) => Dim::Unknown,
            (_, Dim::Known(1)) => self.clone(),
            (Dim::Known(a), Dim::Known(b)) => {
                a.checked_div_euclid(*b).map_or(Dim::Unknown, |_| Dim::Known(floor_div(*a, *b)))
            }
            _ => match self.exact_div(divisor).or_else(|| self.quotient_of_multiples(divisor)) {
                Some(quotient) => quotient,
                None => Dim::atom(Atom::FloorDiv(self.clone(), divisor.clone())),
            },
        }
    }

    /// Computes the rounded-down quotient of two multiples of one expression, such as `3*N + 3` and
    /// `2*N + 2`.
    fn quotient_of_multiples(&self, divisor: &Dim) -> Option<Dim> {
        let (Dim::Expr(whole), Dim::Expr(part)) = (self, divisor) else { return None };
        let (of_whole, of_part) = (whole.common_factor()?, part.common_factor()?);
        if of_part == 1 {
            return None;
        }
        let [of_whole, of_part] = [of_whole, of_part].map(Dim::Known);
        let quotient = self.exact_div(&of_whole)?.exact_div(&divisor.exact_div(&of_part)?)?;
        Some(quotient.mul(&of_whole).floor_div(&of_part))
    }

    /// Divides by `divisor` and rounds up. Unknown if `divisor` is 0.
    pub fn ceil_div(&self, divisor: &Dim) -> Dim {
        Dim::Known(0).sub(&Dim::Known(0).sub(self).floor_div(divisor))
    }

    /// Computes the remainder of [`floor_div`](Dim::floor_div), which has the sign of the divisor.
    pub fn rem(&self, divisor: &Dim) -> Dim {
        match (self, divisor) {
            (_, Dim::Known(0)) | (Dim::Unknown, _) | (_, Dim::Unknown) => Dim::Unknown,
            (Dim::Known(a), Dim::Known(b)) => {
                a.checked_div(*b).map_or(Dim::Unknown, |_| Dim::Known(floor_rem(*a, *b)))
            }
            _ if self.exact_div(divisor).is_some() => Dim::Known(0),
            _ => Dim::atom(Atom::Mod(self.clone(), divisor.clone())),
        }
    }

    /// Divides by `divisor`; `None` unless the remainder is 0 for all values of the symbols.
    pub fn exact_div(&self, divisor: &Dim) -> Option<Dim> {
        if let (Dim::Known(value), Dim::Known(divisor)) = (self, divisor) {
            let is_exact = value.checked_rem(*divisor)? == 0;
            return is_exact.then(|| Dim::Known(value / divisor));
        }
        let (terms, divisor) = (self.terms()?, divisor.terms()?);
        // A single product divides term by term.
        let [(atoms, factor)] = divisor.iter().collect::<Vec<_>>()[..] else {
            return divide_sums(terms, &divisor);
        };
        let mut quotient = BTreeMap::new();
        for (product, value) in terms {
            if *factor == 0 || value.checked_rem(*factor)? != 0 {
                return None;
            }
            let mut rest = product;
            for atom in atoms {
                let at = rest.iter().position(|a| a == atom)?;
                rest.remove(at);
            }
            quotient.insert(rest, value.checked_div(*factor)?);
        }
        Some(Dim::from_terms(quotient))
    }

    /// Computes the size to which two sizes broadcast, given that they are equal or one of them is
    /// 1.
    pub fn broadcast(&self, other: &Dim) -> Dim {
        match (self, other) {
            (Dim::Known(1), other) => other.clone(),
            // A number other than 1 determines the result, whatever the other size is.
            (Dim::Known(_), _) => self.clone(),
            (_, Dim::Known(1)) => self.clone(),
            (_, Dim::Known(_)) => other.clone(),
            _ if self.surely_equals(other) => self.clone(),
            (Dim::Unknown, _) | (_, Dim::Unknown) => Dim::Unknown,
            _ => {
                let mut sizes = BTreeSet::new();
                self.collect_broadcast(&mut sizes);
                other.collect_broadcast(&mut sizes);
                let needed = sizes.iter().filter(|size| !size.is_cut_of_one(&sizes));
                let together = needed.cloned().reduce(|all, size| {
                    if size.is_unknown() || all.is_unknown() {
                        return Dim::Unknown;
                    }
                    Dim::atom(Atom::Broadcast(all, size))
                });
                together.unwrap_or(Dim::Unknown)
            }
        }
    }

    /// Collects the sizes that broadcast to this dimension: the operands if it is a broadcast,
    /// otherwise itself.
    fn collect_broadcast(&self, sizes: &mut BTreeSet<Dim>) {
        match self.lone_atom() {
            Some(Atom::Broadcast(a, b)) => {
                a.collect_broadcast(sizes);
                b.collect_broadcast(sizes);
            }
            _ => {
                sizes.insert(self.clone());
            }
        }
    }

    /// Whether this is the minimum of one of `sizes` and a number of 2 or more. If the two
    /// broadcast, the number is not the smaller one, so the minimum is redundant.
    fn is_cut_of_one(&self, sizes: &BTreeSet<Dim>) -> bool {
        match self.lone_atom() {
            Some(Atom::Min(a, b)) => [(a, b), (b, a)].iter().any(|(number, size)| {
                number.known().is_some_and(|number| number >= 2) && sizes.contains(size)
            }),
            _ => false,
        }
    }

    /// Returns the atom if the dimension consists of a single atom.
    fn lone_atom(&self) -> Option<&Atom> {
        let Dim::Expr(expr) = self else { return None };
        let mut terms = expr.terms.iter();
        match (terms.next(), terms.next()) {
            (Some((product, 1)), None) => match &product[..] {
                [atom] => Some(atom),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the dimension is at least 0 for all values of the symbols, which are sizes and so
    /// never negative.
    pub fn is_never_negative(&self) -> bool {
        match self {
            Dim::Known(number) => *number >= 0,
            Dim::Unknown => false,
            Dim::Expr(expr) => expr.terms.iter().all(|(product, factor)| {
                *factor >= 0 && product.iter().all(Atom::is_never_negative)
            }),
        }
    }

    /// Returns the symbols in the dimension, each once.
    pub fn symbols(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        self.collect_symbols(&mut found);
        found
    }

    fn collect_symbols(&self, found: &mut BTreeSet<String>) {
        let Dim::Expr(expr) = self else { return };
        for atom in expr.terms.keys().flatten() {
            if let Atom::Symbol(name) = atom {
                found.insert(name.to_string());
            }
            for operand in atom.operands() {
                operand.collect_symbols(found);
            }
        }
    }

    /// Whether `symbol` occurs in the dimension.
    fn mentions(&self, symbol: &str) -> bool {
        let Dim::Expr(expr) = self else { return false };
        let mut atoms = expr.terms.keys().flatten();
        atoms.any(|atom| atom.mentions(symbol))
    }

    /// Computes the maximum of the two.
    pub fn larger(&self, other: &Dim) -> Dim {
        self.extreme(other, Atom::Max, |difference| difference >= 0)
    }

    /// Computes the minimum of the two.
    pub fn smaller(&self, other: &Dim) -> Dim {
        self.extreme(other, Atom::Min, |difference| difference <= 0)
    }

    fn extreme(&self, other: &Dim, atom: fn(Dim, Dim) -> Atom, takes_self: fn(i64) -> bool) -> Dim {
        let difference = self.sub(other);
        match &difference {
            Dim::Known(difference) if takes_self(*difference) => self.clone(),
            Dim::Known(_) => other.clone(),
            Dim::Unknown => Dim::Unknown,
            // The order may be certain although the difference is not.
            _ if difference.is_never_negative() => pick(takes_self(1), self, other),
            _ if other.sub(self).is_never_negative() => pick(takes_self(-1), self, other),
            Dim::Expr(_) => {
                let (a, b) = if self <= other { (self, other) } else { (other, self) };
                Dim::atom(atom(a.clone(), b.clone()))
            }
        }
    }

    /// Replaces each symbol by the dimension that `value` returns for its name. Symbols for which
    /// it returns `None` stay.
    pub fn substitute(&self, value: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        let Dim::Expr(expr) = self else {
            return self.clone();
        };
        let mut sum = Dim::Known(0);
        for (product, factor) in &expr.terms {
            let mut term = Dim::Known(*factor);
            for atom in product {
                term = term.mul(&match atom {
                    Atom::Symbol(name) => value(name).unwrap_or_else(|| Dim::symbol(name)),
                    Atom::FloorDiv(a, b) => a.substitute(value).floor_div(&b.substitute(value)),
                    Atom::Mod(a, b) => a.substitute(value).rem(&b.substitute(value)),
                    Atom::Max(a, b) => a.substitute(value).larger(&b.substitute(value)),
                    Atom::Min(a, b) => a.substitute(value).smaller(&b.substitute(value)),
                    Atom::Broadcast(a, b) => a.substitute(value).broadcast(&b.substitute(value)),
                });
            }
            sum = sum.add(&term);
        }
        sum
    }

    /// Solves `self == 0` for a symbol that occurs exactly once, with the factor 1 or -1. Returns
    /// the symbol and its solution. Among several such symbols, chooses one for which `preferred`
    /// is true, and the last one in alphabetical order.
    pub fn solve_for_zero(&self, preferred: &dyn Fn(&str) -> bool) -> Option<(String, Dim)> {
        let Dim::Expr(expr) = self else { return None };
        let candidates = expr.terms.iter().filter_map(|(product, factor)| {
            let [Atom::Symbol(name)] = &product[..] else {
                return None;
            };
            let once = expr
                .terms
                .keys()
                .filter(|other| *other != product)
                .all(|other| !other.iter().any(|atom| atom.mentions(name)));
            (once && factor.abs() == 1).then_some((name, *factor))
        });
        let (name, factor) = candidates.max_by_key(|(name, _)| (preferred(name), *name))?;
        let rest = self.sub(&Dim::symbol(name).mul(&Dim::Known(factor)));
        Some((name.to_string(), rest.mul(&Dim::Known(-factor))))
    }

    /// Returns the name if the dimension is a single symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        match self.lone_atom()? {
            Atom::Symbol(name) => Some(name),
            _ => None,
        }
    }

    fn atom(atom: Atom) -> Dim {
        // Atoms nested in atoms are useless, and their size must stay bounded.
        let dim = Dim::from_terms([(vec![atom], 1)].into());
        if dim.weight() > MAX_TERMS { Dim::Unknown } else { dim }
    }

    /// Counts the symbols and numbers in the expression, including those in nested operands.
    fn weight(&self) -> usize {
        let Dim::Expr(expr) = self else { return 1 };
        expr.terms
            .keys()
            .flatten()
            .map(|atom| match atom {
                Atom::Symbol(_) => 1,
                _ => atom.operands().map(Dim::weight).sum(),
            })
            .sum()
    }

    fn terms(&self) -> Option<BTreeMap<Product, i64>> {
        match self {
            Dim::Known(value) => Some([(Vec::new(), *value)].into()),
            Dim::Expr(expr) => Some(expr.terms.clone()),
            Dim::Unknown => None,
        }
    }

    fn from_terms(mut terms: BTreeMap<Product, i64>) -> Dim {
        terms.retain(|_, factor| *factor != 0);
        if terms.len() > MAX_TERMS || terms.keys().any(|product| product.len() > MAX_TERMS) {
            return Dim::Unknown;
        }
        match terms.iter().next() {
            None => Dim::Known(0),
            Some((product, factor)) if product.is_empty() && terms.len() == 1 => {
                Dim::Known(*factor)
            }
            Some(_) => Dim::Expr(Arc::new(Expr { terms })),
        }
    }
}

/// Divides two sums, if the division certainly leaves no remainder.
fn divide_sums(mut rest: BTreeMap<Product, i64>, divisor: &BTreeMap<Product, i64>) -> Option<Dim> {
    // Among products with the most atoms, the largest in this order leads. Multiplying by further
    // atoms preserves the order.
    let leading = |terms: &BTreeMap<Product, i64>| {
        let found = terms.iter().max_by_key(|(product, _)| (product.len(), *product));
        found.map(|(product, factor)| (product.clone(), *factor))
    };
    let (first, factor) = leading(divisor)?;
    let mut quotient = BTreeMap::new();
    while let Some((mut product, value)) = leading(&rest) {
        if quotient.len() >= MAX_TERMS || value.checked_rem(factor)? != 0 {
            return None;
        }
        let by = value.checked_div(factor)?;
        for atom in &first {
            let at = product.iter().position(|found| found == atom)?;
            product.remove(at);
        }
        for (other, factor) in divisor {
            let mut taken: Product = product.iter().chain(other).cloned().collect();
            taken.sort();
            let left = rest.get(&taken).copied().unwrap_or(0);
            match left.checked_sub(by.checked_mul(*factor)?)? {
                0 => rest.remove(&taken),
                left => rest.insert(taken, left),
            };
        }
        quotient.insert(product, by);
    }
    Some(Dim::from_terms(quotient))
}

impl Expr {
    /// Multiplies the expression by a factor other than 0.
    fn times(&self, factor: i64) -> Dim {
        let mut terms = self.terms.clone();
        for own in terms.values_mut() {
            match own.checked_mul(factor) {
                Some(product) => *own = product,
                None => return Dim::Unknown,
            }
        }
        Dim::Expr(Arc::new(Expr { terms }))
    }

    /// Returns the largest number that divides every term.
    fn common_factor(&self) -> Option<i64> {
        let factors = self.terms.values().map(|factor| factor.unsigned_abs());
        i64::try_from(factors.fold(0, greatest_common_divisor)).ok()
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn pick(first: bool, a: &Dim, b: &Dim) -> Dim {
    if first { a.clone() } else { b.clone() }
}

fn floor_div(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

fn floor_rem(a: i64, b: i64) -> i64 {
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::Known(value)
    }
}

impl From<i32> for Dim {
    fn from(value: i32) -> Dim {
        Dim::Known(value.into())
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Dim {
        i64::try_from(value).map_or(Dim::Unknown, Dim::Known)
    }
}

/// Prints the dimension in the notation that [`Dim::parse`] reads: `2*N + 5`, `floor((N + 1)/2)`,
/// `ceil(N/2)`, `mod(N, 4)`, `max(N, M)`.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(value) => write!(f, "{value}"),
            Dim::Unknown => f.write_str("?"),
            Dim::Expr(expr) => expr.fmt(f),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Formats a size in parentheses, unless it is a name or a number without a sign.
struct Operand<'a>(&'a Dim);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.known() {
            Some(0..) => self.0.fmt(f),
            None if self.0.as_symbol().is_some() => self.0.fmt(f),
            _ => write!(f, "({})", self.0),
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The constant sorts first as the empty product, but reads better last.
        let products = self.terms.iter().filter(|(product, _)| !product.is_empty());
        let constant = self.terms.iter().filter(|(product, _)| product.is_empty());
        for (index, (product, factor)) in products.chain(constant).enumerate() {
            f.write_str(match (index, *factor < 0) {
                (0, true) => "-",
                (0, false) => "",
                (_, true) => " - ",
                (_, false) => " + ",
            })?;
            let magnitude = factor.unsigned_abs();
            if product.is_empty() {
                write!(f, "{magnitude}")?;
            } else if magnitude != 1 {
                write!(f, "{magnitude}*")?;
            }
            for (index, atom) in product.iter().enumerate() {
                if index > 0 {
                    f.write_str("*")?;
                }
                match atom {
                    Atom::Symbol(name) => f.write_str(name)?,
                    Atom::FloorDiv(a, b) => write!(f, "floor({}/{})", Operand(a), Operand(b))?,
                    Atom::Mod(a, b) => write!(f, "mod({a}, {b})")?,
                    Atom::Max(a, b) => write!(f, "max({a}, {b})")?,
                    Atom::Min(a, b) => write!(f, "min({a}, {b})")?,
                    Atom::Broadcast(a, b) => write!(f, "broadcast({a}, {b})")?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n() -> Dim {
        Dim::symbol("N")
    }

    #[test]
    fn equal_expressions_are_equal_values() {
        let m = Dim::symbol("M");
        assert_eq!(n().add(&m), m.add(&n()));
        assert_eq!(n().add(&n()).sub(&n()), n());
        assert_eq!(n().sub(&n()), Dim::Known(0));
        assert_eq!(n().add(&5.into()).mul(&2.into()).to_string(), "2*N + 10");
        assert_eq!(n().mul(&m).exact_div(&m), Some(n()));
        assert_eq!(n().mul(&6i64.into()).floor_div(&3i64.into()).to_string(), "2*N");
        assert_eq!(n().add(&1i64.into()).floor_div(&2i64.into()).to_string(), "floor((N + 1)/2)");
        assert!(n().surely_differs(&n().add(&1i64.into())));
        assert!(!Dim::Unknown.surely_equals(&Dim::Unknown)); // SHAPE-05-
    }

    #[test]
    fn numbers_put_in_give_numbers() {
        let size = n()
            .sub(&3i64.into())
            .floor_div(&2i64.into())
            .add(&1i64.into())
            .larger(&n().rem(&4i64.into()));
        for value in [0, 3, 4, 11, 1 << 40] {
            let expected = ((value - 3i64).div_euclid(2) + 1).max(value.rem_euclid(4));
            assert_eq!(
                size.substitute(&|_| Some(value.into())),
                Dim::Known(expected),
                "N = {value}"
            );
        }
        assert_eq!(n().ceil_div(&4i64.into()).substitute(&|_| Some(9i64.into())), Dim::Known(3));
    }

    #[test]
    fn sums_divide_where_nothing_is_left() {
        let rows = [
            ("floor((8210*k + 8210)/(k + 1))", "8210"),
            ("floor((N*N + 2*N + 1)/(N + 1))", "N + 1"),
            ("floor((N*N - M*M)/(N - M))", "N + M"),
            ("floor((N*K*L + K*L*L + N + L)/(N + L))", "K*L + 1"),
            ("floor((3*N + 3)/(2*N + 2))", "1"),
            ("floor((2*N + 2)/(4*N + 4))", "0"),
            ("floor((3*N*K + 3*K)/(2*N + 2))", "floor(3*K/2)"),
            ("mod(6*N + 6, N + 1)", "0"),
            ("floor((N + 2)/(N + 1))", "floor((N + 2)/(N + 1))"),
            ("floor((2*N + 3)/(2*N + 2))", "floor((2*N + 3)/(2*N + 2))"),
        ];
        for (text, expected) in rows {
            assert_eq!(Dim::parse(text), Dim::parse(expected), "{text}");
        }
        assert_eq!(Dim::parse("floor((5 - 5*N)/(2*N - 2))"), Dim::Known(-3));
        // Takes as many steps as there are terms, with factors that exceed 64 bits.
        let power =
            |base: &Dim, times: usize| (0..times).fold(Dim::Known(1), |all, _| all.mul(base));
        let sum = n().add(&Dim::Known(i64::MAX));
        assert_eq!(power(&n(), 40).exact_div(&sum), None);
        assert_eq!(
            power(&n().add(&1.into()), 20).exact_div(&power(&n().add(&1.into()), 19)),
            Some(n().add(&1.into()))
        );
    }

    /// Divides random products by one of their factors, and by sums that leave a remainder.
    #[test]
    fn quotients_of_random_sums_are_those_of_numbers() {
        let mut state = 7u64;
        let mut draw = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let names = ["K", "M", "N"];
        let mut exact = 0;
        for _ in 0..2000 {
            let mut sum = |terms: u64| {
                (0..terms).fold(Dim::Known(draw(4) as i64), |sum, _| {
                    let factor = Dim::Known(draw(9) as i64 - 3);
                    let atoms = (0..1 + draw(2)).map(|_| Dim::symbol(names[draw(3) as usize]));
                    sum.add(&atoms.fold(factor, |product, atom| product.mul(&atom)))
                })
            };
            let (a, b) = (sum(2), sum(2));
            let whole = if a.symbols().len() % 2 == 0 { a.mul(&b) } else { a.mul(&b).add(&sum(1)) };
            let quotient = whole.floor_div(&b);
            exact += usize::from(quotient == a);
            for numbers in [[1, 2, 3], [5, 1, 4], [2, 7, 6], [0, 3, 1]] {
                let value = |name: &str| {
                    let at = names.iter().position(|known| *known == name)?;
                    Some(Dim::Known(numbers[at]))
                };
                let (x, y) = (whole.substitute(&value), b.substitute(&value));
                if y != Dim::Known(0) {
                    assert_eq!(quotient.substitute(&value), x.floor_div(&y), "{whole} / {b}");
                }
            }
        }
        assert!(exact > 500, "{exact}");
    }

    #[test]
    fn extremes_and_broadcasts_are_simple_where_they_can_be() {
        let rows = [
            ("max(0, N + M)", "M + N"),
            ("max(N + 1, N)", "N + 1"),
            ("min(N, 0)", "0"),
            ("max(0, N - M)", "max(0, N - M)"),
            ("broadcast(N, broadcast(M, N))", "broadcast(M, N)"),
            ("broadcast(broadcast(K, N), broadcast(M, K))", "broadcast(K, broadcast(M, N))"),
            // A size above 512 would not broadcast with the minimum.
            ("broadcast(N, min(512, N))", "N"),
            ("broadcast(N, min(1, N))", "broadcast(N, min(1, N))"),
            ("broadcast(N, 7)", "7"),
        ];
        for (text, expected) in rows {
            assert_eq!(Dim::parse(text), Dim::parse(expected), "{text}");
        }
    }

    #[test]
    fn nothing_overflows_and_nothing_explodes() {
        let huge = Dim::Known(i64::MAX);
        assert_eq!(huge.add(&1i64.into()), Dim::Unknown);
        assert_eq!(huge.mul(&n()).mul(&2i64.into()), Dim::Unknown);
        assert_eq!(Dim::Known(i64::MIN).floor_div(&(-1i64).into()), Dim::Unknown);
        assert_eq!(n().floor_div(&0i64.into()), Dim::Unknown);
        assert_eq!(Dim::Known(i64::MIN).rem(&5i64.into()), Dim::Known(2));
        let mut sum = n();
        for _ in 0..10 {
            sum = sum.add(&1i64.into()).mul(&sum);
        }
        assert_eq!(sum, Dim::Unknown);
        let mut nested = n();
        for index in 0..1_000 {
            nested = nested.add(&index.into()).floor_div(&3i64.into());
        }
        assert_eq!(nested, Dim::Unknown);
    }
}
