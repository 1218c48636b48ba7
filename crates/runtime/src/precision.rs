//! Precision of matrix products and convolutions, and the choice of products that stay exact.

use sardonyx_model::Shape;

/// Precision of matrix products and convolutions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Products are computed in the type of the operands.
    #[default]
    Exact,
    /// Some products of `float` are rounded to 16 bits. Constant right operands are stored in 16
    /// bits, which halves their memory and the time that products of few rows wait for it. Products
    /// of about 24 rows or more round both operands to `bfloat16`, on machines that multiply it
    /// faster. Without AVX2, nothing is rounded. Sums stay in `float`, and so do the smallest
    /// products with constants of a model, which would add errors but save hardly any time.
    ///
    /// On machines that multiply `bfloat16`, some convolutions round inputs and weights, or the
    /// sums of them that Winograd's algorithm multiplies: convolutions with constant weights, a
    /// padding that does not depend on the size of the input, and at least 16 input and output
    /// channels a group.
    Fast,
}

/// Choice: part of all multiply-adds with constant matrices that stay exact with
/// [`Precision::Fast`].
const EXACT_PART: f64 = 0.1;

/// Returns the multiply-adds up to which products with constant matrices stay exact with
/// [`Precision::Fast`], given those of all such products.
///
/// Each product that rounds its operands adds about the same relative error, but saves time in
/// proportion to its size. So the smallest do not round: in models with shared heads and a wide
/// hidden layer these are the projections of the attention, and the total error falls by a third
/// where many positions are computed at once.
pub(crate) fn find_exact_limit(sizes: Vec<usize>) -> usize {
    find_size_limit(sizes, EXACT_PART)
}

/// Counts the multiply-adds of a product with a constant matrix. Unknown dimensions of the left
/// operand count as 1.
pub(crate) fn count_multiply_adds(left: Option<&Shape>, [depth, width]: [usize; 2]) -> usize {
    let dims = left.into_iter().flat_map(|shape| shape.iter());
    let elements = dims.filter_map(|dim| dim.size()).fold(1, usize::saturating_mul);
    elements.max(depth).saturating_mul(width)
}

/// Returns the largest size such that all sizes up to it sum to at most `part` of the total.
fn find_size_limit(mut sizes: Vec<usize>, part: f64) -> usize {
    sizes.sort_unstable();
    let all: f64 = sizes.iter().map(|size| *size as f64).sum();
    let (mut found, mut sum) = (0, 0.0);
    for equal in sizes.chunk_by(|a, b| a == b) {
        sum += equal.iter().map(|size| *size as f64).sum::<f64>();
        if sum > part * all {
            break;
        }
        found = equal[0];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::find_size_limit;

    #[test]
    fn the_smallest_are_a_part_of_all() {
        assert_eq!(find_size_limit(vec![], 0.1), 0);
        assert_eq!(find_size_limit(vec![7, 7, 7], 0.5), 0, "all or none of a size");
        assert_eq!(find_size_limit(vec![100, 1, 4, 4, 2, 90], 0.1), 4);
        assert_eq!(find_size_limit(vec![100, 1, 4, 4, 13, 90], 0.1), 4);
    }
}
