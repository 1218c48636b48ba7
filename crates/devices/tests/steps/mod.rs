//! Random collectives, and a direct computation of their results.

use sardonyx_devices::{
    Group, Reduction, Transport, TransportError, TransportErrorKind, tag_in_run,
};
use sardonyx_tensor::{DataType, bf16, f16};

const TYPES: [DataType; 13] = [
    DataType::Float,
    DataType::Double,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Uint8,
    DataType::Uint16,
    DataType::Uint32,
    DataType::Uint64,
    DataType::Bool,
];

/// Upper half of D. Knuth's linear congruential generator MMIX.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    pub(crate) fn next_below(&mut self, limit: usize) -> usize {
        (self.next() as usize) % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.next_below(from.len())]
    }
}

/// Collective with the data of all workers of its group.
pub(crate) struct Collective {
    kind: CollectiveKind,
    workers: Vec<usize>,
    tag: u64,
    reduction: Reduction,
    data_type: DataType,
    /// Data of each worker, by position in the group.
    data: Vec<Vec<u8>>,
    /// Lengths of parts in bytes, by position of the sender and of the receiver.
    parts: Vec<Vec<usize>>,
    root: usize,
}

/// Order in which a transport computes sums of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    /// Order of the workers' numbers.
    InOrder,
    /// Unspecified order.
    AnyOrder,
}

#[derive(Clone, Copy, Debug)]
enum CollectiveKind {
    AllReduce,
    ReduceScatter,
    AllGather,
    AllToAll,
    Broadcast,
    Barrier,
}

impl Collective {
    fn random(random: &mut Random, workers: usize) -> Collective {
        let kind = random.pick(&[
            CollectiveKind::AllReduce,
            CollectiveKind::AllReduce,
            CollectiveKind::ReduceScatter,
            CollectiveKind::AllGather,
            CollectiveKind::AllToAll,
            CollectiveKind::Broadcast,
            CollectiveKind::Barrier,
        ]);
        let mut group: Vec<usize> = (0..workers).filter(|_| random.next_below(3) > 0).collect();
        if group.is_empty() {
            group.push(random.next_below(workers));
        }
        let data_type = random.pick(&TYPES);
        let reduction = if data_type == DataType::Bool {
            random.pick(&[Reduction::And, Reduction::Or])
        } else {
            random.pick(&[Reduction::Sum, Reduction::Product, Reduction::Min, Reduction::Max])
        };
        let width = data_type.element_bytes().unwrap();
        let most = random.pick(&[1, 4, 30, 3000]);
        let equal: Vec<usize> = group.iter().map(|_| random.next_below(most) * width).collect();
        let parts: Vec<Vec<usize>> = match kind {
            CollectiveKind::AllToAll => {
                let rows = group
                    .iter()
                    .map(|_| group.iter().map(|_| random.next_below(most) * width).collect());
                rows.collect()
            }
            _ => vec![equal; group.len()],
        };
        let data = (0..group.len()).map(|place| {
            let bytes = match kind {
                CollectiveKind::AllGather => parts[place][place],
                _ => parts[place].iter().sum(),
            };
            elements(random, data_type, bytes / width)
        });
        let data = data.collect();
        let (tag, root) = (random.next_below(3) as u64, random.next_below(group.len()));
        Collective { kind, workers: group, tag, reduction, data_type, data, parts, root }
    }

    /// Runs the collective at one position and returns its result.
    fn run(&self, transport: &dyn Transport, place: usize) -> Result<Vec<u8>, TransportError> {
        let group = Group { workers: &self.workers, tag: self.tag };
        let (mut data, parts) = (self.data[place].clone(), &self.parts[place]);
        Ok(match self.kind {
            CollectiveKind::AllReduce => {
                transport.all_reduce(group, self.reduction, self.data_type, &mut data)?;
                data
            }
            CollectiveKind::ReduceScatter => {
                let mut into = vec![0; parts[place]];
                transport.reduce_scatter(
                    group,
                    self.reduction,
                    self.data_type,
                    &data,
                    parts,
                    &mut into,
                )?;
                into
            }
            CollectiveKind::AllGather => {
                let mut into = vec![0; parts.iter().sum()];
                transport.all_gather(group, &data, parts, &mut into)?;
                into
            }
            CollectiveKind::AllToAll => {
                let into_parts: Vec<usize> = self.parts.iter().map(|row| row[place]).collect();
                let mut into = vec![0; into_parts.iter().sum()];
                transport.all_to_all(group, &data, parts, &mut into, &into_parts)?;
                into
            }
            CollectiveKind::Broadcast => {
                transport.broadcast(group, self.workers[self.root], &mut data)?;
                data
            }
            CollectiveKind::Barrier => Vec::new(),
        })
    }

