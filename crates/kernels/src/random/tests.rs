//! Compares random numbers with those of numpy 2.4, and checks moments of their distributions.

use half::{bf16, f16};

use super::*;
use sardonyx_simd::{Isa, Pool};

fn serial() -> Exec<'static> {
    Exec::new(Pool::serial(), Isa::detect())
}

fn mt(seed: u32) -> Generator {
    Generator::Mt19937(Mt19937::new(seed))
}

fn philox(seed: u64) -> Generator {
    Generator::Philox(Philox::new(seed, [1, 2, 3, 4]))
}

/// Draws numbers on one thread and on two, and checks that they are equal.
fn draw_numbers<T: Number>(
    generator: &Generator,
    len: usize,
    draw: impl Fn(&Exec<'_>, Generator, &mut [T]),
) -> Vec<T> {
    let [one, two] = [(1, Isa::Portable), (2, Isa::detect())].map(|(threads, isa)| {
        let mut y = vec![T::ZERO; len];
        draw(&Exec::new(&Pool::new(threads), isa), generator.clone(), &mut y);
        y
    });
    assert_eq!(one, two);
    one
}

fn uniforms<T: Number>(generator: &Generator, len: usize, range: f64, low: f64) -> Vec<T> {
    draw_numbers(generator, len, |exec, generator, y| {
        uniform(exec, generator, range, low, y).unwrap();
    })
}

fn normals<T: Number>(generator: &Generator, len: usize, scale: f64, mean: f64) -> Vec<T> {
    draw_numbers(generator, len, |exec, generator, y| {
        normal(exec, generator, scale, mean, y).unwrap();
    })
}

/// Checks a number up to the last bit, in which implementations of libm differ.
fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-15 * expected.abs().max(1.0), "{found} {expected}");
}

/// Seed, `rand(3)`, `rand(70001)[-1]`, `randn(3)`, `randn(70001)[-1]`.
type Row = (u32, [f64; 3], f64, [f64; 3], f64);

const NUMPY: [Row; 4] = [
    (
        0,
        [0.5488135039273248, 0.7151893663724195, 0.6027633760716439],
        0.6324734974438964,
        [1.764052345967664, 0.4001572083672233, 0.9787379841057392],
        -1.8614654395463328,
    ),
    (
        1,
        [0.417022004702574, 0.7203244934421581, 0.00011437481734488664],
        0.32056254835728926,
        [1.6243453636632417, -0.6117564136500754, -0.5281717522634557],
        -0.8974134314566076,
    ),
    (
        42,
        [0.3745401188473625, 0.9507143064099162, 0.7319939418114051],
        0.04266110233556686,
        [0.4967141530112327, -0.13826430117118466, 0.6476885381006925],
        0.32015240783946475,
    ),
    (
        u32::MAX,
        [0.0976320289940138, 0.9123828453026218, 0.78903530185164],
        0.20261073973575594,
        [0.6484086742306527, 0.6693235306338161, -1.0805437227474493],
        -0.2781233440532718,
    ),
];

#[test]
fn the_numbers_of_numpy() {
    for (seed, first, last, first_normal, last_normal) in NUMPY {
        let found = uniforms::<f64>(&mt(seed), 70_001, 1.0, 0.0);
        assert_eq!(found[..3], first, "{seed}");
        assert_eq!(found[70_000], last, "{seed}");
        let found = normals::<f64>(&mt(seed), 70_001, 1.0, 0.0);
        first_normal.iter().zip(&found).for_each(|(expected, found)| close(*found, *expected));
        close(found[70_000], last_normal);
        assert_eq!(uniforms::<f64>(&mt(seed), 3, 1.0, 0.0), first);
        close(normals::<f64>(&mt(seed), 3, 1.0, 0.0)[2], first_normal[2]);
    }
}

