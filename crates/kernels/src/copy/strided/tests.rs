//! Compares strided copies with loops over coordinates.

use super::*;
use sardonyx_elementwise::broadcast_strides;
use sardonyx_simd::Pool;

/// Reads each element of the output by its coordinates.
fn naive<T: Plain>(dims: &[usize], start: usize, strides: &[isize], x: &[T]) -> Vec<T> {
    (0..dims.iter().product())
        .map(|at: usize| {
            let (mut rest, mut from) = (at, start as isize);
            for (&dim, &stride) in dims.iter().zip(strides).rev() {
                from += (rest % dim) as isize * stride;
                rest /= dim;
            }
            x[from as usize]
        })
        .collect()
}

fn numbers(n: usize) -> Vec<u32> {
    (0..n as u32).collect()
}

/// Returns all permutations of `0..n`.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for shorter in orders(n - 1) {
        for place in 0..n {
            let mut order = shorter.clone();
            order.insert(place, n - 1);
            all.push(order);
        }
    }
    all
}

#[test]
fn transpositions() {
    for dims in [
        &[][..],
        &[5],
        &[3, 4],
        &[70, 130],
        &[2, 3, 4],
        &[17, 1, 33],
        &[2, 0, 4],
        &[40, 50, 20],
        &[2, 3, 4, 5],
        &[16, 3, 18, 20],
        &[2, 3, 2, 3, 2],
    ] {
        let x = numbers(dims.iter().product());
        let narrow: Vec<u8> = x.iter().map(|&x| x as u8).collect();
        let wide: Vec<u128> = x.iter().map(|&x| u128::from(x) << 70).collect();
        for order in orders(dims.len()) {
            let out: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
            let strides: Vec<isize> = order
                .iter()
                .map(|&axis| dims[axis + 1..].iter().product::<usize>() as isize)
                .collect();
            for threads in [1, 3] {
                let pool = Pool::new(threads);
                let mut y = vec![0; x.len()];
                copy_strided(&pool, &out, 0, &strides, &x, &mut y).unwrap();
                assert_eq!(y, naive(&out, 0, &strides, &x), "{dims:?} {order:?}");
                let mut y = vec![0; x.len()];
                copy_strided(&pool, &out, 0, &strides, &narrow, &mut y).unwrap();
                assert_eq!(y, naive(&out, 0, &strides, &narrow));
                let mut y = vec![0; x.len()];
                copy_strided(&pool, &out, 0, &strides, &wide, &mut y).unwrap();
                assert_eq!(y, naive(&out, 0, &strides, &wide));
            }
        }
    }
}

#[test]
fn slices() {
    for (dims, starts, steps, out) in [
        (&[10][..], &[2][..], &[1][..], &[5][..]),
        (&[10], &[9], &[-1], &[10]),
        (&[10], &[8], &[-3], &[3]),
        (&[4, 6], &[0, 1], &[1, 2], &[4, 3]),
        (&[4, 6], &[3, 5], &[-2, -2], &[2, 3]),
        (&[4, 6], &[3, 0], &[-1, 1], &[4, 6]),
        (&[3, 4, 5], &[1, 0, 4], &[1, 1, -1], &[2, 4, 5]),
        (&[3, 4, 5], &[0, 1, 0], &[1, 2, 1], &[3, 2, 5]),
        (&[3, 4], &[5, 9], &[1, 1], &[0, 4]),
        (&[], &[], &[], &[]),
        (&[200, 300], &[199, 2], &[-1, 1], &[150, 250]),
    ] {
        let x = numbers(dims.iter().product());
        let strides: Vec<isize> =
            (0..dims.len()).map(|d| dims[d + 1..].iter().product::<usize>() as isize).collect();
        let n: usize = out.iter().product();
        // Without elements, `starts` may be out of range.
        let start = match n {
            0 => 0,
            _ => (0..dims.len()).map(|d| starts[d] * strides[d] as usize).sum(),
        };
        let stepped: Vec<isize> = strides.iter().zip(steps).map(|(a, b)| a * b).collect();
        let expected = naive(out, start, &stepped, &x);
        for threads in [1, 2, 3] {
            let mut y = vec![0; n];
            copy_strided(&Pool::new(threads), out, start, &stepped, &x, &mut y).unwrap();
            assert_eq!(y, expected, "{dims:?} {starts:?} {steps:?}");
        }
    }
}

#[test]
fn expansions() {
    for (dims, out) in [
        (&[1][..], &[7][..]),
        (&[], &[2, 3]),
        (&[3, 1], &[2, 3, 4]),
        (&[2, 1, 3], &[2, 5, 3]),
        (&[1, 4], &[0, 4]),
        (&[300, 1], &[300, 200]),
        // Short rows, one of which is the last of a thread's part.
        (&[3001, 1], &[3001, 3]),
        (&[2, 500, 1], &[2, 500, 5]),
        (&[7, 1, 40, 1], &[7, 3, 40, 2]),
        (&[1, 90, 4], &[50, 90, 4]),
    ] {
        let x = numbers(dims.iter().product());
        let mut strides = vec![0; out.len()];
        broadcast_strides(dims, out, &mut strides).expect("broadcasts");
        let strides: Vec<isize> = strides.into_iter().map(|s| s as isize).collect();
        let mut y = vec![0; out.iter().product()];
        copy_strided(&Pool::new(2), out, 0, &strides, &x, &mut y).unwrap();
        assert_eq!(y, naive(out, 0, &strides, &x));
    }
    let mut y = vec![0u16; 50_000];
    fill(&Pool::new(2), 9, &mut y).unwrap();
    assert!(y.iter().all(|&y| y == 9));
}

#[test]
#[should_panic(expected = "too short")]
fn reads_outside_are_refused() {
    copy_strided(&Pool::new(1), &[3], 1, &[-1], &[1u8, 2, 3], &mut [0; 3]).unwrap();
}

#[test]
fn copies_between_strides_reach_their_places_and_no_others() {
    let x = numbers(500);
    // Transposed block into the middle of a larger one, repeated row, reversed row, nothing,
    // scalar, and a large transposition.
    let cases: [(&[usize], usize, &[isize], usize, &[usize], usize); 6] = [
        (&[3, 4, 5], 7, &[5, 15, 1], 10, &[40, 10, 1], 200),
        (&[4, 6], 2, &[0, 1], 3, &[9, 1], 60),
        (&[9], 20, &[-2], 1, &[3], 30),
        (&[3, 0], 0, &[1, 1], 0, &[1, 1], 4),
        (&[], 5, &[], 2, &[], 4),
        (&[33, 65], 0, &[1, 7], 5, &[70, 1], 2400),
    ];
    for (dims, x_start, x_strides, y_start, y_strides, len) in cases {
        for threads in [1, 3] {
            let mut want = vec![u32::MAX; len];
            let values = naive(dims, x_start, x_strides, &x);
            let places = naive(
                dims,
                y_start,
                &y_strides.iter().map(|s| *s as isize).collect::<Vec<_>>(),
                &numbers(len),
            );
            for (place, value) in places.iter().zip(values) {
                want[*place as usize] = value;
            }
            let mut y = vec![u32::MAX; len];
            copy_between(
                &Pool::new(threads),
                dims,
                StridedRef { data: &x, start: x_start, strides: x_strides },
                StridedMut { data: &mut y, start: y_start, strides: y_strides },
            )
            .unwrap();
            assert_eq!(y, want, "{dims:?}, {threads} threads");
        }
    }
}
