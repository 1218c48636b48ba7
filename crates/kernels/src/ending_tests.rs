//! Cancels each kernel that can be cancelled at random moments. Outputs begin as poison, and
//! [`with_scratch`](sardonyx_simd::buffer::with_scratch) poisons scratch memory in these builds: a
//! kernel that continued after its cancellation would read poison and fail, or return `Ok` with a
//! wrong output.

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

/// Value: elements that several chunks share, even in the cheapest kernel on one thread.
const MANY: usize = 50_000;
/// Value: cancelled runs of each kernel, for each number of threads.
const ROUNDS: usize = 6;

/// Call of a kernel, which returns the bytes of its outputs.
struct Case {
    /// File and function, such as `kernels/softmax softmax`.
    name: &'static str,
    call: Box<dyn Fn(&Exec<'_>) -> Result<Vec<u8>, Ended>>,
}

/// Error type of a kernel, of which only cancellation may occur.
trait OnlyEnded {
    /// Returns the cancellation; panics on any other error.
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

/// Creates the case of a kernel that writes an output of `len` elements.
fn case<T: AnyBits, R: OnlyEnded>(
    name: &'static str,
    len: usize,
    call: impl Fn(&Exec<'_>, &mut [T]) -> R + 'static,
) -> Case {
    let call = move |exec: &Exec<'_>| {
        let mut bytes = vec![0xaa; len * size_of::<T>() + align_of::<T>()];
        let skipped = bytes.as_ptr().align_offset(align_of::<T>());
        // SAFETY: the elements lie within the bytes and are aligned, and any bits are valid
        // elements.
        let y =
            unsafe { std::slice::from_raw_parts_mut(bytes[skipped..].as_mut_ptr().cast(), len) };
        call(exec, y).only_ended()?;
        Ok(bytes[skipped..][..len * size_of::<T>()].to_vec())
    };
    Case { name, call: Box::new(call) }
}

/// Returns floats from -1 to 1, no two neighbours of which are equal.
fn floats(len: usize) -> Vec<f32> {
    (0..len).map(|at| ((at * 7919) % 10007) as f32 / 5003.5 - 1.0).collect()
}

/// Returns indices below `below`.
fn indices(len: usize, below: usize) -> Vec<i64> {
    (0..len).map(|at| (at * 7919 % below) as i64).collect()
}

/// Returns the cases of all kernels.
fn all_cases() -> Vec<Case> {
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
    for Case { name, call } in all_cases() {
        let exec = |pool| Exec::new(pool, Isa::detect());
        let asked = Cell::new(0);
        let never = || {
            asked.set(asked.get() + 1);
            false
        };
        let expected = Pool::run_until(&never, || call(&exec(&pools[0])));
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
                match Pool::run_until(&ends, || call(&exec(pool))) {
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

/// Finds the public functions of a directory that can be cancelled, as names of cases.
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
            // Braces between parentheses are patterns of arguments.
            let mut depth = 0;
            let body = function.find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                c == '{' && depth == 0
            });
            let signature = &function[..body.unwrap_or(function.len())];
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
    let ended: BTreeSet<String> = all_cases().iter().map(|case| case.name.to_string()).collect();
    let missing: Vec<&String> = public.difference(&ended).collect();
    assert!(missing.is_empty(), "public kernels without a case: {missing:#?}");
    let unknown: Vec<&String> = ended.difference(&public).collect();
    assert!(unknown.is_empty(), "cases of no public kernel: {unknown:#?}");
}
