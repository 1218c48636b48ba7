//! Threads that sessions share because the program says so.

use sardonyx_kernels::Pool;

/// Threads for the runs of several sessions. Clones are the same pool; its threads end with the
/// last session that uses it.
///
/// Sessions without a pool of their own share the threads of the process.
#[derive(Debug, Clone)]
pub struct ThreadPool(pub(crate) Pool);

impl ThreadPool {
    /// Most threads of a pool.
    pub const MOST_THREADS: usize = Pool::MOST_THREADS;

    /// Starts a pool of `threads` threads, the one that calls for a run included. It has at least
    /// 1 and at most [`ThreadPool::MOST_THREADS`] threads, and fewer if the system refuses some.
    pub fn new(threads: usize) -> ThreadPool {
        ThreadPool(Pool::new(threads))
    }

    /// Returns the number of threads, the one that calls for a run included.
    pub fn threads(&self) -> usize {
        self.0.threads()
    }
}
