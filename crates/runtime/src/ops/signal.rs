//! Signal processing: spectra and mel filter banks.

pub(super) mod fourier;

use std::f64::consts::LN_10;

use sardonyx_tensor::{CastOptions, DataType, cast_slices, shape};

use super::element_type;
use super::nn::batch_normalization::widen_input;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Binds `MelWeightMatrix`.
pub(crate) fn bind_mel_weight_matrix(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let elem = element_type(site, "output_datatype")?.unwrap_or(DataType::Float);
    Ok(Box::new(MelWeightMatrix { elem }))
}

struct MelWeightMatrix {
    elem: DataType,
}

/// Position of an input of MelWeightMatrix.
const BANDS: usize = 0;
const LENGTH: usize = 1;
const RATE: usize = 2;
const LOWER_EDGE: usize = 3;
const UPPER_EDGE: usize = 4;

impl Kernel for MelWeightMatrix {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let need = |index: usize, name: &str| -> Result<usize, KernelError> {
            match size(call, index, name)? {
                Some(size) => Ok(size),
                None => fail!("{name} is missing"),
            }
        };
        let bands = need(BANDS, "num_mel_bins")?;
        let length = need(LENGTH, "dft_length")?;
        let rate = need(RATE, "sample_rate")?;
        let edge = |index: usize, name: &str| -> Result<f64, KernelError> {
            let given = widen_input(call, index)?;
            match given[..] {
                [edge] if edge >= 0.0 && edge.is_finite() => Ok(edge),
                [edge] => fail!("{name} must be a frequency, not {edge}"),
                _ => fail!("{name} must have one element, not {}", given.len()),
            }
        };
        let lower = mel(edge(LOWER_EDGE, "lower_edge_hertz")?);
        let upper = mel(edge(UPPER_EDGE, "upper_edge_hertz")?);
        let places = length / 2 + 1;
        let dims = [places, bands];
        let mut weights = call.scratch::<f64>(shape::elems(&dims)?)?;
        // Centres are equally spaced on the mel scale, in bins of the spectrum. The last triangle
        // ends one step before the upper edge, as in the reference implementation.
        let step = (upper - lower) / (bands as f64 + 2.0);
        let place = |index: usize| {
            let hertz = 700.0 * ((lower + index as f64 * step) / MEL_SCALE).exp_m1();
            ((length as f64 + 1.0) * hertz / rate as f64).floor()
        };
        for band in 0..bands {
            let triangle = [0, 1, 2].map(|more| place(band + more));
            if triangle.iter().any(|place| *place < 0.0 || *place > places as f64) {
                fail!(
                    "band {band} spans bins {} to {}, but the spectrum has {places} bins: an edge frequency is above \
                     half of the sample rate",
                    triangle[0],
                    triangle[2]
                );
            }
            let [low, middle, high] = triangle.map(|place| place as usize);
            if middle >= places {
                fail!(
                    "the center of band {band} is at bin {middle}, but the spectrum has {places} bins: an edge \
                     frequency is above half of the sample rate"
                );
            }
            let mut set = |place: usize, weight: f64| weights[place * bands + band] = weight;
            for place in low..middle {
                set(place, (place - low) as f64 / (middle - low) as f64);
            }
            if low <= middle {
                set(middle, 1.0);
            }
            for place in middle..high {
                set(place, (high - place) as f64 / (high - middle) as f64);
            }
        }
        let (from, options) = (bytemuck::cast_slice(&weights), CastOptions::default());
        let mut output = call.output(0, self.elem, &dims)?;
        let to = output.bytes_mut();
        Ok(cast_slices(DataType::Double, from, self.elem, to, weights.len(), options)?)
    }

    fn describe(&self) -> String {
        "weights of the mel scale".to_string()
    }
}

/// Factor of the mel scale, which is `2595 log10(1 + hertz / 700)`.
const MEL_SCALE: f64 = 2595.0 / LN_10;

fn mel(hertz: f64) -> f64 {
    MEL_SCALE * (hertz / 700.0).ln_1p()
}

/// Returns the positive number of an optional input.
fn size(call: &Call<'_>, index: usize, name: &str) -> Result<Option<usize>, KernelError> {
    if !call.has_input(index) {
        return Ok(None);
    }
    let given = call.ints(index)?;
    let &[given] = &given[..] else {
        fail!("{name} must have one element, not {}", given.len());
    };
    match usize::try_from(given) {
        Ok(size @ 1..) => Ok(Some(size)),
        _ => fail!("{name} must be positive, not {given}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{run, tensor};

    #[test]
    fn triangles_of_the_mel_scale() {
        let int = |n: i64| tensor(&[], &[n]);
        let weights = |bands: i64, length: i64, rate: i64, edges: [f32; 2]| {
            let edges = edges.map(|edge| tensor(&[], &[edge]));
            let inputs = [int(bands), int(length), int(rate)];
            let inputs: Vec<_> = inputs.iter().chain(&edges).map(Some).collect();
            run("MelWeightMatrix", &[], &inputs, 1)
        };
        // Centres at 0, 194, 442 and 758 Hz: places 0, 3, 7 and 12 of 17, 62.5 Hz apart.
        let found = weights(2, 32, 2000, [0.0, 1160.0]).unwrap();
        let (up, down) = ([0.0f32, 1.0 / 3.0, 2.0 / 3.0], [1.0f32, 0.75, 0.5, 0.25]);
        let second_up = [0.0f32, 0.25, 0.5, 0.75];
        let second_down = [1.0f32, 0.8, 0.6, 0.4, 0.2];
        let mut expected = vec![0f32; 34];
        for (place, weight) in up.iter().chain(&down).enumerate() {
            expected[2 * place] = *weight;
        }
        for (place, weight) in second_up.iter().chain(&second_down).enumerate() {
            expected[2 * (place + 3) + 1] = *weight;
        }
        assert_eq!(found[0], tensor(&[17, 2], &expected));
        let refusal = |bands, length, rate, edges| weights(bands, length, rate, edges).unwrap_err();
        assert_eq!(refusal(0, 32, 2000, [0.0, 9.0]), "num_mel_bins must be positive, not 0");
        assert_eq!(
            refusal(2, 32, 2000, [-1.0, 9.0]),
            "lower_edge_hertz must be a frequency, not -1"
        );
        assert_eq!(
            refusal(2, 32, 2000, [0.0, 4000.0]),
            "band 0 spans bins 0 to 18, but the spectrum has 17 bins: an edge frequency is above half \
             of the sample rate"
        );
    }
}