    /// Returns whether a sum or product is right up to the errors of another order.
    fn is_close(&self, found: &[u8], expected: &[u8]) -> bool {
        let is_reduction =
            matches!(self.kind, CollectiveKind::AllReduce | CollectiveKind::ReduceScatter)
                && matches!(self.reduction, Reduction::Sum | Reduction::Product);
        let numbers = |bytes: &[u8]| -> Vec<f64> {
            match self.data_type {
                DataType::Float => bytemuck::pod_collect_to_vec::<u8, f32>(bytes)
                    .into_iter()
                    .map(f64::from)
                    .collect(),
                DataType::Double => bytemuck::pod_collect_to_vec(bytes),
                _ => Vec::new(),
            }
        };
        let (found, expected) = (numbers(found), numbers(expected));
        // Elements are at most 4 in magnitude, and there are at most 8 workers.
        let close = |(a, b): (&f64, &f64)| {
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * b.abs() + 1e-5
        };
        is_reduction && !expected.is_empty() && found.iter().zip(&expected).all(close)
    }

    /// Computes the result at one position from the data of all workers.
    fn compute_result(&self, place: usize) -> Vec<u8> {
        let part = |of: usize, to: usize| {
            let start: usize = self.parts[of][..to].iter().sum();
            &self.data[of][start..start + self.parts[of][to]]
        };
        let places = 0..self.workers.len();
        match self.kind {
            CollectiveKind::AllReduce if self.workers.len() == 1 => self.data[0].clone(),
            CollectiveKind::AllReduce => {
                let data: Vec<&[u8]> = self.data.iter().map(Vec::as_slice).collect();
                reduce(self.reduction, self.data_type, &data)
            }
            CollectiveKind::ReduceScatter if self.workers.len() == 1 => self.data[0].clone(),
            CollectiveKind::ReduceScatter => {
                let data: Vec<&[u8]> = places.map(|of| part(of, place)).collect();
                reduce(self.reduction, self.data_type, &data)
            }
            CollectiveKind::AllGather => self.data.concat(),
            CollectiveKind::AllToAll => {
                places.map(|of| part(of, place)).collect::<Vec<_>>().concat()
            }
            CollectiveKind::Broadcast => self.data[self.root].clone(),
            CollectiveKind::Barrier => Vec::new(),
        }
    }
}

/// Returns numbers whose sums and products depend on their order, among them all special floats.
fn elements(random: &mut Random, data_type: DataType, elems: usize) -> Vec<u8> {
    let float = |random: &mut Random| match random.next_below(40) {
        0 => f64::from_bits(0x7ff8_1234_5000_0000 | u64::from(random.next() & 1) << 63),
        1 => f64::INFINITY,
        2 => -0.0,
        3 => 0.0,
        _ => (f64::from(random.next()) / f64::from(u32::MAX) - 0.5) * 8.0,
    };
    let mut bytes = Vec::new();
    for _ in 0..elems {
        match data_type {
            DataType::Float => bytes.extend((float(random) as f32).to_ne_bytes()),
            DataType::Double => bytes.extend(float(random).to_ne_bytes()),
            DataType::Float16 => bytes.extend(f16::from_f64(float(random)).to_ne_bytes()),
            DataType::Bfloat16 => bytes.extend(bf16::from_f64(float(random)).to_ne_bytes()),
            _ => {
                let width = data_type.element_bytes().unwrap();
                let number = (u64::from(random.next()) << 32 | u64::from(random.next()))
                    >> random.next_below(64);
                bytes.extend(&number.to_le_bytes()[..width]);
            }
        }
    }
    bytes
}

