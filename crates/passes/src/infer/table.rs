//! Types of values. Equal types are kept once: a model has many values and few types. A type is
//! known by a number, so that two nodes that are given the same can be told by a few words.

use hashbrown::{DefaultHashBuilder, HashTable};
use sardonyx_model::{Id, Type, ValueId};
use std::hash::BuildHasher;

/// Types that there may be beyond one for each value before unused ones are removed.
const SLACK: usize = 1024;

/// Types by value.
#[derive(Debug, Clone, Default)]
pub(super) struct TypeTable {
    /// Number of the type of each value, 0 if it is not known.
    numbers: Vec<u32>,
    /// Types, from number 1 on. Walks through the same graph again leave some that no value has.
    types: Vec<Type>,
    /// Numbers by type.
    index: HashTable<Indexed>,
    hasher: DefaultHashBuilder,
    /// Number of types from which on unused ones are removed.
    most: usize,
}

/// The number of a type, with the hash of the type: to compute it again takes longer.
#[derive(Debug, Clone, Copy)]
struct Indexed {
    hash: u64,
    number: u32,
}

impl TypeTable {
    /// Makes a table for `values` values of which nothing is known.
    pub(super) fn new(values: usize) -> TypeTable {
        TypeTable { numbers: vec![0; values], most: values + SLACK, ..TypeTable::default() }
    }

    /// The type of a value, as far as it is known.
    pub(super) fn get(&self, value: ValueId) -> Option<&Type> {
        self.of_number(self.number(value))
    }

    /// The type of a value, of which nothing is known afterwards.
    pub(super) fn take(&mut self, value: ValueId) -> Option<Type> {
        let ty = self.get(value).cloned();
        self.set_number(value, 0);
        ty
    }

    /// Says what is known of a value.
    pub(super) fn set(&mut self, value: ValueId, ty: Option<Type>) {
        let number = ty.map_or(0, |ty| self.number_of(ty));
        self.set_number(value, number);
    }

    /// The number of the type of a value; 0 if nothing is known of it. It holds until unused types
    /// are removed.
    #[inline]
    pub(super) fn number(&self, value: ValueId) -> u32 {
        self.numbers.get(value.index()).copied().unwrap_or(0)
    }

    /// Gives a value the type of a number.
    #[inline]
    pub(super) fn set_number(&mut self, value: ValueId, number: u32) {
        self.numbers[value.index()] = number;
    }

    /// The type of a number.
    pub(super) fn of_number(&self, number: u32) -> Option<&Type> {
        self.types.get((number as usize).checked_sub(1)?)
    }

    fn number_of(&mut self, ty: Type) -> u32 {
        let TypeTable { types, index, hasher, .. } = self;
        let hash = hasher.hash_one(&ty);
        let is_same =
            |found: &Indexed| found.hash == hash && types[found.number as usize - 1] == ty;
        if let Some(found) = index.find(hash, is_same) {
            return found.number;
        }
        let number = types.len() as u32 + 1;
        types.push(ty);
        index.insert_unique(hash, Indexed { hash, number }, |found| found.hash);
        number
    }

    /// Whether unused types should be removed: memory grows with the values and not with the walks
    /// through them.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.types.len() > self.most
    }

    /// Removes types that no value has. Numbers change.
    pub(super) fn remove_unused(&mut self) {
        let mut new: Vec<u32> = vec![0; self.types.len() + 1];
        let mut types = Vec::new();
        for number in self.numbers.iter_mut().filter(|number| **number != 0) {
            let old = *number as usize;
            if new[old] == 0 {
                types.push(self.types[old - 1].clone());
                new[old] = types.len() as u32;
            }
            *number = new[old];
        }
        let TypeTable { index, hasher, .. } = self;
        index.clear();
        for (position, ty) in types.iter().enumerate() {
            let (hash, number) = (hasher.hash_one(ty), position as u32 + 1);
            index.insert_unique(hash, Indexed { hash, number }, |found| found.hash);
        }
        self.most = types.len() + self.numbers.len() + SLACK;
        self.types = types;
    }

    /// Changes types, of all values that have them.
    pub(super) fn change(&mut self, change: impl FnMut(&mut Type)) {
        self.types.iter_mut().for_each(change);
        self.forget_equal();
    }

    /// Lets types that are added be new ones, also if there are equal ones.
    pub(super) fn forget_equal(&mut self) {
        self.index = HashTable::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_tensor::DataType;

    fn vector(size: i64) -> Type {
        Type::tensor(DataType::Float, [size])
    }

    #[test]
    fn equal_types_are_one() {
        let [a, b, c] = [0, 1, 2].map(ValueId::new);
        let mut table = TypeTable::new(3);
        table.set(a, Some(vector(2)));
        table.set(b, Some(vector(3)));
        table.set(c, Some(vector(2)));
        assert_eq!(table.number(a), table.number(c));
        assert_ne!(table.number(a), table.number(b));
        assert_eq!(table.take(a), Some(vector(2)));
        assert_eq!((table.get(a), table.get(c)), (None, Some(&vector(2))));
        assert_eq!(table.get(ValueId::new(9)), None);
        table.change(|ty| *ty = Type::unranked(DataType::Float));
        assert_eq!(table.get(b), Some(&Type::unranked(DataType::Float)));
        table.set(a, Some(vector(2)));
        assert_eq!(table.get(a), Some(&vector(2)));
    }

    #[test]
    fn unused_types_are_removed() {
        let values = [0, 1].map(ValueId::new);
        let mut table = TypeTable::new(2);
        table.set(values[0], Some(vector(-1)));
        for size in 0..10_000 {
            table.set(values[1], Some(vector(size)));
            if table.is_crowded() {
                table.remove_unused();
            }
            assert!(table.types.len() <= 2 * (2 + SLACK));
            assert_eq!(
                values.map(|value| table.get(value).cloned()),
                [-1, size].map(|s| Some(vector(s)))
            );
        }
        table.remove_unused();
        assert_eq!(table.types.len(), 2);
        table.set(values[0], Some(vector(9_999)));
        assert_eq!(table.number(values[0]), table.number(values[1]));
    }
}
