//! Properties that must hold for any bytes, and an engine that searches for bytes that break them.
//!
//! A property is a function of bytes that panics if it does not hold. Each has a file of its own
//! and an entry in [`PROPERTIES`]. The tests of this package check the saved inputs under
//! `fuzz/corpus` and a few thousand mutations of them. The binary checks mutations for a given
//! time, in processes of bounded memory that may hang, overflow their stack or be killed without
//! harm; `--input FILE` checks one file, to examine a failure.
//!
//! The engine is our own instead of libFuzzer so that it needs no nightly compiler and no C. It has
//! no feedback from the program, and makes up for that with knowledge of the format.

// In a test, a panic is the report.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod check;
mod external;
mod infer;
mod json;
mod model_read;
mod notation_read;
mod notation_roundtrip;
mod npy;
mod npz;
mod operators;
mod parts;
mod programs;
mod proto_read;
mod proto_roundtrip;
mod safetensors;
mod session;
mod simplify;
mod text_format;
mod texts;
mod value_files;

pub mod corpus;
pub mod memory;
pub mod mutate;
pub mod random;
pub mod seeds;
pub mod wire_tree;

use corpus::{Corpus, Form};
use random::Random;

/// Statement that must hold for any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Property {
    /// Name of the property, of its file and of the directory with its corpus.
    pub name: &'static str,
    /// Function that panics if the property does not hold.
    pub check: fn(&[u8]),
    /// Kind of the inputs that are no protobuf messages.
    pub form: Form,
    /// Length in bytes of the selector at the start, which chooses what is done with the rest.
    pub selector: usize,
    /// Corrects lengths that would otherwise end nearly every mutation early.
    pub repair: fn(&mut [u8]),
    /// Share of the mutations, relative to other properties.
    pub share: u32,
}

/// All properties.
pub const PROPERTIES: &[Property] = &[
    property("proto_read", proto_read::check).selector(2).share(4),
    property("proto_roundtrip", proto_roundtrip::check).selector(1).share(4),
    property("model_read", model_read::check).share(4),
    property("check", check::check).share(4),
    property("infer", infer::check).share(4),
    property("value_files", value_files::check).selector(1).share(4),
    property("external", external::check),
    property("npy", npy::check).text().repair(npy::repair).share(2),
    property("npz", npz::check),
    property("safetensors", safetensors::check).text().repair(safetensors::repair).share(2),
    property("json", json::check).text().selector(1).share(2),
    property("notation_read", notation_read::check).text().selector(1).share(4),
    property("notation_roundtrip", notation_roundtrip::check).share(4),
    property("text_format", text_format::check).text().selector(1).share(2),
    property("operators", operators::check).share(8),
    property("programs", programs::check).share(4),
    property("parts", parts::check),
    property("session", session::check).share(4),
    property("simplify", simplify::check).share(4),
];

const fn property(name: &'static str, check: fn(&[u8])) -> Property {
    Property { name, check, form: Form::Bytes, selector: 0, repair: |_| {}, share: 1 }
}

impl Property {
    const fn text(mut self) -> Property {
        self.form = Form::Text;
        self
    }

    const fn selector(mut self, bytes: usize) -> Property {
        self.selector = bytes;
        self
    }

    const fn repair(mut self, repair: fn(&mut [u8])) -> Property {
        self.repair = repair;
        self
    }

    const fn share(mut self, share: u32) -> Property {
        self.share = share;
        self
    }

    /// Finds the property with a name.
    pub fn find(name: &str) -> Option<&'static Property> {
        PROPERTIES.iter().find(|property| property.name == name)
    }
}

/// Makes the mutation with a number.
pub fn make_input(property: &Property, corpus: &Corpus, seed: u64, index: u64) -> Vec<u8> {
    // The name is part of the seed so that properties with equal inputs get different mutations.
    let name = property
        .name
        .bytes()
        .fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    mutate::mutate(corpus, &mut Random::new(name, index))
}
