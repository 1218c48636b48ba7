//! Times of the chunks of a model, or of random products, on one thread.

use crate::Result;
use sardonyx::run::{StepEvent, ThreadPool};
use sardonyx::tool::{SessionExt, npy};
use sardonyx::value::Buffer;
use sardonyx::{Model, RunOptions, Session, Tensor};
use sardonyx_kernels::gemm::{Epilogue, Lhs, MatRef, PackedB, Rhs, gemm};
use sardonyx_kernels::{Exec, Isa, Pool, Region, record};
use sardonyx_model::Type;
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Times of a serial part of a run and of the region after it, if there is one, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) step: usize,
    pub(crate) serial: f64,
    pub(crate) chunks: Vec<f64>,
    /// Threads that would take part.
    pub(crate) threads: usize,
}

/// Recorded run.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) spans: Vec<Span>,
    /// Name and kernel of each step.
    pub(crate) names: Vec<String>,
    /// Bytes that each step reads and writes.
    pub(crate) bytes: Vec<f64>,
}

impl Recorded {
    /// Returns the time of the run in nanoseconds.
    pub(crate) fn time(&self) -> f64 {
        self.spans.iter().map(|span| span.serial + span.chunks.iter().sum::<f64>()).sum()
    }

    /// Keeps the shorter of two times of each part, since other work disturbs a run.
    fn keep_least(&mut self, other: &Recorded) {
        if self.spans.len() != other.spans.len() {
            return;
        }
        for (span, other) in self.spans.iter_mut().zip(&other.spans) {
            span.serial = span.serial.min(other.serial);
            for (chunk, other) in span.chunks.iter_mut().zip(&other.chunks) {
                *chunk = chunk.min(*other);
            }
        }
    }
}

/// Fewest runs, since a disturbance rarely affects the same part of all of them.
const FEWEST_RUNS: usize = 4;

/// Source of the recorded regions.
pub(crate) enum Subject {
    Model { model: Box<Model>, inputs: Vec<(String, Tensor)> },
    Products(Vec<RandomProduct>),
}

impl Subject {
    /// Reads a model and its inputs, each `NAME=FILE`, or makes random products.
    pub(crate) fn new(model: Option<&Path>, inputs: &[String]) -> Result<Subject> {
        let Some(path) = model else {
            return Ok(Subject::Products(RandomProduct::list()));
        };
        let inputs = inputs.iter().map(|pair| read(pair)).collect::<Result<_>>()?;
        Ok(Subject::Model { model: Box::new(Model::open(path)?), inputs })
    }

    /// Records runs for as long as the budget is, and returns the shortest time of each part.
    pub(crate) fn record(&self, threads: usize, budget: Duration) -> Result<Recorded> {
        let mut run = self.prepare(threads)?;
        run.record()?;
        let start = Instant::now();
        let mut best = run.record()?;
        let mut runs = 1;
        while runs < FEWEST_RUNS || start.elapsed() < budget {
            best.keep_least(&run.record()?);
            runs += 1;
        }
        Ok(best)
    }

    /// Measures runs on real threads and returns the shortest time in nanoseconds.
    pub(crate) fn time(&self, threads: usize, budget: Duration) -> Result<f64> {
        let mut run = self.prepare(threads)?;
        run.run()?;
        let (mut best, start) = (Duration::MAX, Instant::now());
        let mut runs = 0;
        while runs < FEWEST_RUNS || start.elapsed() < budget {
            runs += 1;
            let began = Instant::now();
            run.run()?;
            best = best.min(began.elapsed());
        }
        Ok(nanoseconds(best))
    }

    fn prepare(&self, threads: usize) -> Result<Prepared<'_>> {
        Ok(match self {
            Subject::Model { model, inputs } => {
                let pool = ThreadPool::new(threads);
                let session = Session::builder(model).thread_pool(&pool).build()?;
                let types = inputs.iter().map(|(name, tensor)| {
                    let dims = tensor.dims().iter().copied();
                    (name, Type::tensor(tensor.data_type(), dims))
                });
                let details = session.details(types)?;
                let steps = session.steps();
                let names =
                    steps.iter().map(|step| format!("{} {} ({})", step.op, step.node, step.kernel));
                let bytes = details.steps.iter().map(|step| {
                    (step.read_bytes.unwrap_or(0) + step.written_bytes.unwrap_or(0)) as f64
                });
                Prepared {
                    names: names.collect(),
                    bytes: bytes.collect(),
                    work: Run::Session(session, inputs),
                }
            }
            Subject::Products(products) => Prepared {
                names: products.iter().map(|product| product.name.clone()).collect(),
                bytes: products.iter().map(RandomProduct::bytes).collect(),
                work: Run::Products(Pool::new(threads), products),
            },
        })
    }
}

/// Work that is ready to run.
struct Prepared<'s> {
    work: Run<'s>,
    names: Vec<String>,
    bytes: Vec<f64>,
}

