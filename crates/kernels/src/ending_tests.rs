//! Every kernel that can end is ended at random moments. Its outputs begin as poison, and scratch
//! memory is poisoned by [`with_scratch`](sardonyx_simd::buffer::with_scratch) in these builds: a
//! kernel that went on after its end would read poison and fail, or return `Ok` with a wrong
//! output.

mod arrays;
mod elementwise;
mod images;
mod learning;
mod products;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sardonyx_simd::buffer::AnyBits;

use crate::conv::ConvError;
use crate::{Ended, Exec, Failure, Isa, Pool};

/// Elements that several chunks share, even of the cheapest kernel on one thread.
const MANY: usize = 50_000;
/// Ended runs of each kernel, for each number of threads.
const ROUNDS: usize = 6;

/// A call of a kernel that returns the bytes of its outputs.
struct Case {
    /// File and function, such as `kernels/softmax softmax`.
    name: &'static str,
    call: Box<dyn Fn(&Exec<'_>) -> Result<Vec<u8>, Ended>>,
}

/// The end out of the errors of a kernel, of which no other one may occur.
trait OnlyEnded {
    fn only_ended(self) -> Result<(), Ended>;
}

impl OnlyEnded for Result<(), Ended> {
    fn only_ended(self) -> Result<(), Ended> {
        self
    }
}

impl OnlyEnded for Result<(), ConvError> {
    fn only_ended(self) -> Result<(), Ended> {
        self.map_err(|error| match error {
            ConvError::Ended(ended) => ended,
            error => panic!("{error}"),
        })
    }
}

impl<E: std::fmt::Debug> OnlyEnded for Result<(), Failure<E>> {
    fn only_ended(self) -> Result<(), Ended> {
        self.map_err(|failure| match failure {
            Failure::Ended(ended) => ended,
            Failure::Operand(operand) => panic!("{operand:?}"),
        })
    }
}

/// A kernel that writes an output of `len` elements.
fn case<T: AnyBits, R: OnlyEnded>(
    name: &'static str,
    len: usize,
    call: impl Fn(&Exec<'_>, &mut [T]) -> R + 'static,
) -> Case {
    let call = move |exec: &Exec<'_>| {
        let mut bytes = vec![0xaa; len * size_of::<T>() + align_of::<T>()];
        let skipped = bytes.as_ptr().align_offset(align_of::<T>());
        // SAFETY: the elements lie within the bytes, aligned, and any bits are elements.
        let y =
            unsafe { std::slice::from_raw_parts_mut(bytes[skipped..].as_mut_ptr().cast(), len) };
        call(exec, y).only_ended()?;
        Ok(bytes[skipped..][..len * size_of::<T>()].to_vec())
    };
    Case { name, call: Box::new(call) }
}

/// Floats from -1 to 1, no two neighbours equal.
fn floats(len: usize) -> Vec<f32> {
    (0..len).map(|at| ((at * 7919) % 10007) as f32 / 5003.5 - 1.0).collect()
}

/// Indices below `below`.
fn indices(len: usize, below: usize) -> Vec<i64> {
    (0..len).map(|at| (at * 7919 % below) as i64).collect()
}

fn all() -> Vec<Case> {
    [elementwise::cases(), products::cases(), arrays::cases(), images::cases(), learning::cases()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn kernels_end_at_any_moment() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let pools = [1, 3].map(Pool::new);
    for Case { name, call } in all() {
        let exec = |pool| Exec::new(pool, Isa::detect());
        let asked = Cell::new(0);
        let never = || {
            asked.set(asked.get() + 1);
            false
        };
        let expected = Pool::until(&never, || call(&exec(&pools[0])));
        let expected = expected.unwrap_or_else(|_| panic!("{name} ends without a reason"));
        let questions = asked.get();
        assert!(questions > 0, "{name} does not ask whether it is to end");
        for pool in &pools {
            for _ in 0..ROUNDS {
                let (left, ended) = (Cell::new(random(questions)), Cell::new(false));
                let ends = || {
                    ended.set(ended.get() || left.get() == 0);
                    left.set(left.get().saturating_sub(1));
                    ended.get()
                };
                match Pool::until(&ends, || call(&exec(pool))) {
                    Ok(found) => {
                        assert!(!ended.get(), "{name} goes on after its end");
                        assert!(found == expected, "{name} has other bits");
                    }
                    Err(_) => assert!(ended.get(), "{name} ends without a reason"),
                }
            }
            let found = call(&exec(pool)).unwrap_or_else(|_| panic!("{name} ends unasked"));
            assert!(found == expected, "{name} has other bits after a run that ended");
        }
    }
}

/// Public functions of a directory that can end, as names of cases.
fn public_kernels(directory: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() {
            public_kernels(&path, &format!("{prefix}/{stem}"), found);
            continue;
        }
        if stem.ends_with("tests") || stem == "per_type" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for function in text.split("pub fn ").skip(1) {
            let signature = function.split('{').next().unwrap();
            let (name, _) = signature.split_once(['(', '<']).unwrap();
            let result = signature.rsplit_once("->").map_or("", |(_, result)| result);
            let convolves = result.contains("ConvError>")
                && (result.contains("Packed")
                    || result.contains("()")
                        && (signature.contains("pool:") || signature.contains("exec:")));
            if result.contains("Ended>") || result.contains("Failure<") || convolves {
                found.insert(format!("{prefix}/{stem} {name}"));
            }
        }
    }
}

#[test]
fn all_kernels_that_can_end_are_ended() {
    let mut public = BTreeSet::new();
    for crate_name in ["elementwise", "gemm", "kernels"] {
        let directory =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_name).join("src");
        public_kernels(&directory, crate_name, &mut public);
    }
    let ended: BTreeSet<String> = all().iter().map(|case| case.name.to_string()).collect();
    let missing: Vec<&String> = public.difference(&ended).collect();
    assert!(missing.is_empty(), "public kernels without a case: {missing:#?}");
    let unknown: Vec<&String> = ended.difference(&public).collect();
    assert!(unknown.is_empty(), "cases of no public kernel: {unknown:#?}");
}
