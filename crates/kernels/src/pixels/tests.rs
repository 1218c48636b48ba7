//! Compares kernels of pixels with the loops over rows, on each instruction set.

use super::*;
use crate::copy::PickDims;
use crate::norm;
use crate::norm::{
    Affine, LocalResponse, RowInputs, RowNormalization, RowOutputs, Statistics,
    local_response_norm as local, normalize_rows,
};
use crate::pooling::{self, Divisor, Window};
use crate::softmax::Softmax;
use sardonyx_simd::{Exec, Isa, Pool};

/// Bits of the floats between the channels of two pixels.
const BESIDE: u32 = 0x7fc0_1234;
const CHANNELS: [usize; 8] = [1, 3, 15, 16, 17, 240, 256, 1024];

fn values(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| (((i + seed) * 29 % 8311) as f32 - 4100.0) * 0.001).collect()
}

/// Returns values some of which are NaN or infinite.
fn odd_values(n: usize, seed: usize) -> Vec<f32> {
    let mut values = values(n, seed);
    for (i, odd) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
        values.iter_mut().skip(3 + 7 * i).step_by(101 + i).for_each(|x| *x = odd);
    }
    values
}

/// Converts rows to pixels, one element at a time. The memory ends with the last channel.
fn to_pixels(rows: &[f32], [images, channels, pixels]: [usize; 3], pitch: usize) -> Vec<f32> {
    let count = images * pixels;
    let len = count.checked_sub(1).map_or(0, |before| before * pitch + channels);
    let mut data = vec![f32::from_bits(BESIDE); len];
    for (i, x) in rows.iter().enumerate() {
        let (image, c, s) = (i / pixels / channels, i / pixels % channels, i % pixels);
        data[(image * pixels + s) * pitch + c] = *x;
    }
    data
}

/// Converts pixels to rows, and checks that floats between pixels are untouched.
fn to_rows_checked(data: &[f32], [images, channels, pixels]: [usize; 3], pitch: usize) -> Vec<f32> {
    for (i, x) in data.iter().enumerate() {
        assert!(i % pitch < channels || x.to_bits() == BESIDE, "lane {i} was written");
    }
    let mut rows = Vec::new();
    for i in 0..images * channels * pixels {
        let (image, c, s) = (i / pixels / channels, i / pixels % channels, i % pixels);
        rows.push(data[(image * pixels + s) * pitch + c]);
    }
    rows
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// Runs a kernel of pixels on rows, with several pitches and numbers of threads, and checks that
/// these do not change the result.
fn run_on_pixels(
    isa: Isa,
    x: &[f32],
    dims: [usize; 3],
    out: [usize; 3],
    kernel: impl Fn(&Exec<'_>, Pixels<'_>, PixelsMut<'_>),
) -> Vec<f32> {
    let mut found: Option<Vec<f32>> = None;
    for (threads, more) in [(1, 0), (2, 5), (3, 16)] {
        let pool = Pool::new(threads);
        let (x_pitch, y_pitch) = match threads {
            1 => (dims[1], out[1] + 1),
            _ => (pitch_of(dims[1]), pitch_of(out[1]) + more),
        };
        let x = to_pixels(x, dims, x_pitch);
        let mut y = to_pixels(&vec![7.0; out.iter().product()], out, y_pitch);
        kernel(
            &Exec::new(&pool, isa),
            Pixels::new(&x, dims[0] * dims[2], dims[1], x_pitch),
            PixelsMut::new(&mut y, out[0] * out[2], out[1], y_pitch),
        );
        let y = to_rows_checked(&y, out, y_pitch);
        if let Some(found) = &found {
            assert_eq!(bits(found), bits(&y), "{isa:?} {dims:?} with {threads} threads");
        }
        found = Some(y);
    }
    found.unwrap()
}

fn close(found: &[f32], wanted: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (found - wanted).abs() / wanted.abs().max(1.0);
        let same = found == wanted || (found.is_nan() && wanted.is_nan());
        assert!(same || error <= tolerance, "{what} at {i}: {found}, not {wanted}");
    }
}

/// Returns images of several sizes for each number of channels.
fn dims() -> impl Iterator<Item = [usize; 3]> {
    let small = CHANNELS.into_iter().map(|channels| [2, channels, 35]);
    small.chain([[1, 64, 1300], [1, 7, 5000], [3, 100, 1], [2, 16, 0], [0, 16, 3], [2, 0, 3]])
}

fn one(isa: Isa) -> Exec<'static> {
    Exec::new(Pool::serial(), isa)
}

