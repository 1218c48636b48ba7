//! Number of multiply-adds of a node.
//!
//! One multiply-add is a product that is added to a sum: matrix products, convolutions and
//! operators made of them consist of these. Work per element (activations, normalizations,
//! poolings, reductions) counts as 0. Counts follow the standard's formula, including zeros, masks
//! and causal limits.

use sardonyx_model::{Dim, Shape, Type};

use crate::infer::Infer;

/// Rule for the multiply-adds of an operator.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cost {
    /// The operator has no multiply-adds.
    Nothing,
    /// A formula counts them.
    Counted(CostFn),
    /// The implementation decides.
    Unknown,
}

/// Counts the multiply-adds of a node; `None` if the shapes of its operands are unknown.
pub(crate) type CostFn = fn(&Counted<'_>) -> Option<Dim>;

/// Node whose multiply-adds are counted.
pub(crate) struct Counted<'a> {
    pub(crate) cx: &'a Infer<'a>,
    pub(crate) outputs: &'a [Option<&'a Type>],
}

/// Returns the number of elements of a shape, or `None` if it is unknown or does not fit in 64
/// bits.
pub fn elements(shape: &[Dim]) -> Option<Dim> {
    let is_size = |dim: &Dim| !dim.is_unknown() && dim.known().is_none_or(|size| size >= 0);
    let product = if shape.iter().all(is_size) {
        shape.iter().fold(Dim::Known(1), |product, dim| product.mul(dim))
    } else {
        Dim::Unknown
    };
    Some(product).filter(|product| !product.is_unknown())
}

impl Counted<'_> {
    pub(crate) fn shape(&self, input: usize) -> Option<&Shape> {
        self.cx.shape(input)
    }

    pub(crate) fn elements(&self, input: usize) -> Option<Dim> {
        elements(self.shape(input)?)
    }

    pub(crate) fn output(&self, index: usize) -> Option<&Shape> {
        (*self.outputs.get(index)?)?.shape()
    }

    pub(crate) fn output_elements(&self) -> Option<Dim> {
        elements(self.output(0)?)
    }

    /// Counts a matrix product: each element of the result is a sum over the last axis of `a`.
    pub(crate) fn matrix_product(&self, a: usize, b: usize) -> Option<Dim> {
        let last = self.shape(a).and_then(|a| a.last());
        let summed = match (last, self.shape(b)) {
            (Some(last), _) => last,
            (None, Some(b)) => &b[b.len().checked_sub(2).unwrap_or(b.len().checked_sub(1)?)],
            (None, None) => return None,
        };
        Some(self.output_elements()?.mul(summed))
    }

    /// Counts a convolution: each output element is a sum over one kernel, `[M, C / group, K1, …]`
    /// without the first axis.
    pub(crate) fn convolution(&self, weights: usize) -> Option<Dim> {
        let kernel = elements(self.shape(weights)?.get(1..)?)?;
        Some(self.output_elements()?.mul(&kernel))
    }
}

#[cfg(test)]
mod tests {
    use crate::AttrValue::{self, Int};
    use crate::math::testing::{Given, ty};
    use crate::math::{gemm::GEMM, linear::EINSUM, matmul::MATMUL, unary::RELU};
    use crate::nn::attention::ATTENTION;
    use crate::nn::conv::CONV;
    use crate::nn::conv_variants::CONV_TRANSPOSE;
    use crate::nn::recurrent::LSTM;
    use crate::signal::fourier::DFT;
    use crate::tensor::testing::{ints, word};
    use crate::{Infer, OpDef};

    /// Counts a node in its newest version, with the outputs that inference returns.
    fn counted(
        operator: &OpDef,
        attributes: &[(&'static str, AttrValue<'static>)],
        inputs: &str,
    ) -> String {
        let schema = &operator.schema_at(27).unwrap();
        let given = Given(attributes);
        let inputs: Vec<_> = inputs.split(';').map(|text| ty(text.trim())).collect();
        let inputs: Vec<_> = inputs.iter().map(Option::as_ref).collect();
        let mut cx = Infer::new(schema, &given, &inputs, &[], 1);
        operator.inference_at(27).unwrap()(&mut cx).unwrap();
        let outputs = cx.finish().types;
        let outputs: Vec<_> = outputs.iter().map(Option::as_ref).collect();
        let cx = Infer::new(schema, &given, &inputs, &[], 1);
        operator.multiply_adds(&cx, &outputs).map_or("?".to_string(), |count| count.to_string())
    }

    #[test]
    fn products() {
        let rows = [
            (&MATMUL, "float[N, 2, 3]; float[3, 5]", "30*N"),
            (&MATMUL, "float[3]; float[3]", "3"),
            (&MATMUL, "float[...]; float[3, 5]", "?"),
            (&GEMM, "float[2, 3]; float[3, 5]", "30"),
            (&CONV, "float[1, 3, 224, 224]; float[64, 3, 7, 7]", "447105792"),
            (&CONV_TRANSPOSE, "float[1, 4, 8]; float[4, 6, 3]", "576"),
            (&RELU, "float[N]", "0"),
        ];
        for (op, inputs, expected) in rows {
            assert_eq!(counted(op, &[], inputs), expected, "{} {inputs}", op.name);
        }
        let transposed = counted(&GEMM, &[("transA", Int(1))], "float[3, 2]; float[3, 5]");
        assert_eq!(transposed, "30");
        let grouped = &[("group", Int(4)), ("pads", ints(&[1, 1]))];
        let depthwise = counted(&CONV, grouped, "float[2, 4, 10]; float[4, 1, 3]");
        assert_eq!(depthwise, "240");
    }

    #[test]
    fn einsum_counts_all_labels() {
        let counted = |equation, inputs| counted(&EINSUM, &[("equation", word(equation))], inputs);
        assert_eq!(counted("bij,bjk->bik", "float[B, 2, 3]; float[B, 3, 5]"), "30*B");
        assert_eq!(counted("...ij,jk->...ik", "float[7, 2, 3]; float[3, 5]"), "210");
        // Nothing is multiplied.
        assert_eq!(counted("ij->ji", "float[2, 3]"), "0");
    }

    #[test]
    fn attention_and_recurrence() {
        let qkv = "float[1, 2, L, 8]; float[1, 2, S, 8]; float[1, 2, S, 4]";
        assert_eq!(counted(&ATTENTION, &[], qkv), "24*L*S");
        let inputs = "float[T, N, 3]; float[1, 20, 3]; float[1, 20, 5]";
        let hidden = &[("hidden_size", Int(5))];
        assert_eq!(counted(&LSTM, hidden, inputs), "160*N*T");
        assert_eq!(counted(&DFT, &[], "float[2, 8, 1]"), "96");
        assert_eq!(counted(&DFT, &[], "float[2, N, 1]"), "?");
    }
}
