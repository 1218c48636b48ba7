//! Types of values. Equal types are stored once: a model has many values and few types. Each type
//! has a number, so that the inputs of two nodes can be compared by a few words.

use hashbrown::{DefaultHashBuilder, HashTable};
use sardonyx_model::{Id, Type, ValueId};
use std::hash::BuildHasher;

/// Number of types beyond one per value at which unused ones are removed.
const SLACK: usize = 1024;

/// Types by value.
#[derive(Debug, Clone, Default)]
pub(super) struct TypeTable {
    /// Number of the type of each value, 0 if it is unknown.
    numbers: Vec<u32>,
    /// Types, from number 1 on. Further walks through a graph leave some unused.
    types: Vec<Type>,
    /// Numbers by type.
    index: HashTable<Indexed>,
    hasher: DefaultHashBuilder,
    /// Number of types at which unused ones are removed.
    most: usize,
}

/// Number of a type, with the hash of the type, since computing it again takes longer.
#[derive(Debug, Clone, Copy)]
struct Indexed {
    hash: u64,
    number: u32,
}

impl TypeTable {
    /// Makes a table for `values` values of unknown type.
    pub(super) fn new(values: usize) -> TypeTable {
        TypeTable { numbers: vec![0; values], most: values + SLACK, ..TypeTable::default() }
    }

    /// Returns the type of a value, as far as it is known.
    pub(super) fn get(&self, value: ValueId) -> Option<&Type> {
        self.type_of_number(self.number(value))
    }

    /// Removes and returns the type of a value.
    pub(super) fn take(&mut self, value: ValueId) -> Option<Type> {
        let ty = self.get(value).cloned();
        self.set_number(value, 0);
        ty
    }

    /// Sets the type of a value.
    pub(super) fn set(&mut self, value: ValueId, ty: Option<Type>) {
        let number = ty.map_or(0, |ty| self.number_of(ty));
        self.set_number(value, number);
    }

    /// Returns the number of a value's type; 0 if it is unknown. Valid until unused types are
    /// removed.
    #[inline]
    pub(super) fn number(&self, value: ValueId) -> u32 {
        self.numbers.get(value.index()).copied().unwrap_or(0)
    }

    /// Sets the type of a value by its number.
    #[inline]
    pub(super) fn set_number(&mut self, value: ValueId, number: u32) {
        self.numbers[value.index()] = number;
    }

    /// Returns the type with a number.
    pub(super) fn type_of_number(&self, number: u32) -> Option<&Type> {
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

    /// Whether unused types should be removed, so that memory grows with the values and not with
    /// the number of walks.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.types.len() > self.most
    }

    /// Removes types without a value. Numbers change.
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

    /// Changes each type for all values that have it.
    pub(super) fn change(&mut self, change: impl FnMut(&mut Type)) {
        self.types.iter_mut().for_each(change);
        self.forget_equal();
    }

    /// Makes types that are added later new ones, even if equal ones exist.
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