#[test]
fn pitches() {
    for (channels, pitch) in [(1, 16), (16, 16), (17, 32), (240, 240), (250, 272), (1024, 1040)] {
        assert_eq!(pitch_of(channels), pitch);
    }
}

#[test]
#[should_panic = "outside of the memory"]
fn a_pixel_outside() {
    Pixels::new(&[0.0; 20], 2, 5, 16);
}

#[test]
fn orders() {
    for &isa in Isa::available() {
        for dims in dims() {
            let x = odd_values(dims.iter().product(), 1);
            let back = run_on_pixels(isa, &x, dims, dims, |exec, pixels, y| {
                let mut rows = vec![7.0; x.len()];
                to_rows(exec, dims[0], pixels, &mut rows).unwrap();
                assert_eq!(bits(&rows), bits(&x), "{isa:?} {dims:?}");
                from_rows(exec, dims[0], &x, y).unwrap();
            });
            assert_eq!(bits(&back), bits(&x), "{isa:?} {dims:?}");
        }
    }
}

/// Checks all kinds of pooling with one window.
fn pools(isa: Isa, [images, channels]: [usize; 2], window: &Window<'_>, what: &str) {
    let pixels: usize = window.input.iter().product();
    let outputs = window.output.iter().product();
    let (dims, out) = ([images, channels, pixels], [images, channels, outputs]);
    let planes = images * channels;
    let exec = one(isa);
    let mut wanted = vec![0.0; planes * outputs];
    let x = odd_values(planes * pixels, 2);
    pooling::max_pool(&exec, planes, window, &x, &mut wanted).unwrap();
    let found = run_on_pixels(isa, &x, dims, out, |exec, x, y| {
        max_pool(exec, images, window, x, y).unwrap();
    });
    close(&found, &wanted, 0.0, what);
    for divisor in [Divisor::Inside, Divisor::WithPadding] {
        for x in [&x, &values(planes * pixels, 3)] {
            pooling::average_pool(&exec, planes, window, divisor, x, &mut wanted).unwrap();
            let found = run_on_pixels(isa, x, dims, out, |exec, x, y| {
                average_pool(exec, images, window, divisor, x, y).unwrap();
            });
            close(&found, &wanted, 1e-6, what);
        }
    }
}

#[test]
fn windows() {
    for &isa in Isa::available() {
        for (i, case) in pooling::tests::cases().iter().enumerate() {
            let output = case.output();
            for channels in [1, 3, 17, 80] {
                let what = format!("{isa:?} {channels} channels, window {i}");
                pools(isa, [2, channels], &case.window(&output), &what);
            }
        }
        for channels in CHANNELS {
            let window = Window {
                input: &[9, 8],
                output: &[5, 4],
                kernel: &[3, 3],
                strides: &[2, 2],
                dilations: &[1, 1],
                pads_begin: &[1, 0],
                pads_end: &[1, 0],
            };
            pools(isa, [2, channels], &window, &format!("{isa:?} {channels} channels"));
        }
    }
}

#[test]
fn totals() {
    use crate::reduce::Reduce;
    let pairs = [
        (Total::Sum, Reduce::Sum),
        (Total::Mean, Reduce::Mean),
        (Total::Max, Reduce::Max),
        (Total::Min, Reduce::Min),
    ];
    for &isa in Isa::available() {
        for dims in dims() {
            let [images, channels, pixels] = dims;
            let n = dims.iter().product();
            for (total, op) in pairs {
                for x in [values(n, 4), odd_values(n, 5)] {
                    let mut wanted = vec![0.0; images * channels];
                    let axes = [false, false, true];
                    crate::reduce::reduce(&one(isa), op, &dims, &axes, &x, &mut wanted).unwrap();
                    let out = [images, channels, 1];
                    let found = run_on_pixels(isa, &x, dims, out, |exec, x, y| {
                        reduce(exec, total, images, x, y).unwrap();
                    });
                    // The sum of absolute values is at most 4.1 for each pixel.
                    let scale = if total == Total::Sum { pixels as f32 } else { 1.0 };
                    close(&found, &wanted, 1e-6 * scale, &format!("{isa:?} {dims:?} {op:?}"));
                }
            }
        }
    }
}

