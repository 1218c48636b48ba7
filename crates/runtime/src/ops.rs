//! The bindings: how each operator runs, one file each at the path of its meaning.
//!
//! A binding reads attributes and types once, decides which loop runs, and at run time hands slices to it. It knows the
//! newest form of its operator only; older nodes have been upgraded.

mod math;
mod narrow;
mod nn;
mod reduction;
mod tensor;

use crate::kernel::Bind;

/// Every binding, by domain and name, sorted.
static BINDINGS: &[(&str, &str, Bind)] = &[
    ("", "Conv", nn::conv::bind),
    ("", "Flatten", tensor::reshape::bind_flatten),
    ("", "Gemm", math::gemm::bind),
    ("", "Identity", tensor::reshape::bind_identity),
    ("", "MatMul", math::matmul::bind),
    ("", "Reshape", tensor::reshape::bind_reshape),
    ("", "Squeeze", tensor::reshape::bind_squeeze),
    ("", "Unsqueeze", tensor::reshape::bind_unsqueeze),
];

/// The binding of an operator.
pub(crate) fn binding(domain: &str, name: &str) -> Option<Bind> {
    let index = BINDINGS.binary_search_by(|(d, n, _)| (*d, *n).cmp(&(domain, name))).ok()?;
    Some(BINDINGS[index].2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(BINDINGS.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
    }
}
