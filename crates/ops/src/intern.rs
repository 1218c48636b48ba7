//! Texts and lists that live as long as the process, for schemas that a program defines.
//!
//! The tables of the standard are constants, so a [`Schema`](crate::Schema) holds `&'static` names
//! and defaults. What a program adds at run time is copied once and never freed. That is fine
//! because it is bounded by what the program itself says: equal items are stored once, so
//! registering the same operators again and again costs nothing, and no model file gets anything in
//! here.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::def::OpDef;
use crate::schema::Schema;

type Table<T> = LazyLock<Mutex<HashSet<&'static T>>>;

fn kept<T: ?Sized + Hash + Eq>(table: &Mutex<HashSet<&'static T>>, item: &T) -> &'static T
where
    Box<T>: for<'a> From<&'a T>,
{
    // A panic elsewhere cannot leave a set half changed.
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    match table.get(item) {
        Some(known) => known,
        None => {
            let item: &'static T = Box::leak(Box::from(item));
            table.insert(item);
            item
        }
    }
}

/// The text, for good.
pub fn text(text: &str) -> &'static str {
    static TEXTS: Table<str> = LazyLock::new(Mutex::default);
    kept(&TEXTS, text)
}

/// A schema of an operator that has no definition, with one that says nothing else, for good.
pub(crate) fn operator(schema: &Schema) -> (&'static OpDef, &'static Schema) {
    type Known = Vec<(&'static OpDef, &'static Schema)>;
    static OPERATORS: Mutex<Known> = Mutex::new(Vec::new());
    let mut operators = OPERATORS.lock().unwrap_or_else(PoisonError::into_inner);
    match operators.iter().find(|(_, known)| *known == schema) {
        Some(known) => *known,
        None => {
            let def = OpDef::new(schema.name).domain(schema.domain).since(schema.since, &[]);
            let added: (&'static OpDef, &'static Schema) =
                (Box::leak(Box::new(def.unknown_cost())), Box::leak(Box::new(schema.clone())));
            operators.push(added);
            added
        }
    }
}

/// The integers, for good.
pub fn ints(values: &[i64]) -> &'static [i64] {
    static INTS: Table<[i64]> = LazyLock::new(Mutex::default);
    kept(&INTS, values)
}

/// The floats, for good, bit for bit.
pub fn floats(values: &[f32]) -> &'static [f32] {
    // Floats are not `Eq`; their bits are, and have the same layout.
    static BITS: Table<[u32]> = LazyLock::new(Mutex::default);
    let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    bytemuck::cast_slice(kept(&BITS, &bits[..]))
}

/// The texts, for good.
pub fn texts(texts: &[&str]) -> &'static [&'static str] {
    static LISTS: Table<[&'static str]> = LazyLock::new(Mutex::default);
    let texts: Vec<&'static str> = texts.iter().map(|item| text(item)).collect();
    kept(&LISTS, &texts[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_items_are_stored_once() {
        assert!(std::ptr::eq(text("a b"), text(&["a", "b"].join(" "))));
        assert!(std::ptr::eq(ints(&[1, 2]), ints(&[1, 2])));
        assert!(std::ptr::eq(texts(&["a", "b"]), texts(&["a", "b"])));
        let odd = [-0.0, f32::from_bits(0x7fc0_1234)];
        assert!(std::ptr::eq(floats(&odd), floats(&odd)));
        assert_eq!(floats(&odd).map_bits(), [0x8000_0000, 0x7fc0_1234]);
        assert_eq!(floats(&[0.0]).map_bits(), [0]);
    }

    trait Bits {
        fn map_bits(&self) -> Vec<u32>;
    }

    impl Bits for [f32] {
        fn map_bits(&self) -> Vec<u32> {
            self.iter().map(|value| value.to_bits()).collect()
        }
    }
}