#[test]
fn long_sums_keep_their_digits() {
    for &isa in Isa::available() {
        let (pixels, value) = (1 << 18, 0.1f32);
        let x = vec![value; pixels];
        let found = run_on_pixels(isa, &x, [1, 1, pixels], [1, 1, 1], |exec, x, y| {
            reduce(exec, Total::Mean, 1, x, y).unwrap();
        });
        assert!((found[0] - value).abs() <= 2e-7, "{isa:?} {found:?}");
    }
}

#[test]
fn neighbouring_channels() {
    for &isa in Isa::available() {
        for dims in dims() {
            let [batch, channels, inner] = dims;
            let x = odd_values(dims.iter().product(), 6);
            for size in [1, 2, 3, 5, 8, 40, i64::MAX as usize] {
                for beta in [0.5, 0.75, 1.0, 0.6] {
                    let response = LocalResponse { size, alpha: 0.01, beta, bias: 1.5 };
                    let mut wanted = vec![0.0; x.len()];
                    local(&one(isa), [batch, channels, inner].into(), response, &x, &mut wanted)
                        .unwrap();
                    let found = run_on_pixels(isa, &x, dims, dims, |exec, x, y| {
                        local_response_norm(exec, response, x, y).unwrap();
                    });
                    assert_eq!(bits(&found), bits(&wanted), "{isa:?} {dims:?} {response:?}");
                }
            }
        }
    }
}

#[test]
fn groups() {
    for &isa in Isa::available() {
        for dims in dims().filter(|dims| !dims.contains(&0)) {
            let [images, channels, pixels] = dims;
            let (scale, shift) = (values(channels, 7), values(channels, 8));
            for groups in [1, 2, channels].into_iter().filter(|g| channels.is_multiple_of(*g)) {
                // Means are some units in the last place off, deviations at least 0.3 where a group
                // is a channel, and scales at most 4.1.
                for (x, tolerance) in [
                    (values(dims.iter().product(), 9), 2e-5),
                    (values(dims.iter().product(), 9).iter().map(|x| x + 64.0).collect(), 5e-4),
                    (odd_values(dims.iter().product(), 9), 2e-5),
                ] {
                    let x: Vec<f32> = x;
                    let mut wanted = vec![0.0; x.len()];
                    let how = RowNormalization {
                        statistics: Statistics::MeanVariance,
                        len: channels / groups * pixels,
                        epsilon: 1e-5,
                        affine: Affine::Groups(pixels, &scale, &shift),
                    };
                    normalize_rows(&one(isa), how, &x, &mut wanted, None, None).unwrap();
                    let norm = GroupNorm { groups, epsilon: 1e-5, scale: &scale, shift: &shift };
                    let found = run_on_pixels(isa, &x, dims, dims, |exec, x, y| {
                        group_norm(exec, images, norm, x, y).unwrap();
                    });
                    close(&found, &wanted, tolerance, &format!("{isa:?} {dims:?} {groups}"));
                }
            }
        }
    }
}

#[test]
fn channels_of_each_pixel() {
    for &isa in Isa::available() {
        for dims in dims().filter(|dims| dims[1] > 0) {
            let [images, channels, pixels] = dims;
            let count = images * pixels;
            let x = odd_values(dims.iter().product(), 10);
            // With this pitch, pixels are rows of the other kernels.
            let adjacent = to_pixels(&x, dims, channels);
            let mut wanted = vec![0.0; x.len()];
            for op in [Softmax::Softmax, Softmax::LogSoftmax, Softmax::Hardmax] {
                let dims_of_rows = [count, channels, 1].into();
                crate::softmax::softmax(&one(isa), op, dims_of_rows, &adjacent, &mut wanted)
                    .unwrap();
                let wanted = to_rows_checked(&wanted, dims, channels);
                for in_place in [false, true] {
                    let found = run_on_pixels(isa, &x, dims, dims, |exec, x, y| {
                        if in_place {
                            copy(&x, &y);
                        }
                        softmax(exec, op, (!in_place).then_some(x), y).unwrap();
                    });
                    assert_eq!(bits(&found), bits(&wanted), "{isa:?} {dims:?} {op:?}");
                }
            }
            let (scale, bias) = (values(channels, 11), values(channels, 12));
            for bias in [None, Some(&bias[..])] {
                norm::layer_norm(
                    &one(isa),
                    [count, channels].into(),
                    RowInputs { x: &adjacent, residual: None, scale: &scale, epsilon: 1e-5 },
                    bias,
                    RowOutputs { y: &mut wanted, sum: None, means: None, inverse_deviations: None },
                )
                .unwrap();
                let wanted = to_rows_checked(&wanted, dims, channels);
                for in_place in [false, true] {
                    let found = run_on_pixels(isa, &x, dims, dims, |exec, x, y| {
                        if in_place {
                            copy(&x, &y);
                        }
                        layer_norm(exec, &scale, bias, 1e-5, (!in_place).then_some(x), y).unwrap();
                    });
                    assert_eq!(bits(&found), bits(&wanted), "{isa:?} {dims:?}");
                }
            }
        }
    }
}

