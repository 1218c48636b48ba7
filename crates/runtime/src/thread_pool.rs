//! Thread pools that several sessions share.

use sardonyx_kernels::Pool;

/// Threads that the runs of several sessions share. Clones share one pool. Its threads end with the
/// last session that uses it.
///
/// Sessions without a pool share one pool of the process.
#[derive(Debug, Clone)]
pub struct ThreadPool(pub(crate) Pool);

impl ThreadPool {
    /// Limit: maximum number of threads of a pool.
    pub const MOST_THREADS: usize = Pool::MOST_THREADS;

    /// Starts a pool of `threads` threads, including the thread that calls for a run. The number is
    /// limited to the range from 1 to [`ThreadPool::MOST_THREADS`], and is less if the system
    /// refuses threads.
    pub fn new(threads: usize) -> ThreadPool {
        ThreadPool(Pool::new(threads))
    }

    /// Returns the number of threads, including the thread that calls for a run.
    pub fn threads(&self) -> usize {
        self.0.threads()
    }
}
