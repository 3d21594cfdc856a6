//! Passing the terminal's input on to rank 0.
//!
//! Rank 0 is in a process group of its own, which may not read the terminal; the launcher reads for it. Input
//! that is no terminal is simply inherited.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    process::ChildStdin,
};

use rustix::{
    io::{Errno, ioctl_fionbio, read, write},
    process::getpgrp,
    termios::tcgetpgrp,
};

/// One direction, one buffer: read when it is empty, written while it is not.
pub(super) struct TerminalInput {
    terminal: io::Stdin,
    rank: Option<ChildStdin>,
    buffer: Vec<u8>,
}

impl TerminalInput {
    pub(super) fn new(rank: Option<ChildStdin>) -> io::Result<Self> {
        if let Some(rank) = &rank {
            ioctl_fionbio(rank, true)?;
        }
        Ok(Self { terminal: io::stdin(), rank, buffer: Vec::new() })
    }

    /// The terminal, if there is room for input and it may be read: a background job that reads is stopped.
    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        let wanted = self.rank.is_some() && self.buffer.is_empty();
        let foreground = || tcgetpgrp(&self.terminal).is_ok_and(|group| group == getpgrp());
        (wanted && foreground()).then(|| self.terminal.as_fd())
    }

    /// The rank's end, if there is something for it.
    pub(super) fn sink(&self) -> Option<BorrowedFd<'_>> {
        self.rank.as_ref().filter(|_| !self.buffer.is_empty()).map(AsFd::as_fd)
    }

    /// The terminal can be read.
    pub(super) fn on_readable(&mut self) {
        let mut chunk = [0; 4096];
        match read(&self.terminal, &mut chunk) {
            // End of input, or a terminal that has hung up.
            Ok(0) | Err(Errno::IO) => self.rank = None,
            Ok(length) => self.buffer.extend_from_slice(chunk.get(..length).unwrap_or_default()),
            Err(_) => {}
        }
    }

    /// The rank can take something.
    pub(super) fn on_writable(&mut self) {
        let Some(rank) = &self.rank else { return };
        match write(rank, &self.buffer) {
            Ok(length) => drop(self.buffer.drain(..length.min(self.buffer.len()))),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // It reads no more.
            Err(_) => {
                self.rank = None;
                self.buffer.clear();
            }
        }
    }
}
