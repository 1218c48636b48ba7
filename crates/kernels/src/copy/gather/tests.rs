//! Checks look-ups and updates on tables small enough to check by eye, and on one large enough for
//! threads.

use super::Indices::{Long, Short};
use super::*;
use sardonyx_simd::Pool;

#[test]
fn gathers_along_an_axis() {
    let x: Vec<u32> = (0..24).collect();
    for threads in [1, 3] {
        let pool = Pool::new(threads);
        let mut y = [0; 12];
        gather(&pool, [2, 3, 4].into(), &x, Long(&[-1]), &mut y[..8]).expect("in range");
        assert_eq!(y[..8], [8, 9, 10, 11, 20, 21, 22, 23]);
        gather(&pool, [8, 3, 1].into(), &x, Short(&[2]), &mut y[..8]).expect("in range");
        assert_eq!(y[..8], [2, 5, 8, 11, 14, 17, 20, 23]);
        gather(&pool, [1, 6, 4].into(), &x, Long(&[5, 0, 5]), &mut y).expect("in range");
        assert_eq!(y, [20, 21, 22, 23, 0, 1, 2, 3, 20, 21, 22, 23]);
        gather(&pool, [2, 3, 4].into(), &x, Long(&[]), &mut []).expect("in range");
        gather(&pool, [2, 3, 0].into(), &[] as &[u32], Long(&[1]), &mut []).expect("in range");
        for bad in [3, -4, i64::MIN, i64::MAX] {
            let result = gather(&pool, [2, 3, 4].into(), &x, Long(&[0, bad]), &mut [0; 16]);
            assert_eq!(result, Err(Failure::Operand(IndexOutOfRange { index: bad, dim: 3 })));
        }
        let table: Vec<u32> = (0..3000).collect();
        let indices: Vec<i64> = (0..70_000).map(|i| i * 7919 % 3000).collect();
        let mut y = vec![0; 70_000];
        gather(&pool, [1, 3000, 1].into(), &table, Long(&indices), &mut y).expect("in range");
        assert!(y.iter().zip(&indices).all(|(&y, &i)| i64::from(y) == i));
        let mut y = vec![0; 70_000 * 3];
        gather(
            &pool,
            [1, 1000, 3].into(),
            &table,
            Long(&indices.iter().map(|i| i % 1000).collect::<Vec<_>>()),
            &mut y,
        )
        .expect("in range");
        assert!(
            y.iter()
                .enumerate()
                .all(|(at, &y)| i64::from(y) == indices[at / 3] % 1000 * 3 + at as i64 % 3)
        );
    }
}

#[test]
fn elements() {
    let pool = Pool::new(1);
    let x = [1u64, 2, 3, 4, 5, 6, 7, 8, 9];
    let mut y = [0; 6];
    gather_elements(&pool, 0, &[3, 3], &x, &[2, 3], Long(&[1, 2, 0, -1, 0, 0]), &mut y)
        .expect("in range");
    assert_eq!(y, [4, 8, 3, 7, 2, 3]);
    gather_elements(&pool, 1, &[3, 3], &x, &[2, 3], Short(&[1, 2, 0, -1, 0, 0]), &mut y)
        .expect("in range");
    assert_eq!(y, [2, 3, 1, 6, 4, 4]);
    let result = gather_elements(&pool, 1, &[3, 3], &x, &[1, 1], Long(&[3]), &mut y[..1]);
    assert_eq!(result, Err(Failure::Operand(IndexOutOfRange { index: 3, dim: 3 })));

    let mut y = [0; 9];
    scatter_elements(
        None,
        0,
        &[3, 3],
        &[2, 3],
        Long(&[1, 0, 2, 0, 2, 1]),
        &[10, 11, 12, 20, 21, 22],
        &mut y,
    )
    .expect("in range");
    assert_eq!(y, [20, 11, 0, 10, 0, 22, 0, 21, 12]);
    let mut y = [1, 2, 3, 4, 5];
    scatter_elements(Some(|a, b| a + b), 0, &[5], &[3], Long(&[1, 1, -1]), &[10, 20, 30], &mut y)
        .expect("in range");
    assert_eq!(y, [1, 32, 3, 4, 35]);
    // Along the last axis, with as many rows and with fewer.
    let mut y = [0; 6];
    let indices = [2, 0, -1, -1];
    scatter_elements(
        Some(|a, b| a + b),
        1,
        &[2, 3],
        &[2, 2],
        Short(&indices),
        &[1, 2, 3, 4],
        &mut y,
    )
    .expect("in range");
    assert_eq!(y, [2, 0, 1, 0, 0, 7]);
    scatter_elements(None, 1, &[2, 3], &[1, 3], Long(&[1, 2, 0]), &[5, 6, 7], &mut y)
        .expect("in range");
    assert_eq!(y, [7, 5, 6, 0, 0, 7]);
    scatter_elements(None, 1, &[2, 0], &[2, 0], Long(&[]), &[], &mut [0u8; 0]).expect("no index");
    let result = scatter_elements(None, 1, &[2, 3], &[2, 1], Long(&[0, 3]), &[1, 1], &mut y);
    assert_eq!(result, Err(Failure::Operand(IndexOutOfRange { index: 3, dim: 3 })));
}

