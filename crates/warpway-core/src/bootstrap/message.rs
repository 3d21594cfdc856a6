//! Everything that ranks and root say to each other, and its encoding.
//!
//! A message is the plain text of one Noise transport message: a kind byte and its fields.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::codec::{Decoder, Encoder, Malformed};
use super::processors::MAX_WORDS;
use super::{PeerInfo, Processors, ScopeId};
use crate::error::ErrorCode;
use crate::health::Cause;

/// Version of everything in this file. Spoken first, in a layout that never changes.
pub(super) const PROTOCOL_VERSION: u32 = 1;

/// Bytes of payload in one frame; with its header and tag it fits a Noise message (65535).
pub(super) const MAX_PART: usize = 65_000;

const MAX_ADDRESSES: usize = 16;
const MAX_NAME: usize = 256;

/// What the accepting side says in its (authenticated) handshake message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    /// The root; the rank whose process hosts it, if it is a rank.
    Root { hosted_by: Option<u32> },
    /// A rank's mesh.
    Mesh { rank: u32 },
}

impl Greeting {
    pub(super) fn encode(self) -> Vec<u8> {
        match self {
            Self::Root { hosted_by } => Encoder::new(0).optional_u32(hosted_by).finish(),
            Self::Mesh { rank } => Encoder::new(1).u32(rank).finish(),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::new(bytes);
        let greeting = match d.u8()? {
            0 => Self::Root { hosted_by: d.optional_u32()? },
            1 => Self::Mesh { rank: d.u32()? },
            _ => return Err(Malformed("greeting")),
        };
        d.end().map(|()| greeting)
    }
}

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Messages from the dialling rank, notices both ways. Its end without a goodbye is a death.
    Messages,
    /// Descriptors for the dialling rank.
    Descriptors,
}

/// One frame of a link between ranks.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Frame<'a> {
    /// The first frame of whoever dialled.
    Hello { version: u32, role: Role, rank: u32 },
    /// Beginning of a message of `length` bytes, with as many of them as fit.
    Begin { scope: ScopeId, tag: i32, length: u64, part: &'a [u8] },
    /// More of it.
    Continue { part: &'a [u8] },
    /// News of a rank or a scope.
    Notice(Notice),
    /// Asks for a descriptor.
    DescriptorRequest { descriptor: u64 },
    /// `None`: it comes with this frame. `Some`: why it does not.
    DescriptorReply { refusal: Option<String> },
}

impl<'a> Frame<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hello { version, role, rank } => {
                Encoder::new(0).u32(*version).u8(*role as u8).u32(*rank).finish()
            }
            Self::Begin { scope, tag, length, part } => {
                Encoder::new(1).u64(scope.0).i32(*tag).u64(*length).raw(part).finish()
            }
            Self::Continue { part } => Encoder::new(2).raw(part).finish(),
            Self::Notice(notice) => {
                let mut e = Encoder::new(3);
                notice.encode(&mut e);
                e.finish()
            }
            Self::DescriptorRequest { descriptor } => Encoder::new(4).u64(*descriptor).finish(),
            Self::DescriptorReply { refusal } => {
                let mut e = Encoder::new(5);
                match refusal {
                    Some(text) => e.u8(1).text(text),
                    None => e.u8(0),
                };
                e.finish()
            }
        }
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::new(bytes);
        let frame = match d.u8()? {
            0 => {
                let version = d.u32()?;
                let role = match d.u8()? {
                    0 => Role::Messages,
                    1 => Role::Descriptors,
                    _ => return Err(Malformed("role of a link")),
                };
                Self::Hello { version, role, rank: d.u32()? }
            }
            1 => {
                let (scope, tag, length) = (ScopeId(d.u64()?), d.i32()?, d.u64()?);
                return Ok(Self::Begin { scope, tag, length, part: d.rest() });
            }
            2 => return Ok(Self::Continue { part: d.rest() }),
            3 => Self::Notice(Notice::decode(&mut d)?),
            4 => Self::DescriptorRequest { descriptor: d.u64()? },
            5 => Self::DescriptorReply {
                refusal: match d.u8()? {
                    0 => None,
                    _ => Some(d.text()?),
                },
            },
            _ => return Err(Malformed("kind of frame")),
        };
        d.end().map(|()| frame)
    }
}

