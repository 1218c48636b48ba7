//! Whether all workers work on the same.

use crate::error::{TransportError, TransportErrorKind, err};
use crate::transport::{FIRST_RESERVED_TAG, Tag, Transport};

const AGREEMENT: Tag = FIRST_RESERVED_TAG + 1;

const DIGEST_BYTES: usize = 32;

/// Compares what all workers are about to do: each gives a digest of it, and a text that describes
/// it in lines, such as the model, the configuration, the options and the version. All workers call
/// this before anything else is sent.
///
/// # Errors
/// `Disagreement` on all workers if any two digests differ. The message has, by worker, the lines
/// in which the first worker that differs from worker 0 does so. Else what [`Transport::send`] and
/// [`Transport::receive`] say.
pub fn agree<T: Transport + ?Sized>(
    transport: &T,
    digest: &[u8; DIGEST_BYTES],
    description: &str,
) -> Result<(), TransportError> {
    let own = transport.number();
    let statement = [&digest[..], description.as_bytes()].concat();
    let others = || (0..transport.workers()).filter(|worker| *worker != own);
    for worker in others() {
        transport.send(worker, AGREEMENT, &statement)?;
    }
    let mut statements = vec![statement; transport.workers()];
    for worker in others() {
        statements[worker] = transport.receive(worker, AGREEMENT)?;
    }
    let of = |worker: usize| match statements[worker].split_at_checked(DIGEST_BYTES) {
        Some(statement) => Ok(statement),
        None => err!(Disagreement, "worker {worker} states nothing that can be compared"),
    };
    let (first_digest, first_text) = of(0)?;
    for worker in 1..statements.len() {
        let (digest, text) = of(worker)?;
        if digest != first_digest {
            let texts = [first_text, text].map(String::from_utf8_lossy);
            return Err(difference(worker, &texts[0], &texts[1]));
        }
    }
    Ok(())
}

#[cold]
fn difference(worker: usize, first: &str, other: &str) -> TransportError {
    let missing = |lines: &str, from: &str| {
        let lines = lines.lines().filter(|line| !from.lines().any(|other| other == *line));
        lines.collect::<Vec<_>>().join(", ")
    };
    let (of_first, of_other) = (missing(first, other), missing(other, first));
    let message = if of_first.is_empty() && of_other.is_empty() {
        format!(
            "workers 0 and {worker} disagree about what to run, which both describe as: {first}"
        )
    } else {
        format!(
            "workers 0 and {worker} disagree about what to run. Worker 0: {of_first}. \
             Worker {worker}: {of_other}"
        )
    };
    TransportError::at(TransportErrorKind::Disagreement, worker, message)
}
