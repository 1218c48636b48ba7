//! Checks of the properties with the saved inputs and a few thousand mutations of them. The
//! mutations are the same in every run.

#![allow(clippy::unwrap_used)] // a panic is the report

use sardonyx_fuzz::corpus::{self, Corpus};
use sardonyx_fuzz::{PROPERTIES, Property, make_input, mutate, seeds};

/// Mutations for each share of a property: a few seconds for all.
const MUTATIONS: u64 = 600;

#[test]
fn properties_hold_for_the_saved_inputs() {
    // WIRE-32
    for property in PROPERTIES {
        for sample in Corpus::load(property).unwrap().samples {
            println!("{} {}", property.name, sample.name);
            (property.check)(&sample.bytes);
        }
        for bytes in [&[][..], &[0], &[0xff; 3]] {
            (property.check)(bytes);
        }
    }
}

#[test]
fn properties_hold_for_mutations() {
    for property in PROPERTIES {
        let corpus = Corpus::load(property).unwrap();
        for index in 0..MUTATIONS * u64::from(property.share) {
            // Shown if the property fails. `cargo run -p sardonyx-fuzz -- --property NAME --first
            // INDEX --mutations 1` reproduces it.
            println!("{} {index}", property.name);
            (property.check)(&make_input(property, &corpus, 1, index));
        }
    }
}

#[test]
fn every_made_seed_is_saved() {
    for property in PROPERTIES {
        for (name, content) in seeds::make(property).unwrap() {
            let path = corpus::directory_of(property).join(&name);
            assert!(path.is_file(), "{} is missing: run with --write-corpus", path.display());
            assert!(content.len() <= mutate::MAX_INPUT, "{name}");
        }
    }
    assert!(Property::find("proto_read").is_some() && Property::find("nothing").is_none());
}