/// Checks every axis with indices that have all of the other dims, or parts of some.
#[test]
fn elements_of_every_axis_and_part() {
    let dims = [3, 4, 5, 2];
    let x: Vec<u32> = (0..120).collect();
    let pool = Pool::new(3);
    let parts =
        [[3, 4, 5, 2], [2, 4, 5, 2], [3, 3, 5, 2], [3, 4, 1, 2], [1, 2, 3, 1], [3, 1, 5, 2]];
    for (axis, part) in (0..4).flat_map(|axis| parts.map(|part| (axis, part))) {
        let mut index_dims = part;
        index_dims[axis] = 7;
        let len = index_dims.iter().product();
        let indices: Vec<i64> = (0..len as i64).map(|i| i * 5 % dims[axis] as i64).collect();
        let places: Vec<usize> = (0..len)
            .map(|at| {
                let (mut rest, mut coordinates) = (at, [0; 4]);
                for d in (0..4).rev() {
                    (coordinates[d], rest) = (rest % index_dims[d], rest / index_dims[d]);
                }
                coordinates[axis] = indices[at] as usize;
                coordinates.iter().zip(dims).fold(0, |place, (at, dim)| place * dim + at)
            })
            .collect();
        let mut y = vec![0; len];
        gather_elements(&pool, axis, &dims, &x, &index_dims, Long(&indices), &mut y).unwrap();
        assert!(y.iter().zip(&places).all(|(y, place)| *y == x[*place]), "{axis} {index_dims:?}");
        let (mut sums, mut expected) = (x.clone(), x.clone());
        y.iter().zip(&places).for_each(|(y, place)| expected[*place] += y);
        let add: ScatterInto<u32> = Some(|a, b| a + b);
        scatter_elements(add, axis, &dims, &index_dims, Long(&indices), &y, &mut sums).unwrap();
        assert_eq!(sums, expected, "{axis} {index_dims:?}");
    }
}

#[test]
fn tuples() {
    let pool = Pool::new(2);
    let x = [0u8, 1, 2, 3];
    let mut y = [9; 4];
    gather_nd(&pool, &[2, 2], 0, 2, &x, &[0, 0, 1, -1], &mut y[..2]).expect("in range");
    assert_eq!(y[..2], [0, 3]);
    gather_nd(&pool, &[2, 2], 0, 1, &x, &[1, 0], &mut y).expect("in range");
    assert_eq!(y, [2, 3, 0, 1]);
    let x = [0, 1, 2, 3, 4, 5, 6, 7];
    gather_nd(&pool, &[2, 2, 2], 1, 1, &x, &[1, 0], &mut y).expect("in range");
    assert_eq!(y, [2, 3, 4, 5]);
    let result = gather_nd(&pool, &[2, 2, 2], 0, 2, &x, &[0, 2], &mut y[..2]);
    assert_eq!(result, Err(Failure::Operand(IndexOutOfRange { index: 2, dim: 2 })));
    gather_nd(&pool, &[2, 0], 0, 1, &[] as &[u8], &[1], &mut []).expect("in range");

    let mut y = [1, 2, 3, 4, 5, 6, 7, 8];
    scatter_nd(None, &[8], 1, &[4, 3, 1, 7], &[9, 10, 11, 12], &mut y).expect("in range");
    assert_eq!(y, [1, 11, 3, 10, 9, 6, 7, 12]);
    let mut y = [1, 1, 1, 1];
    scatter_nd(Some(|a, b| a * b), &[2, 2], 1, &[1, 1], &[2, 3, 4, 5], &mut y).expect("in range");
    assert_eq!(y, [1, 1, 8, 15]);
    // Tuples of 0 indices select the whole.
    scatter_nd(Some(|a, b| a + b), &[2, 2], 0, &[], &[1, 2, 3, 4, 1, 1, 1, 1], &mut y)
        .expect("no index");
    assert_eq!(y, [3, 4, 12, 20]);
    scatter_nd(None, &[], 0, &[], &[7], &mut y[..1]).expect("no index");
    assert_eq!(y, [7, 4, 12, 20]);
    let result = scatter_nd(None, &[2, 2], 1, &[-3], &[2, 3], &mut y);
    assert_eq!(result, Err(Failure::Operand(IndexOutOfRange { index: -3, dim: 2 })));
}
