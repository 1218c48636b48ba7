//! How many multiply-adds a node takes.
//!
//! One multiply-add is a product that is added to a sum: what matrix products, convolutions and
//! whatever is made of them consist of. Work per element (activations, normalizations, poolings,
//! reductions) counts as 0. What is counted is what the standard's formula says, without zeros,
//! masks or causal limits left out.

use sardonyx_model::{Dim, Shape, Type};

use crate::Infer;
use crate::math::einsum;

/// A node whose work is to be counted.
struct Counted<'a> {
    cx: &'a Infer<'a>,
    outputs: &'a [Option<&'a Type>],
}

/// The multiply-adds of a node, given what its rule is given and the types of its outputs. `None`
/// if the inputs say too little, or nobody knows how to count the operator.
pub fn multiply_adds(cx: &Infer<'_>, outputs: &[Option<&Type>]) -> Option<Dim> {
    let node = Counted { cx, outputs };
    let count = match (cx.schema().domain, cx.schema().name) {
        ("", "MatMul" | "MatMulInteger") => node.matrix_product(0, 1),
        ("", "QLinearMatMul") => node.matrix_product(0, 3),
        ("", "Gemm") => node.gemm(),
        ("", "Conv" | "ConvInteger" | "DeformConv" | "CausalConvWithState") => node.convolution(1),
        ("", "QLinearConv") => node.convolution(3),
        ("", "ConvTranspose") => node.transposed_convolution(),
        ("", "Einsum") => einsum::multiply_adds(cx),
        ("", "Attention") | ("ai.onnx.preview", "FlexAttention") => node.attention(),
        ("", "LinearAttention") => node.linear_attention(),
        ("", "LSTM" | "GRU" | "RNN") => node.recurrent(),
        ("", "DFT") => node.fourier(),
        ("ai.onnx.ml", "LinearClassifier" | "LinearRegressor") => node.linear_model(),
        // What they do is made of products, but how many is up to the implementation.
        ("", "Det" | "STFT") | ("ai.onnx.ml", "SVMClassifier" | "SVMRegressor") => None,
        _ => Some(Dim::Known(0)),
    };
    count.filter(|count| !count.is_unknown())
}

/// The number of elements of a shape. `None` if it is unknown, or nothing that 64 bits can hold.
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
    fn shape(&self, input: usize) -> Option<&Shape> {
        self.cx.shape(input)
    }

    fn elements(&self, input: usize) -> Option<Dim> {
        elements(self.shape(input)?)
    }

    fn output(&self, index: usize) -> Option<&Shape> {
        (*self.outputs.get(index)?)?.shape()
    }

    fn output_elements(&self) -> Option<Dim> {
        elements(self.output(0)?)
    }

    /// Each element of the product is a sum over the last axis of A.
    fn matrix_product(&self, a: usize, b: usize) -> Option<Dim> {
        let last = self.shape(a).and_then(|a| a.last());
        let summed = match (last, self.shape(b)) {
            (Some(last), _) => last,
            (None, Some(b)) => &b[b.len().checked_sub(2).unwrap_or(b.len().checked_sub(1)?)],
            (None, None) => return None,
        };
        Some(self.output_elements()?.mul(summed))
    }

    fn gemm(&self) -> Option<Dim> {
        let is_turned = self.cx.int("transA")? != 0;
        let summed = self.shape(0)?.get(usize::from(!is_turned))?;
        Some(self.output_elements()?.mul(summed))
    }

    /// Each output element is a sum over one kernel, `[M, C / group, K1, …]` without the first
    /// axis.
    fn convolution(&self, weights: usize) -> Option<Dim> {
        let kernel = elements(self.shape(weights)?.get(1..)?)?;
        Some(self.output_elements()?.mul(&kernel))
    }

    /// Each input element is multiplied with one kernel, `[C, M / group, K1, …]` without the first
    /// axis.
    fn transposed_convolution(&self) -> Option<Dim> {
        let kernel = elements(self.shape(1)?.get(1..)?)?;
        Some(self.elements(0)?.mul(&kernel))
    }

    /// Every query with every key, and the weights with the values: each element of the queries,
    /// and each of the result, takes part once per key. Graphs that change scores are counted where
    /// they stand.
    fn attention(&self) -> Option<Dim> {
        let keys = self.shape(1)?;
        // Heads are an axis of their own, or part of the last.
        let mut length = keys.get(keys.len().checked_sub(2)?)?.clone();
        if self.cx.schema().name == "Attention" && self.cx.has_input(4) {
            length = length.add(self.shape(4)?.get(2)?);
        }
        let taken = self.elements(0)?.add(&self.output_elements()?);
        Some(taken.mul(&length))
    }

    /// Per step the state of each head takes up a product of key and value, and is multiplied with
    /// the query; the delta rules read it with the key as well. Sizes of heads follow from their
    /// numbers.
    fn linear_attention(&self) -> Option<Dim> {
        let heads = Dim::Known(self.cx.int("kv_num_heads")?);
        let value = self.shape(2)?.last()?.floor_div(&heads);
        let with_keys = match self.cx.string("update_rule")?.as_str() {
            "delta" | "gated_delta" => 2,
            _ => 1,
        };
        let keys = self.elements(1)?.mul(&Dim::Known(with_keys));
        Some(keys.add(&self.elements(0)?).mul(&value))
    }

    /// All weights once for each step of each element of the batch; lengths given by
    /// `sequence_lens` are not known.
    fn recurrent(&self) -> Option<Dim> {
        let steps = elements(self.shape(0)?.get(..2)?)?;
        Some(steps.mul(&self.elements(1)?.add(&self.elements(2)?)))
    }

    /// The fast transform over n elements, n a number: log2(n) stages of n / 2 complex products,
    /// each of four real ones.
    fn fourier(&self) -> Option<Dim> {
        let rank = self.cx.rank(0)?;
        let axis = match self.cx.schema().since {
            ..20 => self.cx.int("axis")?,
            _ if self.cx.has_input(2) => *self.cx.constant_ints(2)?.first()?,
            _ => -2,
        };
        let axis = self.cx.axis(axis, rank).ok()?;
        let length = if self.cx.has_input(1) {
            *self.cx.constant_ints(1)?.first()?
        } else {
            self.shape(0)?[axis].known()?
        };
        let length = u64::try_from(length).ok()?;
        let stages = length.checked_next_power_of_two()?.trailing_zeros();
        let work = i64::try_from(length).ok()?.checked_mul(2 * i64::from(stages))?;
        let shape = self.shape(0)?;
        // The last axis holds the two parts of a complex number.
        let others = shape[..rank - 1].iter().enumerate();
        let others: Shape =
            others.filter(|(index, _)| *index != axis).map(|(_, dim)| dim.clone()).collect();
        Some(elements(&others)?.mul(&Dim::Known(work)))
    }

    /// All coefficients for each row.
    fn linear_model(&self) -> Option<Dim> {
        let rows = match &self.shape(0)?[..] {
            [rows, _] => rows.clone(),
            [_] => Dim::Known(1),
            _ => return None,
        };
        match self.cx.attribute("coefficients")? {
            crate::AttrValue::Floats(coefficients) => {
                Some(rows.mul(&Dim::Known(i64::try_from(coefficients.len()).ok()?)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::multiply_adds;
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

    /// By the newest version, with the output that inference gives.
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
        multiply_adds(&cx, &outputs).map_or("?".to_string(), |count| count.to_string())
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
        let turned = counted(&GEMM, &[("transA", Int(1))], "float[3, 2]; float[3, 5]");
        assert_eq!(turned, "30");
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
