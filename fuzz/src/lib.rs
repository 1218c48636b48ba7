//! Properties that must hold for any bytes, and an engine that looks for bytes that break them.
//!
//! A property is an ordinary function of bytes that panics if it does not hold: one file each,
//! listed in [`PROPERTIES`]. Three things run them. The tests of this package take the saved inputs
//! under `fuzz/corpus` and a few thousand mutations of them; the binary takes mutations for as long
//! as one likes, in processes of bounded memory that may hang, overflow their stack or be ended
//! without harm; and `--input FILE` takes one file, to look at a failure.
//!
//! The engine is ours instead of libFuzzer's so that it needs no nightly compiler and no C: what it
//! lacks in feedback from the program it makes up by knowing the format.

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

/// Something that must hold for any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Property {
    /// Its name: that of its file, and of the directory with its corpus.
    pub name: &'static str,
    /// Panics if it does not hold.
    pub check: fn(&[u8]),
    /// What its inputs are, where they are no protobuf messages.
    pub form: Form,
    /// How many bytes at the start choose what to do with the rest.
    pub selector: usize,
    /// Sets lengths right that would keep nearly every mutation from getting anywhere.
    pub repair: fn(&mut [u8]),
    /// How many mutations it gets, relative to the others.
    pub share: u32,
}

/// All of them.
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

    /// The property of that name.
    pub fn find(name: &str) -> Option<&'static Property> {
        PROPERTIES.iter().find(|property| property.name == name)
    }
}

/// The mutation with this number.
pub fn input(property: &Property, corpus: &Corpus, seed: u64, index: u64) -> Vec<u8> {
    // Properties with the same inputs should not get the same mutations.
    let name = property
        .name
        .bytes()
        .fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    mutate::mutate(corpus, &mut Random::new(name, index))
}
