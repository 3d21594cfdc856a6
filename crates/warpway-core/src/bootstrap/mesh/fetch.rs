//! Fetching a descriptor: a short connection of its own to the owner's Unix socket, in the caller's thread.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::super::link::Link;
use super::super::message::{Frame, Greeting, PROTOCOL_VERSION, Role};
use super::super::session::Step;
use super::super::socket::{self, Address};
use super::super::{Admission, BootstrapError};
use crate::deadline::Deadline;
use crate::error::Result;

/// The longest sleep before another look at whether the owner still lives.
const SLICE: Duration = Duration::from_millis(100);
/// Pause while the owner's backlog is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);

/// A descriptor of a peer on this host.
pub(super) struct Fetch {
    pub(super) address: Address,
    pub(super) key: [u8; 32],
    pub(super) admission: Admission,
    pub(super) rank: u32,
    pub(super) peer: u32,
    pub(super) descriptor: u64,
}

impl Fetch {
    /// Blocks until the descriptor has come, the deadline passes or `gone` says that the owner has ended.
    pub(super) fn run(&self, deadline: Deadline, gone: &dyn Fn() -> bool) -> Result<OwnedFd> {
        let mut link = self.connect(deadline, gone)?;
        let (mut plain, mut bytes) = (Vec::new(), [0; 4096]);
        let mut descriptors = Vec::new();
        loop {
            link.flush().map_err(|e| self.failed(&e.to_string()))?;
            self.wait(&link, deadline, gone)?;
            match self.receive(&link, &mut bytes, &mut descriptors) {
                Ok(0) => return Err(self.failed("it closed the connection")),
                Ok(length) => link.feed(&bytes[..length]),
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(errno) => return Err(self.failed(&errno.to_string())),
            }
            loop {
                match link.next(&mut plain).map_err(|e| self.failed(e.text()))? {
                    Step::Starved => break,
                    Step::Greeted => self.ask(&mut link, &plain)?,
                    Step::Message => return self.answer(&plain, descriptors.pop()),
                    Step::Answered => return Err(self.failed("it dialled where it should accept")),
                }
            }
        }
    }

    fn connect(&self, deadline: Deadline, gone: &dyn Fn() -> bool) -> Result<Link> {
        loop {
            match socket::connect(&self.address) {
                Ok(socket) if self.admission == Admission::SameUser && !socket::is_same_user(&socket) => {
                    return Err(self.failed("its socket belongs to another user"));
                }
                Ok(socket) => return Link::dial(socket, &self.key).map_err(|e| self.failed(e.text())),
                Err(Errno::AGAIN) if !deadline.expired() && !gone() => std::thread::sleep(BACKLOG_PAUSE),
                Err(Errno::CONNREFUSED) => return Err(self.failed("it has ended")),
                Err(errno) => return Err(self.failed(&errno.to_string())),
            }
        }
    }

    fn wait(&self, link: &Link, deadline: Deadline, gone: &dyn Fn() -> bool) -> Result<()> {
        loop {
            if deadline.expired() {
                return Err(self.failed("the deadline passed"));
            }
            if gone() {
                return Err(self.failed("it has ended"));
            }
            let slice = deadline.remaining().unwrap_or(SLICE).min(SLICE);
            let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(slice.subsec_nanos()) };
            let interest = if link.backlog() > 0 { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut waiting = [PollFd::new(link.socket(), interest)];
            match poll(&mut waiting, Some(&limit)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(self.failed(&errno.to_string())),
            }
        }
    }

    fn receive(&self, link: &Link, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(link.socket(), &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        Ok(received.bytes)
    }

    /// The owner has authenticated itself.
    fn ask(&self, link: &mut Link, greeting: &[u8]) -> Result<()> {
        if Greeting::decode(greeting) != Ok(Greeting::Mesh { rank: self.peer }) {
            return Err(self.failed("another rank answers at its address"));
        }
        let hello = Frame::Hello { version: PROTOCOL_VERSION, role: Role::Descriptors, rank: self.rank };
        let request = Frame::DescriptorRequest { descriptor: self.descriptor };
        [hello, request].iter().try_for_each(|f| link.push(&f.encode())).map_err(|e| self.failed(e.text()))
    }

    fn answer(&self, plain: &[u8], descriptor: Option<OwnedFd>) -> Result<OwnedFd> {
        match (Frame::decode(plain), descriptor) {
            (Ok(Frame::DescriptorReply { refusal: None }), Some(descriptor)) => Ok(descriptor),
            (Ok(Frame::DescriptorReply { refusal: Some(why) }), _) => Err(self.failed(&why)),
            (Ok(Frame::DescriptorReply { refusal: None }), None) => {
                Err(self.failed("it did not arrive: this process may have no free descriptor"))
            }
            _ => Err(self.failed("its answer cannot be read")),
        }
    }

    fn failed(&self, why: &str) -> crate::Error {
        let Self { rank, peer, descriptor, .. } = *self;
        BootstrapError::Descriptor { rank, peer, descriptor, why: why.into() }.into()
    }
}
