//! Strings and lists that live as long as the process, for schemas that a program defines.
//!
//! The tables of the standard are constants, so a [`Schema`](crate::Schema) holds `&'static` names
//! and defaults. Additions at run time are copied once and never freed. Memory stays bounded by the
//! distinct schemas of the program itself: equal items are stored once, so registering the same
//! operators again costs nothing, and no content of a model file gets here.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::def::OpDef;
use crate::schema::Schema;

type Table<T> = LazyLock<Mutex<HashSet<&'static T>>>;

fn intern<T: ?Sized + Hash + Eq>(table: &Mutex<HashSet<&'static T>>, item: &T) -> &'static T
where
    Box<T>: for<'a> From<&'a T>,
{
    // A panic of another thread cannot leave a set half changed.
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

/// Keeps a string for the life of the process.
pub fn text(text: &str) -> &'static str {
    static TEXTS: Table<str> = LazyLock::new(Mutex::default);
    intern(&TEXTS, text)
}

/// Keeps a schema of an operator without a definition, together with a definition that is otherwise
/// empty, for the life of the process.
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

/// Keeps integers for the life of the process.
pub fn ints(values: &[i64]) -> &'static [i64] {
    static INTS: Table<[i64]> = LazyLock::new(Mutex::default);
    intern(&INTS, values)
}

/// Keeps floats, compared by their bits, for the life of the process.
pub fn floats(values: &[f32]) -> &'static [f32] {
    // Floats are not `Eq`; their bits are, and have the same layout.
    static BITS: Table<[u32]> = LazyLock::new(Mutex::default);
    let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    bytemuck::cast_slice(intern(&BITS, &bits[..]))
}

/// Keeps a list of strings for the life of the process.
pub fn texts(texts: &[&str]) -> &'static [&'static str] {
    static LISTS: Table<[&'static str]> = LazyLock::new(Mutex::default);
    let texts: Vec<&'static str> = texts.iter().map(|item| text(item)).collect();
    intern(&LISTS, &texts[..])
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