/// Copies pixels, for kernels that work in place.
fn copy(x: &Pixels<'_>, y: &PixelsMut<'_>) {
    for i in 0..x.count() {
        // SAFETY: there is one thread, and one pixel is borrowed at a time.
        unsafe { y.row(i) }.copy_from_slice(x.row(i));
    }
}

#[test]
fn scales_and_shifts() {
    for &isa in Isa::available() {
        for dims in dims() {
            let [_, channels, pixels] = dims;
            let x = odd_values(dims.iter().product(), 13);
            let (scale, shift) = (values(channels, 14), values(channels, 15));
            let mut wanted = vec![0.0; x.len()];
            norm::scale_shift(&one(isa), pixels, &scale, &shift, &x, &mut wanted).unwrap();
            for in_place in [false, true] {
                let found = run_on_pixels(isa, &x, dims, dims, |exec, x, y| {
                    if in_place {
                        copy(&x, &y);
                    }
                    scale_shift(exec, &scale, &shift, (!in_place).then_some(x), y).unwrap();
                });
                close(&found, &wanted, 0.0, &format!("{isa:?} {dims:?}"));
            }
        }
    }
}

#[test]
fn pixels_of_images_of_another_size() {
    let tables = [1, 0, 1, 1, 4, 0, 0, 2, 3, 6, 5, 5];
    let (spatial, out) = ([2, 5, 7], [3, 4, 5]);
    for channels in CHANNELS {
        let x = odd_values(70 * channels, 3);
        // All axes but that of the channels move.
        let mut expected = vec![0.0; 60 * channels];
        for (i, y) in expected.iter_mut().enumerate() {
            let [image, c, row, col] = [i / 20 / channels, i / 20 % channels, i / 5 % 4, i % 5];
            let [image, row, col] = [tables[image], tables[3 + row], tables[7 + col]];
            *y = x[((image * channels + c) * 5 + row) * 7 + col];
        }
        let found =
            run_on_pixels(Isa::Portable, &x, [2, channels, 35], [3, channels, 20], |exec, x, y| {
                pick(exec, PickDims { input: &spatial, output: &out }, &tables, x, y).unwrap();
            });
        assert_eq!(bits(&found), bits(&expected), "{channels}");
    }
    let none = run_on_pixels(Isa::Portable, &[], [0, 3, 35], [0, 3, 20], |exec, x, y| {
        pick(exec, PickDims { input: &[0, 5, 7], output: &[0, 4, 5] }, &tables[3..], x, y).unwrap();
    });
    assert_eq!(none, []);
}

#[test]
fn shuffles() {
    for &isa in Isa::available() {
        for dims in dims() {
            let [images, channels, pixels] = dims;
            let x = odd_values(images * channels * pixels, 3);
            for groups in [1, 2, 3, 4, 5, 8, 16, 17, 240] {
                if !channels.is_multiple_of(groups) {
                    continue;
                }
                let found = run_on_pixels(isa, &x, dims, dims, |exec, x, y| {
                    shuffle(exec, groups, x, y).unwrap();
                });
                let width = channels / groups;
                let wanted: Vec<f32> = (0..x.len())
                    .map(|i| {
                        let (image, c, s) =
                            (i / pixels / channels, i / pixels % channels, i % pixels);
                        x[(image * channels + c % groups * width + c / groups) * pixels + s]
                    })
                    .collect();
                assert_eq!(bits(&found), bits(&wanted), "{isa:?} {dims:?}, {groups} groups");
            }
        }
    }
}
