//! Tests of weight gradients: they are one step, with the sums of the convolution that they are
//! written as.

use crate::both_ways::Both;

/// Writes the gradient of a convolution of `channels` with some kernel, stride, dilation and
/// padding, as differentiation does, for inputs and outputs of these sizes.
fn gradient(
    channels: [usize; 2],
    [kernel, stride, dilation, pad]: [usize; 4],
    [input, output]: [usize; 2],
) -> Both {
    let [inputs, outputs] = channels;
    Both::new(&format!(
        "g (float[N, {inputs}, {input}, {input}] x, float[N, {outputs}, {output}, {output}] dy) => (dw)
         <int64[2] starts = {{0, 0}}, int64[2] ends = {{{kernel}, {kernel}}}, int64[2] axes = {{2, 3}}> {{
            xs = Transpose <perm = [1, 0, 2, 3]> (x)
            dys = Transpose <perm = [1, 0, 2, 3]> (dy)
            all = Conv <strides = [{dilation}, {dilation}], dilations = [{stride}, {stride}],
                        pads = [{pad}, {pad}, {pad}, {pad}]> (xs, dys)
            back = Transpose <perm = [1, 0, 2, 3]> (all)
            dw = Slice (back, starts, ends, axes) }}"
    ))
}

#[test]
fn gradients_of_weights_are_one_step() {
    for (channels, window, sizes) in [
        ([3, 16], [7, 2, 1, 3], [20, 10]),
        ([16, 20], [3, 1, 1, 1], [7, 7]),
        ([16, 20], [3, 2, 1, 1], [15, 8]),
        ([16, 20], [3, 2, 1, 1], [14, 7]),
        ([5, 33], [1, 2, 1, 0], [9, 5]),
        ([4, 6], [3, 1, 2, 2], [11, 11]),
    ] {
        let both = gradient(channels, window, sizes);
        let steps = both.fused.steps();
        assert_eq!(steps.len(), 1, "{}", both.listing());
        assert_eq!(steps[0].op.to_string(), "Conv");
        for n in [1, 2, 9, 0] {
            both.agree(&[("N", n)]);
        }
    }
}
