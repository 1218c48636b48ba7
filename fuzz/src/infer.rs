//! Property: types of any model can be inferred in every style and written into it. The result can
//! be read again, has as many nodes as before, and its types can be inferred again.

use sardonyx::Model;
use sardonyx::infer::InferOptions;
use sardonyx::tool::infer::{Naming, Style};

/// Infers the types of a model read from the bytes, in every style.
pub(crate) fn check(input: &[u8]) {
    let Ok(model) = Model::from_bytes(input.to_vec()) else {
        return;
    };
    let reference = |data_prop| {
        InferOptions::new().naming(Naming::Reference).style(Style::Reference { data_prop })
    };
    let styles = [
        InferOptions::new(),
        InferOptions::new().naming(Naming::Names).set("N", 3),
        reference(false),
        reference(true),
    ];
    for options in styles {
        let mut typed = model.clone();
        let found = typed.infer(&options);
        assert_bounded(&found.report(&typed).findings, input.len());
        typed.add_types(&found);
        let again = Model::from_bytes(typed.to_bytes()).expect("a model that was written");
        assert_eq!(again.node_count(), model.node_count());
        again.infer(&options);
    }
}

fn assert_bounded(findings: &[sardonyx::check::Finding], size: usize) {
    for found in findings {
        // Types with many axes are written in full.
        assert!(found.fact.len() <= (64 << 10) + 4 * size, "{}", found.fact.len());
    }
}
