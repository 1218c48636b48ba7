//! Property: any bytes are a value of a type or an error, and a value that was read is equal after
//! a round trip through its file.
//!
//! The first byte chooses the type, the rest is the file.

use sardonyx_model::{Type, read_value, write_value};
use sardonyx_tensor::{Buffer, DataType};

fn list_types() -> Vec<Type> {
    let tensor = || Type::unranked(DataType::Float);
    let sequence = || Type::Sequence(Box::new(tensor()));
    let Type::Tensor(sparse) = tensor() else {
        return Vec::new();
    };
    let sparse = Type::SparseTensor(sparse);
    vec![
        tensor(),
        sparse.clone(),
        sequence(),
        Type::Sequence(Box::new(sequence())),
        Type::Sequence(Box::new(Type::Optional(Box::new(tensor())))),
        Type::Sequence(Box::new(sparse)),
        Type::Map(DataType::Int64, Box::new(tensor())),
        Type::Map(DataType::Uint8, Box::new(tensor())),
        Type::Map(DataType::String, Box::new(sequence())),
        Type::Sequence(Box::new(Type::Map(DataType::Int64, Box::new(tensor())))),
        Type::Optional(Box::new(tensor())),
        Type::Optional(Box::new(sequence())),
        Type::Optional(Box::new(Type::Optional(Box::new(tensor())))),
        Type::Opaque { domain: String::new(), name: "t".to_string() },
    ]
}

/// Reads the bytes as a value and checks the round trip.
pub(crate) fn check(input: &[u8]) {
    thread_local! {
        static TYPES: Vec<Type> = list_types();
    }
    let Some((which, bytes)) = input.split_first() else {
        return;
    };
    TYPES.with(|types| check_type(&types[*which as usize % types.len()], bytes));
}

fn check_type(ty: &Type, bytes: &[u8]) {
    match read_value(Buffer::from_vec(bytes.to_vec()), ty) {
        Ok(value) => {
            let file = write_value(&value, "x").expect("what a file held has a form in one");
            let again = read_value(Buffer::from_vec(file.clone()), ty);
            // Compared by bits, so that NaN equals NaN.
            assert!(again.as_ref() == Ok(&value), "{value:?} became {again:?}");
            assert!(Ok(file) == write_value(&value, "x"));
        }
        Err(error) => assert!(!error.is_empty()),
    }
}
