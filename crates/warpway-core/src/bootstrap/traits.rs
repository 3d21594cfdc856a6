//! The interface users see, and may implement on top of MPI or anything else.

use crate::deadline::Deadline;
use crate::error::Result;

/// Out-of-band messages between the ranks of one communicator.
///
/// Messages of one (peer, tag) arrive in order; different tags (`>= 0`) and peers are independent;
/// a rank may send to itself. Every call gives up at its deadline, and at once when the communicator fails.
pub trait Bootstrap: Send + Sync {
    /// This rank.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn n_ranks(&self) -> u32;

    /// Ranks on this rank's host.
    fn n_ranks_per_node(&self) -> u32;

    /// Ranks reachable by GPU peer mapping; the same as per node unless a fabric says otherwise.
    fn n_ranks_per_ipc_domain(&self) -> u32 {
        self.n_ranks_per_node()
    }

    /// Sends one message; returns once it is queued.
    fn send(&self, data: &[u8], peer: u32, tag: i32, deadline: Deadline) -> Result<()>;

    /// Receives one message and returns its length (`<= buffer.len()`).
    ///
    /// # Errors
    /// `bootstrap.truncated` if the message is longer than the buffer: it is discarded, later ones arrive.
    fn recv(&self, buffer: &mut [u8], peer: u32, tag: i32, deadline: Deadline) -> Result<u64>;

    /// Sends a message of any length up to the protocol's limit.
    fn send_vec(&self, data: &[u8], peer: u32, tag: i32, deadline: Deadline) -> Result<()> {
        self.send(data, peer, tag, deadline)
    }

    /// Receives a message of any length.
    fn recv_vec(&self, peer: u32, tag: i32, deadline: Deadline) -> Result<Vec<u8>>;

    /// In place: slot r of `buffer` (`n_ranks` slots of `size` bytes) is rank r's; the caller has filled its own.
    fn all_gather(&self, buffer: &mut [u8], size: u64, deadline: Deadline) -> Result<()>;

    /// `buffer` of `root` reaches every rank; lengths must agree.
    fn broadcast(&self, buffer: &mut [u8], root: u32, deadline: Deadline) -> Result<()>;

    /// Returns once every rank has called it.
    fn barrier(&self, deadline: Deadline) -> Result<()>;

    /// Returns once every rank of `ranks` has called it with the same list in the same order.
    fn group_barrier(&self, ranks: &[u32], deadline: Deadline) -> Result<()>;
}
