//! Times prost: `rival-prost JOB FILE REPETITIONS`. Prints one line of JSON with the times of all
//! repetitions.
//!
//! Jobs: `read` (file into memory, decoded, dropped), `read-shared` (the same with `raw_data` as
//! slices of the file's buffer), `decode` (bytes already in memory, decoded, dropped), `packed`
//! (like `decode`, but prints sums).

mod messages;

use bytes::Bytes;
use messages::{copied, shared};
use prost::Message;
use std::error::Error;
use std::fs;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [job, file, repetitions] = &arguments[..] else {
        return Err("usage: rival-prost JOB FILE REPETITIONS".into());
    };
    let memory = match job.as_str() {
        "decode" | "packed" => Bytes::from(fs::read(file)?),
        _ => Bytes::new(),
    };
    let once = || -> Result<String, Box<dyn Error>> {
        Ok(match job.as_str() {
            "read" => copied::counts(&copied::ModelProto::decode(&*fs::read(file)?)?),
            "read-shared" => {
                shared::counts(&shared::ModelProto::decode(Bytes::from(fs::read(file)?))?)
            }
            "decode" | "packed" => copied::counts(&copied::ModelProto::decode(memory.clone())?),
            other => return Err(format!("no job {other}").into()),
        })
    };
    let mut times = Vec::new();
    let mut found = String::new();
    for _ in 0..repetitions.parse::<usize>()? {
        let start = Instant::now();
        found = once()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let rss_peak_mb = rss_peak_mb()?;
    if job == "packed" {
        found = sums(&copied::ModelProto::decode(memory)?);
    }
    println!("{{\"ms\": {times:?}, \"found\": \"{found}\", \"rss_peak_mb\": {rss_peak_mb}}}");
    Ok(())
}

fn sums(model: &copied::ModelProto) -> String {
    let (mut int64, mut int32, mut float) = (0, 0, 0.0);
    for tensor in model.graph.iter().flat_map(|graph| &graph.initializer) {
        int64 += tensor.int64_data.iter().sum::<i64>();
        int32 += tensor
            .int32_data
            .iter()
            .map(|number| i64::from(*number))
            .sum::<i64>();
        float += tensor
            .float_data
            .iter()
            .map(|number| f64::from(*number))
            .sum::<f64>();
    }
    format!("int64 {int64}, int32 {int32}, float {float:.6}")
}

/// Reads the peak memory of the process from the kernel.
fn rss_peak_mb() -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes: f64 = line
        .ok_or("no VmHWM")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kilobytes / 1024.0)
}
