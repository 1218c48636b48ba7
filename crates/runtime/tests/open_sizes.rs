//! Random networks over images of symbolic sizes, down to one pixel and to none: results are equal
//! with all rewrites and without any.
//!
//! `NETWORKS=5000` runs that many networks and prints the first seed, which `NETWORKS_SEED` sets.
//! `NETWORKS_INTO=DIRECTORY` also writes models, inputs and outputs, for other runtimes.

use std::env::var;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sardonyx_runtime::{Optimization, RunError, Session};
use sardonyx_tensor::{Buffer, Value, npy};
use sardonyx_text::{ParseOptions, parse_model};

use crate::both_ways::{Both, Numbers, bits, check_equal, compile, complete, constant, inputs};
use crate::networks::{self, Network};

/// Number of networks in a usual run of tests.
const FEW: u64 = 300;

/// Maximum difference of two results, relative to the largest number of an output.
const TOLERANCE: f64 = 2e-5;

/// Numbers of images, and sizes of axes, of runs besides the one that a network is written for.
const IMAGES: [usize; 4] = [1, 1, 2, 0];
const SIZES: [usize; 8] = [1, 1, 1, 2, 3, 5, 6, 0];

/// Returns the number of networks, and the seed of the first.
fn settings() -> (u64, u64) {
    let number = |name: &str| var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let count = number("NETWORKS");
    let seed = number("NETWORKS_SEED").unwrap_or_else(|| match count {
        None => 1,
        Some(_) => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(1, |now| now.as_secs())
        }
    });
    if let Some(count) = count {
        println!("NETWORKS={count} NETWORKS_SEED={seed}");
    }
    (count.unwrap_or(FEW), seed)
}

/// Returns the sizes of the runs of a network: those that it is written for, others, and the first
/// ones again, to reuse memory of the others.
fn runs(network: &Network, random: &mut Numbers) -> Vec<Vec<(String, usize)>> {
    let with_images = |images: usize, sizes: Vec<(String, usize)>| -> Vec<(String, usize)> {
        [("n".to_string(), images)].into_iter().chain(sizes).collect()
    };
    let images = [1, 1, 2, 3][random.number_below(4)];
    let first = with_images(images, network.sizes.clone());
    let mut runs = vec![first.clone()];
    for turn in 0..3 {
        let mut size = |name: &String| (name.clone(), SIZES[random.number_below(SIZES.len())]);
        let mut sizes: Vec<(String, usize)> =
            network.sizes.iter().map(|(name, _)| size(name)).collect();
        if turn == 0 {
            sizes.iter_mut().for_each(|(_, size)| *size = 1);
        }
        runs.push(with_images(IMAGES[random.number_below(IMAGES.len())], sizes));
    }
    runs.push(first);
    runs
}

/// Session with all rewrites, and one without any.
struct Sides {
    plain: Session,
    fused: Session,
    text: String,
    /// Directory for models and values, if any.
    into: Option<PathBuf>,
}

impl Sides {
    /// Runs both for some sizes and returns the outputs of the session with rewrites, if the other
    /// one has outputs.
    fn run(&self, sizes: &[(String, usize)], turn: usize) -> Option<Vec<Vec<u8>>> {
        let sizes: Vec<(&str, usize)> =
            sizes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        let given = inputs(&self.plain, &sizes, 1);
        let (plain, fused) = (self.plain.run(given.clone()), self.fused.run(given.clone()));
        for error in [&plain, &fused].into_iter().filter_map(|ran| ran.as_ref().err()) {
            assert!(!matches!(error, RunError::Internal(_)), "{sizes:?}: {error}\n{}", self.text);
        }
        match (plain, fused) {
            (Ok(plain), Ok(fused)) => {
                if let Some(into) = &self.into {
                    write_values(into, &format!("{turn}.in"), &given);
                    write_values(into, &format!("{turn}.out"), &fused);
                }
                check_equal(&plain, &fused, TOLERANCE, &format!("{sizes:?}\n{}", self.text));
                Some(bits(&fused))
            }
            (Ok(_), Err(error)) => {
                panic!("{sizes:?}: only the session with rewrites fails: {error}\n{}", self.text)
            }
            // A node without readers may fail.
            (Err(error), _) => {
                assert!(turn > 0, "{sizes:?}: {error}\n{}", self.text);
                None
            }
        }
    }
}