#[test]
fn numbers_are_rounded_to_the_type_of_the_output() {
    // As `x = rand(6).astype(type); x *= high - low; x += low`, where both are 32-bit floats.
    let (low, high) = (f64::from(-1.1f32), f64::from(3.3f32));
    let (scale, mean) = (f64::from(2.7f32), f64::from(0.3f32));
    // In the type of the array, but for bfloat16, which numpy does not know.
    fn check<T: Number>(bounds: [f64; 4], even: [f64; 6], normal: [f64; 6]) {
        let is_known = T::from_f64(257.0).to_f64() == 257.0;
        let rounded = |bound: f64| if is_known { T::from_f64(bound).to_f64() } else { bound };
        let [low, range, scale, mean] = bounds.map(rounded);
        let found = uniforms::<T>(&mt(7), 6, range, low);
        assert_eq!(found, even.map(T::from_f64));
        let found = normals::<T>(&mt(7), 6, scale, mean);
        found.iter().zip(normal).for_each(|(found, expected)| close(found.to_f64(), expected));
    }
    let bounds = [low, high - low, scale, mean];
    check::<f16>(
        bounds,
        [-0.763671875, 2.330078125, 0.8291015625, 2.083984375, 3.201171875, 1.26953125],
        [4.86328125, -0.9580078125, 0.388671875, 1.3994140625, -1.8291015625, 0.3056640625],
    );
    check::<bf16>(
        bounds,
        [-0.765625, 2.34375, 0.8203125, 2.09375, 3.21875, 1.2734375],
        [4.875, -0.95703125, 0.388671875, 1.3984375, -1.828125, 0.3046875],
    );
    check::<f32>(
        bounds,
        [
            -0.7642435431480408,
            2.3316426277160645,
            0.82900071144104,
            2.0832467079162598,
            3.2031540870666504,
            1.2693818807601929,
        ],
        [
            4.864419460296631,
            -0.9580308794975281,
            0.3886144757270813,
            1.4002940654754639,
            -1.830092191696167,
            0.3055770695209503,
        ],
    );
    check::<f64>(
        bounds,
        [
            -0.7642435524157778,
            2.3316426434199333,
            0.829000584045583,
            2.0832467413655293,
            3.2031538056261066,
            1.2693817931253082,
        ],
        [
            4.864419492792438,
            -0.9580309107569447,
            0.3886144554180942,
            1.4002939954433906,
            -1.830092202987347,
            0.3055770588654831,
        ],
    );
}

#[test]
fn moments() {
    let moments = |numbers: &[f64]| {
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let fourth = numbers.iter().map(|x| (x - mean).powi(4)).sum::<f64>() / count;
        (mean, variance, fourth / (variance * variance))
    };
    const COUNT: usize = 200_001;
    for generator in [mt(3), philox(3), philox(4)] {
        let (mean, variance, kurtosis) = moments(&uniforms(&generator, COUNT, 4.0, -1.0));
        assert!((mean - 1.0).abs() < 0.015, "{mean}");
        assert!((variance - 16.0 / 12.0).abs() < 0.015, "{variance}");
        assert!((kurtosis - 1.8).abs() < 0.015, "{kurtosis}");
        let (mean, variance, kurtosis) = moments(&normals(&generator, COUNT, 2.0, -1.0));
        assert!((mean + 1.0).abs() < 0.025, "{mean}");
        assert!((variance - 4.0).abs() < 0.07, "{variance}");
        assert!((kurtosis - 3.0).abs() < 0.06, "{kurtosis}");
        let found = normals::<f64>(&generator, COUNT, 1.0, 0.0);
        let together: f64 = found.windows(2).map(|pair| pair[0] * pair[1]).sum();
        assert!((together / COUNT as f64).abs() < 0.012, "{together}");
    }
}

#[test]
fn numbers_of_philox_stay_below_the_bound() {
    fn check<T: Number>(bits: u32) {
        assert_eq!(bits_below_one::<T>(), bits);
        let found = uniforms::<T>(&philox(9), 100_000, 1.0, 0.0);
        assert!(found.iter().all(|x| *x >= T::ZERO && *x < T::ONE));
        let greatest = found.iter().map(|x| x.to_f64()).fold(0.0, f64::max);
        assert!(greatest > 0.99, "{greatest}");
    }
    check::<f16>(11);
    check::<bf16>(8);
    check::<f32>(24);
    check::<f64>(53);
}

