//! Check that all workers are about to run the same work.

use crate::error::{TransportError, TransportErrorKind, err};
use crate::transport::{FIRST_RESERVED_TAG, Tag, Transport};

const AGREEMENT: Tag = FIRST_RESERVED_TAG + 1;

const DIGEST_BYTES: usize = 32;

/// Compares the intentions of all workers before they send anything else.
///
/// Each worker passes a digest of its work (model, configuration, options and version) and a
/// `description` of it in lines. All workers must call this function first.
///
/// # Errors
/// `Disagreement` on all workers if any two digests differ. For the first worker that differs from
/// worker 0, the message quotes the description lines that the other one lacks, from both sides.
/// Also the errors of [`Transport::send`] and [`Transport::receive`].
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
    let split = |worker: usize| match statements[worker].split_at_checked(DIGEST_BYTES) {
        Some(statement) => Ok(statement),
        None => err!(Disagreement, "worker {worker} states nothing that can be compared"),
    };
    let (first_digest, first_text) = split(0)?;
    for worker in 1..statements.len() {
        let (digest, text) = split(worker)?;
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
