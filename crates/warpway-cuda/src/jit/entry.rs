//! A file of the cache: a checked header, a description in JSON, the code.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 8 | `warpjit` and the number of this layout |
//! | 8 | 32 | SHA-256 of all that follows |
//! | 40 | 8 | bytes of the description, little endian |
//! | 48 | 8 | bytes of the code |
//! | 56 | | description, code, and nothing more |

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::image::{Description, Image};

const MAGIC: &[u8; 8] = b"warpjit\x01";
const HEADER: usize = 56;
/// No image is as large; a file that is was not written by us.
pub(super) const BYTES_MAX: u64 = 1 << 30;

/// What the file says of itself besides the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    /// Digest of the program: a file that was renamed is none of ours.
    pub(super) digest: String,
    /// How long the compilation took.
    pub(super) compile_us: u64,
    #[serde(flatten)]
    pub(super) description: Description,
}

/// The file's bytes.
pub(super) fn encode(digest: String, compile_us: u64, image: &Image) -> serde_json::Result<Vec<u8>> {
    let label = serde_json::to_vec(&Label { digest, compile_us, description: image.description.clone() })?;
    let mut bytes = Vec::with_capacity(HEADER + label.len() + image.code.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[0; 32]);
    bytes.extend_from_slice(&(label.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&(image.code.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&label);
    bytes.extend_from_slice(&image.code);
    let digest: [u8; 32] = Sha256::digest(&bytes[40..]).into();
    bytes[8..40].copy_from_slice(&digest);
    Ok(bytes)
}

/// The label and the code; or what is wrong with the file.
pub(super) fn decode(bytes: &[u8]) -> Result<(Label, &[u8]), &'static str> {
    let Some((header, body)) = bytes.split_at_checked(HEADER) else { return Err("it is too short") };
    if header[..8] != *MAGIC {
        return Err("it is not of this version");
    }
    if Sha256::digest(&bytes[40..])[..] != header[8..40] {
        return Err("its content has changed");
    }
    let number = |at: usize| {
        let bytes = header[at..at + 8].try_into().unwrap_or_default();
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let label_bytes = number(40).filter(|label| *label <= body.len());
    let (Some(label_bytes), Some(code_bytes)) = (label_bytes, number(48)) else {
        return Err("its lengths do not fit");
    };
    let (label, code) = body.split_at(label_bytes);
    if code.len() != code_bytes {
        return Err("its lengths do not fit");
    }
    let label = serde_json::from_slice(label).map_err(|_| "its description cannot be read")?;
    Ok((label, code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::{CodeKind, Kernel, Resources};

    fn image() -> Image {
        let resources = Resources { registers: 32, stack_bytes: 256, ..Resources::default() };
        Image {
            description: Description {
                program: "k.cu".into(),
                kind: CodeKind::Cubin,
                architecture: "sm_90".into(),
                compiler: "fake 1".into(),
                kernels: vec![
                    Kernel { expression: "k<3>".into(), symbol: "_Z1k".into(), resources: Some(resources) },
                    Kernel { expression: "l".into(), symbol: "l".into(), resources: None },
                ],
            },
            code: vec![0x7f, b'E', b'L', b'F', 0, 1, 2, 3],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = encode("ab".into(), 17, &image()).unwrap();
        let (label, code) = decode(&bytes).unwrap();
        assert_eq!((label.digest.as_str(), label.compile_us), ("ab", 17));
        assert_eq!(Image { description: label.description, code: code.to_vec() }, image());
    }

    #[test]
    fn every_changed_bit_and_every_length_is_noticed() {
        let good = encode("ab".into(), 17, &image()).unwrap();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let expected = if at < 8 { "it is not of this version" } else { "its content has changed" };
                assert_eq!(decode(&bad), Err(expected), "bit {bit} of byte {at}");
            }
            assert!(decode(&good[..at]).is_err(), "cut at {at}");
        }
        let longer: Vec<u8> = good.iter().copied().chain([0]).collect();
        assert_eq!(decode(&longer), Err("its content has changed"));
    }

    #[test]
    fn lengths_are_not_believed_even_if_the_digest_is_right() {
        for (at, value) in
            [(40, u64::MAX), (40, 0), (40, 1 << 40), (48, u64::MAX), (48, 0), (48, 9), (48, u64::MAX - 100)]
        {
            let mut bad = encode("ab".into(), 17, &image()).unwrap();
            bad[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let digest = Sha256::digest(&bad[40..]);
            bad[8..40].copy_from_slice(&digest);
            assert!(decode(&bad).is_err(), "{value} at {at}");
        }
    }
}
