//! Runs a model on several devices: threads, processes or machines.
//!
//! [`Model::shard`](crate::Model::shard) annotates a model with the division of its nodes and
//! tensors, and [`SessionBuilder::devices`](crate::SessionBuilder::devices) builds a
//! [`DeviceSession`] from it. By default each device is a thread of this process; a [`Transport`]
//! connects the devices of several processes.

#[doc(inline)]
pub use crate::devices::{DeviceOptions, DeviceSession, OutputPart, Results, ShardOptions};
#[doc(inline)]
pub use sardonyx_devices::{
    Channel, Channels, Settings as TransportSettings, Threads, Transport, TransportError,
    TransportErrorKind,
};
#[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
#[doc(inline)]
pub use sardonyx_devices::{Mpi, MpiSettings};
#[cfg(unix)]
#[doc(inline)]
pub use sardonyx_devices::{Processes, Rendezvous};
#[doc(inline)]
pub use sardonyx_shard::{Division, ShardReport};