/// News of a rank or a scope. Ranks are ranks of the job.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Notice {
    /// A rank died. Passed on to every link by everybody who hears it for the first time.
    Died { culprit: u32 },
    /// A scope failed. Passed on in the same way.
    Failed(ScopeFailure),
    /// The sender has left a scope; all it sent there came before.
    Left { scope: ScopeId },
    /// The sender leaves the job; all it sent came before, the end of the link follows.
    Goodbye,
    /// This link ends in good order; more may come on the sender's other link.
    LinkEnds,
}

impl Notice {
    /// True if the end of the link follows in good order.
    pub(super) fn ends_link(&self) -> bool {
        matches!(self, Self::Goodbye | Self::LinkEnds)
    }
}

/// The failure of one scope, as its first witness tells it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScopeFailure {
    /// The witness.
    pub(super) origin: u32,
    /// Counts the failures it has told; with `origin` it names this one.
    pub(super) sequence: u64,
    pub(super) scope: ScopeId,
    pub(super) report: Report,
}

/// Who is to blame for what, in which phase.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    pub(super) culprit: Option<u32>,
    pub(super) phase: String,
    pub(super) blame: Blame,
}

/// [`Cause`] as it travels.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Blame {
    Died,
    Left,
    Failed { code: ErrorCode, message: String },
    Aborted { reason: String },
}

impl From<&Cause> for Blame {
    fn from(cause: &Cause) -> Self {
        match cause {
            Cause::PeerDied => Self::Died,
            Cause::PeerLeft => Self::Left,
            Cause::PeerFailed { code, message, .. } => Self::Failed { code: *code, message: message.clone() },
            Cause::Aborted { reason } => Self::Aborted { reason: reason.clone() },
            Cause::Local(error) => Self::Failed { code: error.code(), message: error.to_string() },
        }
    }
}

impl Blame {
    /// As an error here; `reporter` has told it.
    pub(super) fn into_cause(self, reporter: Option<u32>) -> Cause {
        match self {
            Self::Died => Cause::PeerDied,
            Self::Left => Cause::PeerLeft,
            Self::Failed { code, message } => Cause::PeerFailed { reporter, code, message },
            Self::Aborted { reason } => Cause::Aborted { reason },
        }
    }
}

impl Notice {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::Died { culprit } => {
                e.u8(0).u32(*culprit);
            }
            Self::Failed(ScopeFailure { origin, sequence, scope, report }) => {
                e.u8(1).u32(*origin).u64(*sequence).u64(scope.0);
                report.encode(e);
            }
            Self::Left { scope } => {
                e.u8(2).u64(scope.0);
            }
            Self::Goodbye => {
                e.u8(3);
            }
            Self::LinkEnds => {
                e.u8(4);
            }
        }
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(match d.u8()? {
            0 => Self::Died { culprit: d.u32()? },
            1 => {
                let (origin, sequence, scope) = (d.u32()?, d.u64()?, ScopeId(d.u64()?));
                Self::Failed(ScopeFailure { origin, sequence, scope, report: Report::decode(d)? })
            }
            2 => Self::Left { scope: ScopeId(d.u64()?) },
            3 => Self::Goodbye,
            4 => Self::LinkEnds,
            _ => return Err(Malformed("kind of notice")),
        })
    }
}

impl Report {
    fn encode(&self, e: &mut Encoder) {
        e.optional_u32(self.culprit).text(&self.phase);
        match &self.blame {
            Blame::Died => e.u8(0),
            Blame::Left => e.u8(1),
            Blame::Failed { code, message } => e.u8(2).i32(*code as i32).text(message),
            Blame::Aborted { reason } => e.u8(3).text(reason),
        };
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let (culprit, phase) = (d.optional_u32()?, d.text()?);
        let blame = match d.u8()? {
            0 => Blame::Died,
            1 => Blame::Left,
            2 => Blame::Failed { code: code_of(d.i32()?), message: d.text()? },
            3 => Blame::Aborted { reason: d.text()? },
            _ => return Err(Malformed("kind of blame")),
        };
        Ok(Self { culprit, phase, blame })
    }
}

