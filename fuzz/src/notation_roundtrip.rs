//! Property: any model is equal after a round trip through the full form of the notation; its
//! portable form can be read.

use sardonyx_model::Model;
use sardonyx_tensor::Buffer;

/// Checks a model read from the bytes.
pub(crate) fn check(input: &[u8]) {
    if let Ok(model) = Model::read(Buffer::from_vec(input.to_vec())) {
        crate::notation_read::assert_round_trip(&model);
    }
}
