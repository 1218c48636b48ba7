//! Images: other sizes, regions.

mod places;
pub(crate) mod resize;
pub(crate) mod roi_align;