fn write_values(into: &Path, name: &str, values: &[(String, Value)]) {
    for (index, (_, value)) in values.iter().enumerate() {
        let bytes = npy::write(value.as_tensor().unwrap()).unwrap();
        fs::write(into.join(format!("{name}.{index}.npy")), bytes).unwrap();
    }
}

/// Writes the network of a seed and runs it for several sizes. Returns the number of runs.
fn check(seed: u64, into: Option<&Path>) -> usize {
    let network = networks::open_network(seed);
    let text = complete(&network.graph);
    let into = into.map(|into| into.join(seed.to_string()));
    if let Some(into) = &into {
        fs::create_dir_all(into).unwrap();
        let parsed =
            parse_model(Buffer::from_vec(text.clone().into_bytes()), ParseOptions::default());
        fs::write(into.join("model.onnx"), parsed.unwrap().model.to_bytes()).unwrap();
    }
    let threads = 1 + seed as usize % 2;
    let (plain, fused) =
        (compile(&text, Optimization::Off, 1), compile(&text, Optimization::All, threads));
    let sides = Sides { plain, fused, text, into };
    let runs = runs(&network, &mut Numbers::new(seed ^ 0x5eed));
    let found: Vec<_> =
        runs.iter().enumerate().map(|(turn, sizes)| sides.run(sizes, turn)).collect();
    assert!(found.first() == found.last(), "the first run is not repeated\n{}", sides.text);
    found.iter().flatten().count()
}

#[test]
fn random_networks_of_open_sizes_give_the_same_as_without_rewrites() {
    let (count, first) = settings();
    let into = var("NETWORKS_INTO").ok().map(PathBuf::from);
    let (mut ran, mut failed) = (0, Vec::new());
    for seed in first..first + count {
        match catch_unwind(AssertUnwindSafe(|| check(seed, into.as_deref()))) {
            Ok(runs) => ran += runs,
            Err(_) => failed.push(seed),
        }
    }
    println!("{count} networks, {ran} runs that give outputs, {} that differ", failed.len());
    assert!(failed.is_empty(), "the networks of these seeds differ: {failed:?}");
    assert!(ran as u64 > 3 * count, "only {ran} of {} runs give outputs", 5 * count);
}

/// Writes the nodes of weights of these dimensions, all elements equal.
fn weights(name: &str, dims: &[usize]) -> String {
    let (rank, dims) = (dims.len(), dims.iter().map(usize::to_string).collect::<Vec<_>>());
    format!(
        "{name}s = Constant <value = int64[{rank}] {{{}}}> ()
         {name} = ConstantOfShape <value = float[1] {{0.3}}> ({name}s)\n",
        dims.join(", ")
    )
}

/// Checks a graph of an input with a symbolic size for each axis after the channels, and of
/// `nodes`; weights come from [`weights`].
fn agree(channels: usize, sizes: &[&[usize]], constants: &[(&str, &[usize])], nodes: &str) {
    let constants: String = constants.iter().map(|(name, dims)| weights(name, dims)).collect();
    let names = ["n", "h", "k"];
    let spatial = names[1..sizes[0].len()].join(", ");
    let both = Both::new(&format!(
        "g (float[n, {channels}, {spatial}] x, float[n, 1, {spatial}] m) => (y, z) {{
         {constants} {nodes} }}"
    ));
    for sizes in sizes {
        let sizes: Vec<(&str, usize)> = names.into_iter().zip(sizes.iter().copied()).collect();
        both.agree(&sizes);
    }
}

#[test]
fn an_operand_may_have_fewer_axes_than_an_image_of_one_pixel() {
    let weights: &[(&str, &[usize])] = &[("w", &[8, 8, 1]), ("v", &[8, 1])];
    for function in ["PRelu", "Min"] {
        let nodes = format!("a = Conv (x, w) b = {function} (a, v) y = Conv (b, w) z = Relu (y)");
        agree(8, &[&[1, 1], &[1, 3], &[2, 1]], weights, &nodes);
    }
}

