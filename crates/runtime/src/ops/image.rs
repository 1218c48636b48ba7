//! Image operators: decoding, resizing, regions of interest, sampling.

pub(crate) mod grid_sample;
pub(crate) mod image_decoder;
pub(crate) mod max_roi_pool;
pub(crate) mod non_max_suppression;
mod places;
pub(crate) mod resize;
pub(crate) mod roi_align;