/// Returns the bytes of the elements combined from left to right.
fn reduce(reduction: Reduction, data_type: DataType, data: &[&[u8]]) -> Vec<u8> {
    macro_rules! fold {
        ($t:ty, $wide:ty, $widen:expr, $narrow:expr, $op:expr) => {{
            let rows: Vec<Vec<$t>> = data.iter().map(|x| bytemuck::pod_collect_to_vec(x)).collect();
            let columns = (0..rows[0].len()).map(|column| {
                let mut elements = rows.iter().map(|row| $widen(row[column]));
                let first: $wide = elements.next().unwrap();
                $narrow(elements.fold(first, $op))
            });
            let result: Vec<$t> = columns.collect();
            bytemuck::cast_slice(&result).to_vec()
        }};
    }
    macro_rules! float {
        ($t:ty, $wide:ident, $widen:expr, $narrow:expr) => {
            fold!($t, $wide, $widen, $narrow, |a: $wide, b: $wide| {
                let result = match reduction {
                    Reduction::Sum => a + b,
                    Reduction::Product => a * b,
                    Reduction::Min if b < a => b,
                    Reduction::Max if b > a => b,
                    _ => a,
                };
                if a.is_nan() || b.is_nan() || result.is_nan() { $wide::NAN } else { result }
            })
        };
    }
    macro_rules! integer {
        ($t:ident) => {
            fold!($t, $t, |x| x, |x| x, |a: $t, b: $t| match reduction {
                Reduction::Sum => a.wrapping_add(b),
                Reduction::Product => a.wrapping_mul(b),
                Reduction::Min => a.min(b),
                _ => a.max(b),
            })
        };
    }
    match data_type {
        DataType::Float => float!(f32, f32, |x| x, |x| x),
        DataType::Double => float!(f64, f64, |x| x, |x| x),
        DataType::Float16 => float!(f16, f32, f16::to_f32, f16::from_f32),
        DataType::Bfloat16 => float!(bf16, f32, bf16::to_f32, bf16::from_f32),
        DataType::Int8 => integer!(i8),
        DataType::Int16 => integer!(i16),
        DataType::Int32 => integer!(i32),
        DataType::Int64 => integer!(i64),
        DataType::Uint8 => integer!(u8),
        DataType::Uint16 => integer!(u16),
        DataType::Uint32 => integer!(u32),
        DataType::Uint64 => integer!(u64),
        _ => fold!(u8, u8, |x| u8::from(x != 0), |x| x, |a: u8, b: u8| if reduction
            == Reduction::And
        {
            a & b
        } else {
            a | b
        }),
    }
}

/// Runs the collectives that concern the worker of `transport`.
pub(crate) fn run(
    transport: &dyn Transport,
    steps: &[Collective],
    sums: Sums,
) -> Result<(), TransportError> {
    for (index, step) in steps.iter().enumerate() {
        if let CollectiveKind::Barrier = step.kind {
            transport.barrier()?;
        }
        let Ok(place) = step.workers.binary_search(&transport.number()) else { continue };
        let (found, expected) = (step.run(transport, place)?, step.compute_result(place));
        assert!(
            found == expected || sums == Sums::AnyOrder && step.is_close(&found, &expected),
            "step {index}: {:?} of {} ({}) among {:?} at worker {}",
            step.kind,
            step.data_type,
            step.reduction,
            step.workers,
            transport.number()
        );
    }
    Ok(())
}

pub(crate) fn steps(random: &mut Random, workers: usize, count: usize) -> Vec<Collective> {
    (0..count).map(|_| Collective::random(random, workers)).collect()
}

/// Runs `runs` runs, every third of which one worker ends half way. Checks that all workers learn
/// the reason, and that the following runs receive no messages of an ended run.
pub(crate) fn run_with_early_ends(transport: &dyn Transport, runs: u32) {
    let workers: Vec<usize> = (0..transport.workers()).collect();
    for run in 1..=runs {
        let ending = (run % 3 == 0).then_some(run as usize % workers.len());
        let mut data = vec![run as u8; if run % 2 == 0 { 40 } else { 20_000 }];
        let result = (0..4).try_for_each(|step| {
            if step == 2 && ending == Some(transport.number()) {
                let reason = format!("worker {} failed: run {run}", transport.number());
                let reason =
                    TransportError::at(TransportErrorKind::RunEnded, transport.number(), reason);
                transport.end_run(run, &reason);
            }
            let group = Group { workers: &workers, tag: tag_in_run(run, step % 2) };
            transport.all_reduce(group, Reduction::Max, DataType::Uint8, &mut data)
        });
        match (ending, result) {
            (None, result) => {
                result.unwrap();
                assert!(data.iter().all(|byte| *byte == run as u8), "run {run}");
            }
            (Some(ending), result) => {
                let error = result.unwrap_err();
                let message = format!("worker {ending} failed: run {run}");
                assert_eq!(
                    (error.kind(), error.message()),
                    (TransportErrorKind::RunEnded, &*message)
                );
                assert_eq!(error.worker(), Some(ending));
            }
        }
        transport.endpoint().forget_runs_before(run + 1);
    }
    // A worker that ends its work may be noticed before the end of the last run.
    transport.barrier().unwrap();
}
