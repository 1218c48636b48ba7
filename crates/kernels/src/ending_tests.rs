//! Kernels that open no region of the pool end all the same.

use std::cell::Cell;

use crate::boxes::{Suppression, suppress};
use crate::choose::top_k;
use crate::copy::{Indices, scatter_elements, scatter_nd};
use crate::determinant::determinants;
use crate::fourier::{Lines, Spectrum, Tables, transform};
use crate::unique::{Groups, KeyRows, unique};
use crate::{Ended, Exec, Isa, Pool};

fn mixed(at: usize) -> f32 {
    ((at * 7919) % 10007) as f32
}

/// Whether work ends once it is asked for the third time, and does not without.
fn ends(what: &str, work: impl Fn(&Exec<'_>)) {
    let exec = Exec { pool: &Pool::new(1), isa: Isa::detect() };
    let asked = Cell::new(0);
    let third = || asked.replace(asked.get() + 1) == 2;
    assert_eq!(Pool::until(&third, || work(&exec)), Err(Ended), "{what}");
    assert_eq!(Pool::until(&|| false, || work(&exec)), Ok(()), "{what}");
}

#[test]
fn kernels_without_regions_end() {
    const LEN: usize = 1 << 16;
    let x: Vec<f32> = (0..LEN).map(mixed).collect();
    ends("top_k", |exec| {
        let (mut values, mut positions) = (vec![0.0; 32], vec![0; 32]);
        top_k(exec.pool, true, [32, LEN / 32, 1], 1, &x, &mut values, &mut positions);
    });
    ends("unique", |_| {
        let keys: Vec<u64> = x.iter().map(|x| x.to_bits().into()).collect();
        let (mut order, mut found) = (vec![[0; 2]; LEN], [0; 3].map(|_| vec![0; LEN]));
        let [first, of_row, counts] = &mut found;
        let rows = KeyRows { keys: &keys, width: 1, nan_differs: false };
        unique(rows, true, &mut order, &mut Groups { first, of_row, counts });
    });
    ends("suppress", |exec| {
        let boxes: Vec<f32> =
            (0..1000).flat_map(|at| [at, at, at + 1, at + 1]).map(|at| at as f32).collect();
        let (mut kept, mut counts) = (vec![0; 1000], vec![0]);
        let how = Suppression { overlap: 0.5, score: None };
        suppress(exec, how, [1, 1, 1000], &boxes, &x[..1000], &mut kept, &mut counts);
    });
    ends("determinants", |exec| determinants(exec, 16, &x[..256], &mut [0.0]));
    ends("transform", |exec| {
        let length = 1 << 10;
        let tables = Tables::new(exec.isa, length).expect("memory");
        let spectrum = Spectrum { length, complex: false, inverse: false, half: false };
        let lines = Lines { grid: [1, 1], len: length, x: [0, 0, 1], y: [0, 0, 1] };
        let mut y = vec![0.0; 2 * length];
        transform::<f32>(exec, &tables, spectrum, lines, None, &x[..length], &mut y);
    });
    let indices: Vec<i64> = (0..LEN).map(|at| (at * 5 % LEN) as i64).collect();
    ends("scatter_elements", |_| {
        let mut y = vec![0.0; LEN];
        scatter_elements(|_, x| x, 0, &[LEN], &[LEN], Indices::Long(&indices), &x, &mut y)
            .expect("inside");
    });
    ends("scatter_elements of columns", |_| {
        let (mut y, dims) = (vec![0.0; LEN], [LEN / 2, 2]);
        let indices: Vec<i64> = indices.iter().map(|at| at / 2).collect();
        scatter_elements(|_, x| x, 0, &dims, &dims, Indices::Long(&indices), &x, &mut y)
            .expect("inside");
    });
    ends("scatter_nd", |_| {
        let mut y = vec![0.0; LEN];
        scatter_nd(|_, x| x, &[LEN], 1, &indices, &x, &mut y).expect("inside");
    });
}
