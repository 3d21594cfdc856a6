//! Whether all ranks set up the same plan, and whether each of them has managed to.

use std::fmt;

use warpway_core::bootstrap::Bootstrap as _;
use warpway_core::communicator::Communicator;
use warpway_core::execution::ExecutionError;
use warpway_core::{Deadline, Error, Result};
use warpway_plan::DataType;

use crate::plan::KernelSetting;

/// What all ranks must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) plan: [u8; 32],
    pub(super) kernel: KernelSetting,
    /// Of the largest message: the step between chunks of scratch.
    pub(super) scratch_chunk: u64,
    /// Raw, packets: whether it uses the scratch of the communicator.
    pub(super) shares: [bool; 2],
}

/// Bytes of texts that are sent.
const TEXT: usize = 240;
const IDENTITY: usize = 32 + 8 + 4 + 4;

impl Identity {
    fn to_bytes(self) -> [u8; IDENTITY] {
        let mut bytes = [0; IDENTITY];
        bytes[..32].copy_from_slice(&self.plan);
        bytes[32..40].copy_from_slice(&self.scratch_chunk.to_le_bytes());
        let KernelSetting { data_type, packet, threads } = self.kernel;
        bytes[40] = data_type.number();
        bytes[41] = packet.payload() as u8;
        bytes[42..44].copy_from_slice(&self.shares.map(u8::from));
        bytes[44..].copy_from_slice(&threads.unwrap_or(0).to_le_bytes());
        bytes
    }
}

/// The plan by its name and the beginning of its hash.
struct Described<'a>(&'a str, &'a [u8]);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, bytes) = self;
        write!(f, "plan {name:?} (")?;
        bytes[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        let data_type = DataType::from_number(bytes[40]).map_or("an unknown type", DataType::name);
        let mut chunk = [0; 8];
        chunk.copy_from_slice(&bytes[32..40]);
        let (payload, chunk) = (bytes[41], u64::from_le_bytes(chunk));
        write!(f, ") for {data_type}, packets of {payload} bytes of data, scratch chunks of {chunk} bytes")?;
        match bytes[44..].iter().rev().fold(0, |threads, byte| threads << 8 | u32::from(*byte)) {
            0 => Ok(()),
            threads => write!(f, ", {threads} threads a block"),
        }
    }
}

/// An error on every rank unless all set up the same and none refuses it. `local` is what this rank says of it; if it refuses,
/// its own error comes back.
pub(super) fn agree<T>(
    communicator: &Communicator,
    name: &str,
    local: Result<(Identity, T)>,
    deadline: Deadline,
) -> Result<(Identity, T)> {
    let rank = communicator.rank();
    let (identity, text) = match &local {
        Ok((identity, _)) => (identity.to_bytes(), name.to_owned()),
        Err(why) => ([0; IDENTITY], why.to_string()),
    };
    let all = exchange(communicator, &identity, (local.is_err(), &text), deadline)?;
    let local = local?;
    for (peer, told) in (0..).zip(&all) {
        let there = match told {
            Told { failed: true, text, .. } => format!("refuses: {text}"),
            Told { bytes, .. } if *bytes == identity => continue,
            Told { bytes, text, .. } => format!("sets up {}", Described(text, bytes)),
        };
        let here = Described(name, &identity).to_string();
        return Err(ExecutionError::Disagreement { rank, peer, here, there }.into());
    }
    Ok(local)
}

/// An error on every rank unless each has come as far as this. `local` is how this rank has fared with `what`.
pub(super) fn all_well<T>(
    communicator: &Communicator,
    (name, what): (&str, &str),
    local: Result<T>,
    deadline: Deadline,
) -> Result<T> {
    let text = local.as_ref().err().map(Error::to_string).unwrap_or_default();
    let all = exchange(communicator, &[], (local.is_err(), &text), deadline);
    // Its own error says more than that the others could not be told.
    let local = local?;
    for (peer, told) in (0..).zip(&all?) {
        if told.failed {
            let here = format!("plan {name:?}");
            let there = format!("has failed {what}: {}", told.text);
            return Err(ExecutionError::Disagreement { rank: communicator.rank(), peer, here, there }.into());
        }
    }
    Ok(local)
}

/// What one rank has said.
struct Told {
    bytes: Vec<u8>,
    failed: bool,
    text: String,
}

/// Everybody tells everybody so many bytes, whether it has failed, and a text.
fn exchange(
    communicator: &Communicator,
    bytes: &[u8],
    (failed, text): (bool, &str),
    deadline: Deadline,
) -> Result<Vec<Told>> {
    let size = bytes.len() + 1 + TEXT;
    let mut all = vec![0; communicator.n_ranks() as usize * size];
    let begin = communicator.rank() as usize * size;
    let own = &mut all[begin..begin + size];
    own[..bytes.len()].copy_from_slice(bytes);
    own[bytes.len()] = u8::from(failed);
    let end = text.floor_char_boundary(TEXT);
    own[bytes.len() + 1..][..end].copy_from_slice(&text.as_bytes()[..end]);
    communicator.bootstrap().all_gather(&mut all, size as u64, deadline)?;
    let read = |slot: &[u8]| {
        let (told, rest) = slot.split_at(bytes.len());
        let text = rest[1..].split(|byte| *byte == 0).next().unwrap_or_default();
        Told { bytes: told.to_vec(), failed: rest[0] != 0, text: String::from_utf8_lossy(text).into_owned() }
    };
    Ok(all.chunks_exact(size).map(read).collect())
}
