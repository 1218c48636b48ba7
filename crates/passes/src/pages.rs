//! Memory of mapped files.

use sardonyx_tensor::{Buffer, Tensor};

/// Gives the pages of a tensor in a mapped file back after they were read, so that memory need not
/// hold the whole file.
pub(crate) fn give_back_pages(tensor: &Tensor) {
    tensor.buffer().into_iter().for_each(Buffer::give_back_pages);
}