/// A number from the wire; one of a later version counts as an error of the remote rank.
fn code_of(number: i32) -> ErrorCode {
    [
        ErrorCode::SystemError,
        ErrorCode::InternalError,
        ErrorCode::RemoteError,
        ErrorCode::InvalidUsage,
        ErrorCode::Timeout,
        ErrorCode::Aborted,
        ErrorCode::ExecutorError,
    ]
    .into_iter()
    .find(|code| *code as i32 == number)
    .unwrap_or(ErrorCode::RemoteError)
}

/// The first message of a rank to the root.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CheckIn {
    pub(super) version: u32,
    pub(super) rank: u32,
    pub(super) n_ranks: u32,
    /// How long the rank will wait, from now; `None`: until something fails.
    pub(super) patience_ms: Option<u64>,
    /// `None` if the version is not ours: only the fields above can be read then.
    pub(super) info: Option<Arc<PeerInfo>>,
}

/// What a rank says to the root.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ToRoot {
    CheckIn(CheckIn),
    /// All my links stand and I know everybody.
    Ready,
    /// I give up.
    Abandon(Report),
}

/// What the root says to a rank.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FromRoot {
    /// All have checked in: these are the ranks to link with.
    Neighbours(Vec<Arc<PeerInfo>>),
    /// All are ready.
    Go,
    /// The check-ins do not fit each other.
    Refused { culprit: Option<u32>, why: String },
    /// These ranks have not come (at most 64 are listed).
    Missing { missing: Vec<u32>, elapsed_ms: u64 },
    /// A rank died or gave up.
    Failed(Report),
}

impl ToRoot {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::CheckIn(CheckIn { version, rank, n_ranks, patience_ms, info }) => {
                let mut e = Encoder::new(0);
                e.u32(*version).u32(*rank).u32(*n_ranks).u64(patience_ms.unwrap_or(u64::MAX));
                if let Some(info) = info {
                    encode_info(&mut e, info);
                }
                e.finish()
            }
            Self::Ready => Encoder::new(1).finish(),
            Self::Abandon(report) => {
                let mut e = Encoder::new(2);
                report.encode(&mut e);
                e.finish()
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::new(bytes);
        let message = match d.u8()? {
            0 => {
                let (version, rank, n_ranks, patience) = (d.u32()?, d.u32()?, d.u32()?, d.u64()?);
                let patience_ms = (patience != u64::MAX).then_some(patience);
                let mut check_in = CheckIn { version, rank, n_ranks, patience_ms, info: None };
                if version != PROTOCOL_VERSION {
                    return Ok(Self::CheckIn(check_in));
                }
                check_in.info = Some(Arc::new(decode_info(&mut d)?));
                Self::CheckIn(check_in)
            }
            1 => Self::Ready,
            2 => Self::Abandon(Report::decode(&mut d)?),
            _ => return Err(Malformed("kind of message to the root")),
        };
        d.end().map(|()| message)
    }
}

impl FromRoot {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut e;
        match self {
            Self::Neighbours(infos) => {
                e = Encoder::new(0);
                encode_infos(&mut e, infos);
            }
            Self::Go => e = Encoder::new(1),
            Self::Refused { culprit, why } => {
                e = Encoder::new(2);
                e.optional_u32(*culprit).text(why);
            }
            Self::Missing { missing, elapsed_ms } => {
                e = Encoder::new(3);
                e.u64(*elapsed_ms).u32(missing.len() as u32);
                missing.iter().for_each(|rank| {
                    e.u32(*rank);
                });
            }
            Self::Failed(report) => {
                e = Encoder::new(4);
                report.encode(&mut e);
            }
        }
        e.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::new(bytes);
        let message = match d.u8()? {
            0 => Self::Neighbours(take_infos(&mut d)?),
            1 => Self::Go,
            2 => Self::Refused { culprit: d.optional_u32()?, why: d.text()? },
            3 => {
                let elapsed_ms = d.u64()?;
                let count = d.u32()?;
                // The buffer bounds the loop: each turn takes four bytes or fails.
                let missing = (0..count).map(|_| d.u32()).collect::<Result<_, _>>()?;
                Self::Missing { missing, elapsed_ms }
            }
            4 => Self::Failed(Report::decode(&mut d)?),
            _ => return Err(Malformed("kind of message from the root")),
        };
        d.end().map(|()| message)
    }
}