#[test]
fn images_of_one_channel_span_all_lanes() {
    let weights: &[(&str, &[usize])] =
        &[("u", &[8, 8, 1, 1]), ("w", &[1, 8, 1, 1]), ("t", &[8, 9, 1, 1])];
    let sizes: &[&[usize]] = &[&[1, 1, 1], &[3, 1, 1], &[3, 1, 5], &[0, 2, 1]];
    for function in ["b = Abs (a)", "g = GlobalAveragePool (a) d = Add (a, g) b = Neg (d)"] {
        let nodes = format!(
            "p = Conv (x, u) a = Conv (p, w) {function}
             c = Concat <axis = 1> (p, b) y = Conv (c, t) z = Relu (y)"
        );
        agree(8, sizes, weights, &nodes);
    }
}

#[test]
fn features_of_one_pixel_are_as_long_as_its_channels() {
    let nodes = "a = Conv (x, w) b = Conv (a, w) t = Transpose <perm = [0, 2, 1]> (b)
        y = LayerNormalization (t, s) c = Relu (b) z = Conv (c, w)";
    agree(8, &[&[1, 1], &[2, 1], &[1, 3]], &[("w", &[8, 8, 1]), ("s", &[8])], nodes);
}

#[test]
fn images_without_pixels_are_split_and_joined() {
    let nodes = "a = Conv (x, w) b, c = Split <axis = 1, num_outputs = 2> (a)
        d = Conv <pads = [1, 1, 1, 1]> (c, v) e = HardSwish (d) f = Add (c, e)
        j = Concat <axis = 1> (b, c, f) y = Conv (j, u) z = Relu (y)";
    let weights: &[(&str, &[usize])] =
        &[("w", &[16, 8, 1, 1]), ("v", &[8, 8, 3, 3]), ("u", &[8, 24, 1, 1])];
    agree(8, &[&[1, 2, 0], &[2, 0, 3], &[0, 0, 1], &[2, 1, 1]], weights, nodes);
}

#[test]
fn a_mask_stays_behind_the_axis_that_is_taken_away() {
    let nodes = "two = Constant <value = int64[1] {2}> ()
        a = Unsqueeze (x, two) b = Conv <pads = [0, 1, 0, 1]> (a, w) c = Relu (b)
        d = Squeeze (c, two) y = Mul (d, m) z = Add (y, m)";
    agree(5, &[&[1, 1], &[2, 4], &[1, 0]], &[("w", &[1, 5, 1, 3])], nodes);
}

#[test]
fn shuffles_of_nothing_have_the_sizes_of_their_reshapes() {
    let nodes = "r = Constant <value = int64[4] {0, 3, 3, -1}> ()
        a = Conv (x, w) s = Shape (a) b = Reshape (a, r) c = Transpose <perm = [0, 2, 1, 3]> (b)
        d = Reshape (c, s) y = Relu (d) z = Conv (x, w)";
    agree(2, &[&[0, 0], &[2, 4], &[1, 1]], &[("w", &[9, 2, 1])], nodes);
}

/// Checks weights that are packed in forms that depend on the sizes of a run, and kept for the next
/// one: of transposed convolutions, and of convolutions with computed padding.
#[test]
fn sums_do_not_depend_on_earlier_sizes() {
    for node in [
        "ConvTranspose <strides = [2, 2]> (x, w)",
        "Conv <strides = [3, 3], auto_pad = \"SAME_UPPER\"> (x, v)",
    ] {
        let text = complete(&format!(
            "g (float[N, 16, H, W] x) => (y) {{ {} {} y = {node} }}",
            constant("w", &[16, 3, 3, 3]),
            constant("v", &[3, 16, 1, 1]),
        ));
        let warm = compile(&text, Optimization::All, 1);
        for side in [4, 40, 41, 4, 7, 8, 40] {
            let given =
                |session: &Session| inputs(session, &[("N", 1), ("H", side), ("W", side)], 7);
            let cold = compile(&text, Optimization::All, 1);
            let cold = cold.run(given(&cold)).unwrap();
            assert_eq!(bits(&warm.run(given(&warm)).unwrap()), bits(&cold), "{node}, {side}");
        }
    }
}
