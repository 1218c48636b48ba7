//! Data movement: shapes, copies, type conversions.

pub(crate) mod movement;
pub(crate) mod moves;

pub(crate) mod bit_cast;
pub(crate) mod cast;
pub(crate) mod concat;
pub(crate) mod constant;
pub(crate) mod constant_of_shape;
pub(crate) mod expand;
pub(crate) mod gather;
pub(crate) mod gather_elements;
pub(crate) mod generate;
pub(crate) mod pad;
pub(crate) mod rearrange;
pub(crate) mod reorder;
pub(crate) mod reshape;
pub(crate) mod scatter;
pub(crate) mod select;
pub(crate) mod shape;
pub(crate) mod size;
pub(crate) mod slice;
pub(crate) mod split;
pub(crate) mod transpose;
pub(crate) mod unique;
pub(crate) mod where_;
pub(crate) mod write_rows;
