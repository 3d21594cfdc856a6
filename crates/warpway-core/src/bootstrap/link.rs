//! A socket and the session on it, with the bytes that wait to be written.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::session::{Session, SessionError, Step};

/// Bytes read by one call.
pub(super) const READ_SIZE: usize = 128 * 1024;

/// What reading has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// This many bytes; there may be more.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The other side has closed.
    End,
}

/// See the module's page.
pub(super) struct Link {
    socket: OwnedFd,
    session: Session,
    outbound: Vec<u8>,
    written: usize,
    /// Goes with the next byte that is written.
    attachment: Option<Arc<OwnedFd>>,
}

impl Link {
    /// On a socket whose connection has been begun.
    pub(super) fn dial(socket: OwnedFd, key: &[u8; 32]) -> Result<Self, SessionError> {
        let mut outbound = Vec::new();
        let session = Session::dial(key, &mut outbound)?;
        Ok(Self { socket, session, outbound, written: 0, attachment: None })
    }

    /// On a socket that was accepted.
    pub(super) fn accept(socket: OwnedFd, key: &[u8; 32], greeting: Vec<u8>) -> Result<Self, SessionError> {
        let session = Session::accept(key, greeting)?;
        Ok(Self { socket, session, outbound: Vec::new(), written: 0, attachment: None })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Reads once; `scratch` is the caller's so that links need none of their own.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> Result<Received, Errno> {
        loop {
            match net::recv(&self.socket, &mut *scratch, RecvFlags::empty()) {
                Ok((0, _)) => return Ok(Received::End),
                Ok((length, _)) => {
                    self.session.feed(&scratch[..length]);
                    return Ok(Received::Bytes(length));
                }
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Bytes that the caller has read itself.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.session.feed(bytes);
    }

    /// The next message read, into `plain`.
    pub(super) fn next(&mut self, plain: &mut Vec<u8>) -> Result<Step, SessionError> {
        self.session.next(plain, &mut self.outbound)
    }

    /// True if the handshake is complete on this side: messages can be pushed.
    pub(super) fn is_answered(&self) -> bool {
        self.session.is_established()
    }

    /// Adds a message to what waits to be written.
    pub(super) fn push(&mut self, plain: &[u8]) -> Result<(), SessionError> {
        self.session.seal(plain, &mut self.outbound)
    }

    /// The same, with a descriptor. False if an earlier one still waits; nothing has been added then.
    pub(super) fn push_with(&mut self, plain: &[u8], descriptor: Arc<OwnedFd>) -> Result<bool, SessionError> {
        if self.attachment.is_some() {
            return Ok(false);
        }
        self.push(plain)?;
        self.attachment = Some(descriptor);
        Ok(true)
    }

    /// Bytes that wait to be written.
    pub(super) fn backlog(&self) -> usize {
        self.outbound.len() - self.written
    }

    /// Writes what the kernel takes; returns how many bytes that was.
    pub(super) fn flush(&mut self) -> Result<usize, Errno> {
        let mut total = 0;
        while self.backlog() > 0 {
            match self.write() {
                Ok(length) => {
                    self.written += length;
                    total += length;
                    self.attachment = None;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if self.backlog() == 0 {
            self.outbound.clear();
            self.written = 0;
        } else if self.written >= READ_SIZE {
            self.outbound.drain(..self.written);
            self.written = 0;
        }
        Ok(total)
    }

    /// Tells the other side that nothing more comes.
    pub(super) fn shut_down(&self) {
        // Fails only where the connection has ended already.
        let _ = net::shutdown(&self.socket, net::Shutdown::Write);
    }

    fn write(&self) -> Result<usize, Errno> {
        let bytes = &self.outbound[self.written..];
        match &self.attachment {
            None => net::send(&self.socket, bytes, SendFlags::NOSIGNAL),
            Some(descriptor) => {
                let descriptors = [descriptor.as_fd()];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                control.push(SendAncillaryMessage::ScmRights(&descriptors));
                net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
            }
        }
    }
}
