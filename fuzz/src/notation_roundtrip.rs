//! Property: any model is the same after it was printed in the full form of the notation and read
//! again; its portable form can be read.

use sardonyx_model::Model;
use sardonyx_tensor::Buffer;

/// Takes the bytes as a model.
pub(crate) fn check(input: &[u8]) {
    if let Ok(model) = Model::read(Buffer::from_vec(input.to_vec())) {
        crate::notation_read::assert_comes_back(&model);
    }
}
