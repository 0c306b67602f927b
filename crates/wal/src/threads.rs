//! The background threads of a log, or of one of its parts.

use duramen_sync::Mutex;
use duramen_sync::thread::{JoinHandle, is_current, spawn};

use crate::error::{Result, WalError};

/// Running threads. Their owner tells them to end.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    pub(crate) fn start(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = spawn(name, body);
        let thread = thread.map_err(|error| WalError::system(format!("start the thread `{name}`"), error))?;
        self.0.lock().push(thread);
        Ok(())
    }

    /// Waits for the threads, which have been told to end. If one of them calls this, it waits for
    /// the others only. A second call does nothing, even if the first one is still waiting.
    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut *self.0.lock());
        for thread in threads.into_iter().filter(|thread| !is_current(thread)) {
            // The thread has reported its panic: the log has failed, and its users get the error.
            let _ = thread.join();
        }
    }
}