/// For the fuzz targets: gives the bytes to every reader; what one of them accepts must survive being written
/// and read again.
#[cfg(fuzzing)]
pub fn fuzz_messages(bytes: &[u8]) {
    if let Ok(greeting) = Greeting::decode(bytes) {
        assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
    }
    if let Ok(frame) = Frame::decode(bytes) {
        assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
    }
    if let Ok(message) = ToRoot::decode(bytes) {
        assert_eq!(ToRoot::decode(&message.encode()), Ok(message));
    }
    if let Ok(message) = FromRoot::decode(bytes) {
        assert_eq!(FromRoot::decode(&message.encode()), Ok(message));
    }
    if let Ok(infos) = decode_gather(bytes) {
        assert_eq!(decode_gather(&encode_gather(&infos)), Ok(infos));
    }
}

/// Infos as one message of the gather step.
pub(super) fn encode_gather(infos: &[Arc<PeerInfo>]) -> Vec<u8> {
    let mut e = Encoder::default();
    encode_infos(&mut e, infos);
    e.finish()
}

/// The opposite.
pub(super) fn decode_gather(bytes: &[u8]) -> Result<Vec<Arc<PeerInfo>>, Malformed> {
    let mut d = Decoder::new(bytes);
    let infos = take_infos(&mut d)?;
    d.end().map(|()| infos)
}

fn encode_infos(e: &mut Encoder, infos: &[Arc<PeerInfo>]) {
    e.u32(infos.len() as u32);
    infos.iter().for_each(|info| encode_info(e, info));
}

fn take_infos(d: &mut Decoder<'_>) -> Result<Vec<Arc<PeerInfo>>, Malformed> {
    let count = d.u32()?;
    (0..count).map(|_| decode_info(d).map(Arc::new)).collect()
}

fn encode_info(e: &mut Encoder, info: &PeerInfo) {
    e.u32(info.rank).u64(info.host).u64(info.process).u32(info.process_id).text(&info.host_name);
    let addresses = &info.addresses[..info.addresses.len().min(MAX_ADDRESSES)];
    e.u8(addresses.len() as u8);
    for address in addresses {
        match address.ip() {
            IpAddr::V4(ip) => e.u8(4).raw(&ip.octets()),
            IpAddr::V6(ip) => e.u8(6).raw(&ip.octets()),
        };
        e.u16(address.port());
    }
    let name = &info.unix_name[..info.unix_name.len().min(MAX_NAME)];
    e.u16(name.len() as u16).raw(name);
    let mask = info.processors.mask();
    e.u8(mask.len() as u8);
    mask.iter().for_each(|word| {
        e.u64(*word);
    });
    e.u64(info.processors.quota().unwrap_or(u64::MAX));
}

fn decode_info(d: &mut Decoder<'_>) -> Result<PeerInfo, Malformed> {
    let (rank, host, process, process_id) = (d.u32()?, d.u64()?, d.u64()?, d.u32()?);
    let host_name = d.text()?;
    let count = usize::from(d.u8()?);
    if count > MAX_ADDRESSES {
        return Err(Malformed("too many addresses"));
    }
    let addresses = (0..count).map(|_| decode_address(d)).collect::<Result<_, _>>()?;
    let length = usize::from(d.u16()?);
    if length > MAX_NAME {
        return Err(Malformed("socket name too long"));
    }
    let unix_name = d.raw(length)?.to_vec();
    let words = usize::from(d.u8()?);
    if words > MAX_WORDS {
        return Err(Malformed("too many processors"));
    }
    let mask = (0..words).map(|_| d.u64()).collect::<Result<Vec<_>, _>>()?;
    if mask.last() == Some(&0) {
        return Err(Malformed("a mask of processors that ends with zeros"));
    }
    let quota = d.u64()?;
    let processors = Processors::new(&mask, (quota != u64::MAX).then_some(quota));
    Ok(PeerInfo { rank, host, process, process_id, host_name, processors, addresses, unix_name })
}