#[test]
fn trials() {
    let p = [0.0, 1.0, 0.5, 0.25, 0.75, 0.1, 0.9, 0.3, 0.6, 0.45];
    let tried = |generator: &Generator, p: &[f64]| {
        draw_numbers(generator, p.len(), |exec, generator, y| {
            bernoulli(exec, generator, p, y).expect("probabilities");
        })
    };
    // `RandomState(3).binomial(1, p)`, and its sum for 8,000 repetitions.
    assert_eq!(tried(&mt(3), &p), [0u8, 1, 0, 0, 0, 0, 1, 0, 1, 0]);
    let many = p.repeat(8_000);
    let sum = |y: Vec<u8>| y.into_iter().map(u64::from).sum::<u64>();
    assert_eq!(sum(tried(&mt(3), &many)), 38_848);
    assert!(sum(tried(&philox(3), &many)).abs_diff(38_800) < 500);
    for p in [-0.1, 1.5, f64::NAN] {
        let refused = bernoulli(&serial(), mt(0), &[0.5, p], &mut [0u8; 2]);
        assert_eq!(refused, Err(Failure::Operand(1)));
    }
}

#[test]
fn what_drops_and_what_stays() {
    // `RandomState(0).rand(4)` is 0.5488, 0.7152, 0.6028, 0.5449.
    let x = [1.0f32, -2.0, -3.0, f32::INFINITY];
    let (mut y, mut mask) = ([0.0; 4], [0u8; 4]);
    let exec = &serial();
    dropout(exec, mt(0), 0.6, 2.5, &x, &mut y, Some(&mut mask)).unwrap();
    assert_eq!((&y[..3], mask), (&[0.0, -5.0, -7.5][..], [0, 1, 1, 0]));
    assert!(y[3].is_nan());
    let x = vec![f16::ONE; 100_000];
    for generator in [mt(1), philox(1)] {
        let y = draw_numbers(&generator, x.len(), |exec, generator, y| {
            dropout(exec, generator, 0.25, 4.0 / 3.0, &x, y, None::<&mut [bool]>).unwrap();
        });
        let kept = y.iter().filter(|y| **y != f16::ZERO).count();
        assert!(kept.abs_diff(75_000) < 700, "{kept}");
    }
}

#[test]
fn classes() {
    let none = f32::NEG_INFINITY;
    let logits = [0.0, 1.0, 2.0, none, 3.0, 3.0, 3.0, 3.0, -5.0, 0.0, -5.0, -5.0f32];
    // `searchsorted(cumsum(exp(x - x.max())), u * total, side="right")`, u of `RandomState(5)`.
    let expected =
        [[1, 2, 1, 2, 2, 2, 2, 2i32], [1, 0, 0, 2, 1, 0, 3, 1], [1, 1, 1, 1, 1, 1, 1, 1]];
    let draw = |generator: &Generator, samples: usize| {
        draw_numbers::<i32>(generator, 3 * samples, |exec, generator, y| {
            let sizes = SampleDims { rows: 3, classes: 4, samples };
            multinomial(exec, generator, &logits, sizes, y).expect("weights");
        })
    };
    assert_eq!(draw(&mt(5), 8), expected.concat());
    for generator in [mt(6), philox(6)] {
        let found = draw(&generator, 50_000);
        let share = |row: usize, class: i32| {
            let row = &found[row * 50_000..][..50_000];
            row.iter().filter(|found| **found == class).count() as f64 / 50_000.0
        };
        assert!((share(0, 2) - 0.6652).abs() < 0.01);
        assert_eq!(share(0, 3), 0.0);
        assert!((share(1, 3) - 0.25).abs() < 0.01);
    }
    for logits in [[none, none], [0.0, f32::INFINITY], [f32::NAN, 0.0]] {
        let mut y = [0i64; 2];
        let both = [[1.0, 1.0], logits].concat();
        let refused = multinomial(
            &serial(),
            mt(0),
            &both,
            SampleDims { rows: 2, classes: 2, samples: 1 },
            &mut y,
        );
        assert_eq!(refused, Err(Failure::Operand(1)));
    }
    let no_classes = SampleDims { rows: 1, classes: 0, samples: 0 };
    let refused = multinomial::<f32, i32>(&serial(), mt(0), &[], no_classes, &mut []);
    assert_eq!(refused, Err(Failure::Operand(0)));
}

#[test]
fn no_numbers_at_all() {
    for generator in [mt(1), philox(1)] {
        assert_eq!(uniforms::<f32>(&generator, 0, 1.0, 0.0), []);
        assert_eq!(normals::<f32>(&generator, 0, 1.0, 0.0), []);
    }
}
