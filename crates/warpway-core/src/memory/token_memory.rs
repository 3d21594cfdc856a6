//! Where the tokens of semaphores lie: memory of the host, or of a GPU.

use super::{Region, RegisteredMemory};
use crate::error::Result;

/// Gives pages of tokens and resets tokens. The layout of a token on a GPU is that of the device headers; both kinds
/// take [`TOKEN_BYTES`](crate::token::TOKEN_BYTES), begin with the counter, and are fresh when all bytes are zero.
pub trait TokenMemory: Send + Sync {
    /// `bytes` of zeroes, aligned to a token, that can be registered with the communicator's engines.
    ///
    /// # Errors
    /// If memory is exhausted.
    fn allocate(&self, bytes: u64) -> Result<Region>;

    /// Makes the token at `offset` of a page fresh. Nobody uses it; the change is visible to whoever learns of the token
    /// after the call.
    ///
    /// # Errors
    /// If the memory cannot be written.
    fn reset(&self, page: &RegisteredMemory, offset: u64) -> Result<()>;
}

/// Tokens in host memory, from an allocator of zeroed bytes.
pub struct HostTokens<F>(pub F);

impl<F: Fn(u64) -> Result<Region> + Send + Sync> TokenMemory for HostTokens<F> {
    fn allocate(&self, bytes: u64) -> Result<Region> {
        (self.0)(bytes)
    }

    fn reset(&self, page: &RegisteredMemory, offset: u64) -> Result<()> {
        page.token("lease", offset)?.store(0);
        Ok(())
    }
}
