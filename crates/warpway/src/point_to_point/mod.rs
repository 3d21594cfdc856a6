//! Sends and receives between two ranks, and groups of them.

mod arguments;
mod group;

use warpway_core::Result;
use warpway_host::{Direction, Message, PointToPoint, PointToPointConfig};

pub use self::arguments::{Incoming, Outgoing};
pub use self::group::Group;
use crate::communicator::Communicator;

/// Messages between two ranks meet in order: the i-th send from the one to the other fills the i-th receive, and both name
/// the same count and type. No other rank takes part; two ranks set up what they need with their first message.
///
/// A send returns when its data may be changed, which for small messages is before they have been received. A program
/// must not count on that: two ranks that each send first and then receive belong into a group, or use
/// [`send_recv`](Communicator::send_recv). Calls of several threads on one communicator follow each other.
///
/// Waits give up when nothing has moved for `WARPWAY_DEVICE_TIMEOUT_MS`, and when the peer dies or leaves; the
/// communicator has failed then.
impl Communicator {
    /// Sends `data` to `peer`, which receives it.
    ///
    /// ```
    /// use warpway::{Config, Context, in_process};
    ///
    /// # fn main() -> warpway::Result<()> {
    /// let found = in_process(2, &Context::new(Config::default()), |comm| {
    ///     let mut data = [0u32; 3];
    ///     match comm.rank() {
    ///         0 => comm.send(&[7u32, 8, 9], 1)?,
    ///         _ => comm.recv(&mut data, 0)?,
    ///     }
    ///     Ok(data)
    /// })?;
    /// assert_eq!(found[1], [7, 8, 9]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `bootstrap.peer`; `p2p.alone` for this rank itself; `p2p.mismatch`, on both ranks, if the receive is of another
    /// count or type; a wait that gave up and names the peer.
    pub fn send<'a>(&self, data: impl Into<Outgoing<'a>>, peer: u32) -> Result<()> {
        let Outgoing { view: data, element } = data.into();
        self.point_to_point().run_one(&Message { direction: Direction::Send, peer, data, element })
    }

    /// Receives what `peer` sends, which is as long as `data`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn recv<'a>(&self, data: impl Into<Incoming<'a>>, peer: u32) -> Result<()> {
        let Incoming { view: data, element } = data.into();
        self.point_to_point().run_one(&Message { direction: Direction::Receive, peer, data, element })
    }

    /// Sends to one rank and receives from another one, or the same, at the same time.
    ///
    /// ```
    /// use warpway::{Config, Context, in_process};
    ///
    /// # fn main() -> warpway::Result<()> {
    /// // Around a ring.
    /// let found = in_process(3, &Context::new(Config::default()), |comm| {
    ///     let (rank, n) = (comm.rank(), comm.n_ranks());
    ///     let mut from = [0u32];
    ///     comm.send_recv(&[rank], (rank + 1) % n, &mut from, (rank + n - 1) % n)?;
    ///     Ok(from[0])
    /// })?;
    /// assert_eq!(found, [2, 0, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`group`](Self::group).
    pub fn send_recv<'a>(
        &self,
        data: impl Into<Outgoing<'a>>,
        to: u32,
        target: impl Into<Incoming<'a>>,
        from: u32,
    ) -> Result<()> {
        let (data, target) = (data.into(), target.into());
        self.point_to_point().run(&[
            Message { direction: Direction::Send, peer: to, data: data.view, element: data.element },
            Message { direction: Direction::Receive, peer: from, data: target.view, element: target.element },
        ])
    }

    /// Runs what `fill` adds to a group. Its messages progress together: no order of the calls can deadlock, messages to this
    /// rank itself included. Collectives follow when all messages are complete, in the order of the calls, which is the same
    /// on all ranks; whether a rank adds them before or after its messages does not matter.
    ///
    /// ```
    /// use warpway::{Config, Context, in_process};
    ///
    /// # fn main() -> warpway::Result<()> {
    /// // Everybody to everybody, itself included.
    /// let found = in_process(3, &Context::new(Config::default()), |comm| {
    ///     let (rank, n) = (comm.rank(), comm.n_ranks());
    ///     let out: Vec<u32> = (0..n).map(|peer| 10 * rank + peer).collect();
    ///     let mut come = vec![0u32; n as usize];
    ///     comm.group(|group| {
    ///         for (peer, (out, come)) in (0..).zip(out.chunks(1).zip(come.chunks_mut(1))) {
    ///             group.send(out, peer)?;
    ///             group.recv(come, peer)?;
    ///         }
    ///         Ok(())
    ///     })?;
    ///     Ok(come)
    /// })?;
    /// assert_eq!(found, [[0, 10, 20], [1, 11, 21], [2, 12, 22]]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of `fill`: nothing runs then. `bootstrap.peer`, `p2p.overlap` if members use the same bytes and one
    /// receives into them, `p2p.alone` if sends to this rank and receives from it are not as many, `mem.bounds`: before
    /// anything has begun. Afterwards those of [`send`](Self::send), and of the collectives.
    pub fn group<'g, R>(&self, fill: impl FnOnce(&mut Group<'g>) -> Result<R>) -> Result<R> {
        let mut group = Group::new();
        let result = fill(&mut group)?;
        if !group.messages.is_empty() {
            self.point_to_point().run(&group.messages)?;
        }
        group.then.into_iter().try_for_each(|call| call(self))?;
        Ok(result)
    }

    fn point_to_point(&self) -> &PointToPoint {
        self.point_to_point_or_else(|| {
            let config = PointToPointConfig { timeout: self.device_timeout(), transport: None };
            PointToPoint::new(self.core().clone(), config)
        })
    }
}
