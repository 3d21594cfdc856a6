//! Reading a link: headers through a small buffer, payloads straight into their destination.

use std::ptr::NonNull;
use std::sync::Arc;

use rustix::io::Errno;
use warpway_core::Error;

use crate::frame::{HEADER_BYTES, Header, Kind, Reason};
use crate::link::Link;
use crate::lock;
use crate::table::{Exported, Problem, Table, Writer};
use crate::vectors::{self, RawBuffer};

/// Bytes read while no payload is due: some eighty words, or a header and the beginning of its payload.
const STAGING_BYTES: usize = 4096;

/// The most payload in one system call; the destination cannot be withdrawn meanwhile.
const CALL_BYTES: u64 = 512 << 10;

/// System calls on one link before the next one gets its turn.
const CALLS: usize = 8;

/// State of the receiving side of a link. Only the receiving thread locks it.
pub(crate) struct Input {
    staging: Box<[u8]>,
    begin: usize,
    end: usize,
    payload: Option<Payload>,
    /// Position of the last operation that has come in completely.
    position: u64,
    /// Next byte and bytes left of a write of several pieces.
    unfinished: Option<(u64, u64)>,
    /// An operation was refused: later ones are read and discarded.
    refused: bool,
    /// Devices that have been given something which may not have arrived.
    unsettled: Vec<Writer>,
    /// The position that has been noted as applied.
    noted: u64,
}

/// Where the bytes that come next go.
struct Payload {
    /// `None`: they are discarded.
    target: Option<Arc<Exported>>,
    header: Header,
    offset: u64,
    left: u64,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            staging: vec![0; STAGING_BYTES].into_boxed_slice(),
            begin: 0,
            end: 0,
            payload: None,
            position: 0,
            unfinished: None,
            refused: false,
            unsettled: Vec::new(),
            noted: 0,
        }
    }
}

/// Bytes asked for, and what the system says.
type Read = (usize, Result<usize, Errno>);

