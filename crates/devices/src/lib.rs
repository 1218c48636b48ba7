//! Workers of a model that runs on several devices: messages between them, and collectives.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! A [`Transport`] is one worker's endpoint of the connections between all workers. It sends and
//! receives bytes. All other operations have defaults built on these, which a transport may replace
//! by faster ones. [`Threads`] connects threads of one process, [`Channels`] uses any carrier of
//! whole messages.
//!
//! ```
//! use sardonyx_devices::{Group, Reduction, Settings, Threads, Transport};
//! use sardonyx_tensor::DataType;
//! let workers = Threads::new(2, &Settings::default());
//! std::thread::scope(|scope| {
//!     for worker in workers {
//!         scope.spawn(move || {
//!             let mut data = [worker.number() as u8 + 1, 10];
//!             let group = Group { workers: &[0, 1], tag: 0 };
//!             worker.all_reduce(group, Reduction::Sum, DataType::Uint8, &mut data).unwrap();
//!             assert_eq!(data, [3, 20]);
//!         });
//!     }
//! });
//! ```
//!
//! The crate knows neither models nor graphs: callers decide which bytes to send, and when.

#![warn(missing_docs)]
// A panic is how a test reports a failure.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::sync::{Mutex, MutexGuard, PoisonError};

mod agreement;
mod channel;
pub mod collectives;
mod delayed;
mod endpoint;
mod error;
mod frame;
mod hosted;
#[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
mod mpi;
mod private;
#[cfg(unix)]
mod processes;
mod reduction;
mod scratch;
mod threads;
mod traffic;
mod transport;

pub use agreement::agree;
pub use channel::{Channel, Channels};
pub use delayed::Delayed;
pub use endpoint::{Endpoint, Notice};
pub use error::{TransportError, TransportErrorKind};
pub use hosted::{Hosted, worker_of};
#[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
pub use mpi::{Mpi, MpiInterface, MpiSettings};
pub use private::PrivateDirectory;
#[cfg(unix)]
pub use processes::{Processes, Rendezvous};
pub use reduction::{Reduction, combine};
pub use scratch::{Piece, Scratch};
pub use threads::Threads;
pub use traffic::{Sent, Traffic, TrafficCounters};
pub use transport::{FIRST_RESERVED_TAG, Group, RunNumber, Settings, Tag, Transport, tag_in_run};

/// Locks a mutex, and ignores poisoning: guarded data is consistent at every moment, so a panic of
/// another thread while it held the lock does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