enum Run<'s> {
    Session(Session, &'s [(String, Tensor)]),
    Products(Pool, &'s [RandomProduct]),
}

impl Prepared<'_> {
    /// Runs without recording.
    fn run(&mut self) -> Result {
        match &self.work {
            Run::Session(session, inputs) => {
                drop(session.run(inputs.to_vec(), &RunOptions::default())?);
            }
            Run::Products(pool, products) => products.iter().for_each(|product| product.run(pool)),
        }
        Ok(())
    }

    /// Records a run.
    fn record(&mut self) -> Result<Recorded> {
        // Index of each step that has ended, and the time of its end.
        let ends = RefCell::new(Vec::new());
        let start = Instant::now();
        let (took, regions) = match &self.work {
            Run::Session(session, inputs) => {
                let given = inputs.to_vec();
                let watch =
                    |event: StepEvent| ends.borrow_mut().push((event.step, start.elapsed()));
                let options = RunOptions::default().watch(&watch);
                let (outputs, regions) = record(|| session.run(given, &options));
                drop(outputs?);
                (start.elapsed(), regions)
            }
            Run::Products(pool, products) => {
                let ((), regions) = record(|| {
                    for (index, product) in products.iter().enumerate() {
                        product.run(pool);
                        ends.borrow_mut().push((index, start.elapsed()));
                    }
                });
                (start.elapsed(), regions)
            }
        };
        let (names, bytes) = (self.names.clone(), self.bytes.clone());
        Ok(Recorded { spans: list_spans(&ends.into_inner(), regions, took), names, bytes })
    }
}

/// Cuts a run of length `took` into serial parts and regions, by the ends of steps. Time after the
/// last step belongs to the last step.
fn list_spans(ends: &[(usize, Duration)], regions: Vec<Region>, took: Duration) -> Vec<Span> {
    let (mut spans, mut last) = (Vec::new(), Duration::ZERO);
    let mut regions = regions.into_iter().peekable();
    for (index, &(step, end)) in ends.iter().enumerate() {
        let end = if index + 1 == ends.len() { took.max(end) } else { end };
        while let Some(region) = regions.next_if(|region| region.start < end) {
            spans.push(Span {
                step,
                serial: nanoseconds(region.start.saturating_sub(last)),
                chunks: region.chunks.iter().copied().map(nanoseconds).collect(),
                threads: region.threads,
            });
            last = region.start + region.duration();
        }
        let serial = nanoseconds(end.saturating_sub(last));
        spans.push(Span { step, serial, chunks: Vec::new(), threads: 1 });
        last = last.max(end);
    }
    spans
}

/// Converts a duration to nanoseconds.
fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

fn read(pair: &str) -> Result<(String, Tensor)> {
    let (name, file) = pair.rsplit_once('=').ok_or_else(|| format!("{pair} is not NAME=FILE"))?;
    Ok((name.to_string(), npy::read(&Buffer::from_vec(fs::read(file)?))?))
}

/// Product of random sizes with packed weights.
pub(crate) struct RandomProduct {
    name: String,
    rows: usize,
    a: Vec<f32>,
    b: PackedB,
}

impl RandomProduct {
    /// Makes products of 1 to 1,024 rows and 32 to 2,048 steps and columns, the same each time.
    fn list() -> Vec<RandomProduct> {
        let mut state = 0x9e37_79b9_u64;
        let mut products = Vec::new();
        for _ in 0..40 {
            let m = draw(&mut state, 1.0, 1024.0);
            let [k, n] = [(); 2].map(|()| draw(&mut state, 32.0, 2048.0));
            let b = numbers(k * n);
            let b = Pool::run_to_end(|| PackedB::new(Isa::detect(), MatRef::row_major(&b, k, n)));
            let name = format!("{m} x {k} x {n}");
            products.push(RandomProduct { name, rows: m, a: numbers(m * k), b });
        }
        products
    }

    fn bytes(&self) -> f64 {
        let (k, n) = (self.b.depth(), self.b.cols());
        4.0 * (self.rows * k + k * n + self.rows * n) as f64
    }

    fn run(&self, pool: &Pool) {
        let (k, n) = (self.b.depth(), self.b.cols());
        let mut c = vec![0.0; self.rows * n];
        let exec = Exec::new(pool, Isa::detect());
        let a = Lhs::Plain(MatRef::row_major(&self.a, self.rows, k));
        let done = gemm(&exec, a, Rhs::Packed(&self.b), &mut c, n, &Epilogue::default());
        done.expect("nothing ends it");
    }
}

/// Draws a size from `least` to `most`, whose logarithm is uniform. `state` is that of a linear
/// congruential generator.
fn draw(state: &mut u64, least: f64, most: f64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
    let share = (*state >> 33) as f64 / (1u64 << 31) as f64;
    (least * (most / least).powf(share)) as usize
}

/// Makes numbers between -1 and 1, none of them special.
fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect()
}