/// Why reading stopped for good.
enum Stop {
    Closed,
    System(Errno),
    Violation(&'static str),
    /// A device of this rank has failed.
    Device(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

impl From<&'static str> for Stop {
    fn from(what: &'static str) -> Self {
        Self::Violation(what)
    }
}

impl Link {
    /// Reads what is there and applies it. Called by the receiving thread when the socket is readable.
    pub(crate) fn receive(&self, table: &Table) {
        let mut input = lock(&self.input);
        let mut result = Ok(true);
        for _ in 0..CALLS {
            result = input.receive_some(self, table);
            if !matches!(result, Ok(true)) {
                break;
            }
        }
        let settled = input.settle(self);
        drop(input);
        match result.and(settled) {
            Ok(()) => {}
            Err(Stop::Closed) => {
                self.lost(
                    "tcp receive",
                    "the peer's socket closed without a goodbye (its process has ended?)",
                );
            }
            Err(Stop::System(errno)) => self.lost("tcp receive", &format!("receiving failed: {errno}")),
            Err(Stop::Violation(what)) => self.violated(what),
            Err(Stop::Device(error)) => {
                let why = error.to_string();
                let health = &self.parts.waiter.health;
                health.fail_local("tcp receive", Some(health.rank()), error);
                self.lost("tcp receive", &why);
            }
        }
    }
}

impl Input {
    /// One system call. True if there may be more to read.
    fn receive_some(&mut self, link: &Link, table: &Table) -> Result<bool, Stop> {
        let (asked, read) = match self.payload.take() {
            Some(mut payload) => {
                let result = self.read_payload(link, &mut payload);
                self.payload = Some(payload);
                result?
            }
            None => self.read_staging(link),
        };
        let read = match read {
            Ok(0) => return Err(Stop::Closed),
            Ok(read) => read,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => return Ok(true),
            Err(errno) => return Err(Stop::System(errno)),
        };
        self.parse(link, table)?;
        // A short read has emptied the socket; the poller says when there is more.
        Ok(read == asked)
    }

    /// Reads headers, keeping what is there of an incomplete one.
    fn read_staging(&mut self, link: &Link) -> (usize, Result<usize, Errno>) {
        self.staging.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        let free = self.staging.get_mut(self.end..).unwrap_or_default();
        let asked = free.len();
        let read = rustix::io::read(&link.parts.socket, free);
        self.end += *read.as_ref().unwrap_or(&0);
        (asked, read)
    }

    /// Reads payload into its destination, and the next header behind it. Staging is empty now.
    fn read_payload(&mut self, link: &Link, payload: &mut Payload) -> Result<Read, Stop> {
        (self.begin, self.end) = (0, 0);
        let target = payload.target.clone();
        let Some(target) = target else {
            let room = payload.left.min(self.staging.len() as u64) as usize;
            let scratch = self.staging.get_mut(..room).unwrap_or_default();
            let read = rustix::io::read(&link.parts.socket, scratch);
            payload.advance(*read.as_ref().unwrap_or(&0) as u64);
            return Ok((room, read));
        };
        if let Some(writer) = target.writer() {
            return self.read_to_device(link, payload, &target, writer);
        }
        let length = payload.left.min(CALL_BYTES);
        // The next header may come with the last bytes, but nothing of what follows that header.
        let extra = if length == payload.left { HEADER_BYTES } else { 0 };
        let next = self.staging.get_mut(..extra).unwrap_or_default();
        let read = target.with_bytes(payload.offset, |address| {
            let buffers = [RawBuffer::new(address, length as usize), RawBuffer::writing(next)];
            // SAFETY: `offset..offset + left` was checked against the region when the header came, and
            // `with_bytes` keeps the region mapped; `next` is a live exclusive slice.
            unsafe { vectors::receive(&link.parts.socket, buffers) }
        });
        match read {
            Ok(read) => {
                let bytes = *read.as_ref().unwrap_or(&0);
                let body = bytes.min(length as usize);
                payload.advance(body as u64);
                self.end = bytes - body;
                Ok((length as usize + extra, read))
            }
            Err(reason) => {
                self.refuse(link, &payload.header, reason)?;
                payload.target = None;
                Ok((0, Err(Errno::INTR)))
            }
        }
    }

    /// The same through a buffer, which a device copies while the next bytes come.
    fn read_to_device(
        &mut self,
        link: &Link,
        payload: &mut Payload,
        target: &Exported,
        writer: &Writer,
    ) -> Result<Read, Stop> {
        let (asked, body, read, written) = writer.with(|staged| {
            let length = payload.left.min(CALL_BYTES).min(staged.limit());
            let extra = if length == payload.left { HEADER_BYTES } else { 0 };
            let buffer = RawBuffer::new(staged.buffer()?, length as usize);
            let next = self.staging.get_mut(..extra).unwrap_or_default();
            // SAFETY: the buffer has `limit` bytes and is ours until it is given to the device; `next` is a live
            // exclusive slice.
            let read = unsafe { vectors::receive(&link.parts.socket, [buffer, RawBuffer::writing(next)]) };
            let bytes = *read.as_ref().unwrap_or(&0);
            let body = bytes.min(length as usize);
            self.end = bytes - body;
            let written = match body {
                0 => Ok(()),
                _ => target.write_staged(staged, payload.offset, body as u64),
            };
            Ok::<_, Stop>((length as usize + extra, body, read, written))
        })?;
        self.applied(link, &payload.header, written, Some(writer))?;
        payload.advance(body as u64);
        if self.refused {
            payload.target = None;
        }
        Ok((asked, read))
    }

    /// What has become of something that was to be applied; `writer`: a device still has to.
    fn applied(
        &mut self,
        link: &Link,
        header: &Header,
        result: Result<(), Problem>,
        writer: Option<&Writer>,
    ) -> Result<(), Stop> {
        match result {
            Ok(()) => {
                let new = |writer: &&Writer| !self.unsettled.iter().any(|known| Arc::ptr_eq(known, writer));
                self.unsettled.extend(writer.filter(new).cloned());
                Ok(())
            }
            Err(Problem::Refused(reason)) => self.refuse(link, header, reason),
            Err(Problem::Device(error)) => Err(Stop::Device(error)),
        }
    }

    /// Waits for what other devices than that of `writer` have been given. Whoever sees a word expects everything that was
    /// sent before it, and one in host memory is there at once.
    fn settle_others(&mut self, writer: Option<&Writer>) -> Result<(), Stop> {
        let other = |known: &mut Writer| writer.is_none_or(|writer| !Arc::ptr_eq(known, writer));
        for writer in self.unsettled.extract_if(.., other) {
            writer.drain()?;
        }
        Ok(())
    }

    /// Notes how far operations have been applied; devices are waited for if that is any further.
    fn settle(&mut self, link: &Link) -> Result<(), Stop> {
        if self.refused || self.noted == self.position {
            return Ok(());
        }
        for writer in self.unsettled.drain(..) {
            writer.drain()?;
        }
        self.noted = self.position;
        link.note_applied(self.position);
        Ok(())
    }

    /// Works off what staging holds, and finished payloads.
    fn parse(&mut self, link: &Link, table: &Table) -> Result<(), Stop> {
        loop {
            if let Some(mut payload) = self.payload.take() {
                self.copy_staged(link, &mut payload)?;
                if payload.left > 0 {
                    self.payload = Some(payload);
                    return Ok(());
                }
                if self.unfinished.is_none() {
                    self.position = payload.header.position;
                }
            }
            let staged = self.staging.get(self.begin..self.end).unwrap_or_default();
            let Some(bytes) = staged.first_chunk::<HEADER_BYTES>() else { return Ok(()) };
            let header = Header::decode(bytes)?;
            self.begin += HEADER_BYTES;
            self.handle(link, table, header)?;
        }
    }

    fn handle(&mut self, link: &Link, table: &Table, header: Header) -> Result<(), Stop> {
        match header.kind {
            Kind::Ack => link.acknowledged(header.position)?,
            Kind::Refuse => link.refused(&header),
            Kind::Goodbye => {
                // What was applied so far must be acknowledged before the link may end.
                self.settle(link)?;
                link.note_goodbye();
            }
            Kind::Write => self.begin_piece(link, table, header)?,
            Kind::Store | Kind::Add => {
                if self.unfinished.is_some() || header.position != self.position + 1 {
                    return Err("a word out of order".into());
                }
                if !self.refused {
                    let job = &link.parts.job;
                    match table.find(job, header.memory) {
                        Ok(exported) => {
                            self.settle_others(exported.writer())?;
                            let updated = exported.update(header.kind, header.offset, header.operand);
                            self.applied(link, &header, updated, exported.writer())?;
                        }
                        Err(reason) => self.refuse(link, &header, reason)?,
                    }
                }
                self.position = header.position;
            }
        }
        Ok(())
    }

    fn begin_piece(&mut self, link: &Link, table: &Table, header: Header) -> Result<(), Stop> {
        let in_order = header.position == self.position + 1
            && self.unfinished.is_none_or(|next| next == (header.offset, header.operand));
        if !in_order {
            return Err("a piece out of order".into());
        }
        let rest = header.operand - header.length;
        let end = header.offset.checked_add(header.length);
        let mut target = None;
        if !self.refused {
            // The whole rest of the write is checked, so that a bad one is refused before it touches memory.
            let found = table.find(&link.parts.job, header.memory);
            match found.and_then(|e| e.check_write(header.offset, header.operand).map(|()| e)) {
                Ok(exported) => target = Some(exported),
                Err(reason) => self.refuse(link, &header, reason)?,
            }
        }
        self.unfinished = match (rest, end) {
            (0, _) => None,
            (_, Some(end)) => Some((end, rest)),
            (_, None) => return Err("a piece beyond the end of the address space".into()),
        };
        self.payload = Some(Payload { target, header, offset: header.offset, left: header.length });
        Ok(())
    }

    /// Moves payload that came with its header.
    fn copy_staged(&mut self, link: &Link, payload: &mut Payload) -> Result<(), Stop> {
        let length = payload.left.min((self.end - self.begin) as u64);
        if length == 0 {
            return Ok(());
        }
        if let Some(target) = payload.target.clone() {
            let source = self.staging.get(self.begin..self.end).unwrap_or_default();
            let copy = |address: NonNull<u8>| {
                // SAFETY: `length` bytes are staged; the destination is a range that was checked when the header came and
                // is live inside `with_bytes`, or a free buffer; staging is our own and overlaps neither.
                unsafe { address.as_ptr().copy_from_nonoverlapping(source.as_ptr(), length as usize) };
            };
            let copied = match target.writer() {
                None => target.with_bytes(payload.offset, copy).map_err(Problem::from),
                Some(writer) => writer.with(|staged| {
                    copy(staged.buffer()?);
                    target.write_staged(staged, payload.offset, length)
                }),
            };
            self.applied(link, &payload.header, copied, target.writer())?;
            if self.refused {
                payload.target = None;
            }
        }
        self.begin += length as usize;
        payload.advance(length);
        Ok(())
    }

    /// Tells the sender, and applies nothing of this link from here on.
    fn refuse(&mut self, link: &Link, header: &Header, reason: Reason) -> Result<(), Stop> {
        if !self.refused {
            self.settle(link)?;
            self.refused = true;
            let length = if header.kind == Kind::Write { header.operand } else { 0 };
            let operand = header.kind as u64;
            link.note_refusal(Header {
                kind: Kind::Refuse,
                reason: Some(reason),
                length,
                operand,
                ..*header
            });
        }
        Ok(())
    }
}

impl Payload {
    fn advance(&mut self, bytes: u64) {
        self.offset = self.offset.saturating_add(bytes);
        self.left -= bytes.min(self.left);
    }
}