fn decode_address(d: &mut Decoder<'_>) -> Result<SocketAddr, Malformed> {
    let ip = match d.u8()? {
        4 => {
            let mut octets = [0; 4];
            octets.copy_from_slice(d.raw(4)?);
            IpAddr::from(octets)
        }
        6 => {
            let mut octets = [0; 16];
            octets.copy_from_slice(d.raw(16)?);
            IpAddr::from(octets)
        }
        _ => return Err(Malformed("address family")),
    };
    Ok(SocketAddr::new(ip, d.u16()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info(rank: u32) -> Arc<PeerInfo> {
        Arc::new(PeerInfo {
            rank,
            host: 0x0123_4567_89ab_cdef,
            process: u64::MAX - u64::from(rank),
            process_id: 77,
            host_name: "höst".into(),
            processors: Processors::new(&[u64::from(rank), 1 << 63], (rank > 0).then_some(1500)),
            addresses: vec!["10.1.2.3:4567".parse().unwrap(), "[2001:db8::9]:65535".parse().unwrap()],
            unix_name: b"\0name\xff".to_vec(),
        })
    }

    fn report() -> Report {
        let blame = Blame::Failed { code: ErrorCode::Timeout, message: "late".into() };
        Report { culprit: Some(3), phase: "barrier".into(), blame }
    }

    #[test]
    fn frames_survive_the_trip_and_no_truncation_does() {
        let frames = [
            Frame::Hello { version: 7, role: Role::Descriptors, rank: 0xffff_fffe },
            Frame::Begin { scope: ScopeId(u64::MAX), tag: i32::MIN, length: 1 << 40, part: b"" },
            Frame::Notice(Notice::Died { culprit: 5 }),
            Frame::Notice(Notice::Failed(ScopeFailure {
                origin: 1,
                sequence: u64::MAX,
                scope: ScopeId(9),
                report: report(),
            })),
            Frame::Notice(Notice::Left { scope: ScopeId(1) }),
            Frame::Notice(Notice::Goodbye),
            Frame::Notice(Notice::LinkEnds),
            Frame::DescriptorRequest { descriptor: u64::MAX },
            Frame::DescriptorReply { refusal: None },
            Frame::DescriptorReply { refusal: Some("no".into()) },
        ];
        for frame in &frames {
            let bytes = frame.encode();
            assert_eq!(Frame::decode(&bytes).as_ref(), Ok(frame));
            for length in 0..bytes.len() {
                assert!(Frame::decode(&bytes[..length]).is_err(), "{frame:?} cut to {length}");
            }
        }
    }

    #[test]
    fn root_messages_survive_the_trip_and_no_truncation_does() {
        let check_in = CheckIn {
            version: PROTOCOL_VERSION,
            rank: 1,
            n_ranks: 2,
            patience_ms: Some(5),
            info: Some(info(1)),
        };
        for message in [ToRoot::CheckIn(check_in), ToRoot::Ready, ToRoot::Abandon(report())] {
            let bytes = message.encode();
            assert_eq!(ToRoot::decode(&bytes), Ok(message));
            for length in 0..bytes.len() {
                assert!(ToRoot::decode(&bytes[..length]).is_err());
            }
        }
        let answers = [
            FromRoot::Neighbours(vec![info(0), info(1), info(2)]),
            FromRoot::Go,
            FromRoot::Refused { culprit: None, why: "why".into() },
            FromRoot::Missing { missing: vec![1, 2, 3], elapsed_ms: 17 },
            FromRoot::Failed(report()),
        ];
        for message in answers {
            let bytes = message.encode();
            assert_eq!(FromRoot::decode(&bytes), Ok(message));
            for length in 0..bytes.len() {
                assert!(FromRoot::decode(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn the_head_of_another_versions_check_in_can_be_read() {
        let later = Encoder::new(0).u32(2).u32(6).u32(8).u64(u64::MAX).raw(b"whatever comes then").finish();
        let expected = CheckIn { version: 2, rank: 6, n_ranks: 8, patience_ms: None, info: None };
        assert_eq!(ToRoot::decode(&later), Ok(ToRoot::CheckIn(expected)));
    }

    #[test]
    fn the_largest_part_fits_a_noise_message() {
        let part = vec![1; MAX_PART];
        let frame = Frame::Begin { scope: ScopeId(0), tag: 0, length: 0, part: &part };
        assert!(frame.encode().len() + 16 <= 65_535);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frame::decode(&bytes);
            let _ = ToRoot::decode(&bytes);
            let _ = FromRoot::decode(&bytes);
            let _ = Greeting::decode(&bytes);
            let _ = decode_gather(&bytes);
        }
    }
}
