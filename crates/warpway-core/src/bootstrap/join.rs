//! The plan for joining a job: who this rank is, where the root is, and what lets it in.
//!
//! A plan comes from a unique id, an explicit address or the environment; what follows is the same for all.

use std::fmt;
use std::net::SocketAddr;

use sha2::{Digest, Sha256};

use super::InterfaceChoice;
use crate::wire::JobNonce;

/// Everything a rank must know to join a job.
#[derive(Debug, Clone)]
pub struct JoinPlan {
    /// This rank, below `n_ranks`.
    pub rank: u32,
    /// How many ranks the job has, at least one.
    pub n_ranks: u32,
    /// Where the root listens.
    pub root: RootLocation,
    /// What the ranks of the job share.
    pub secret: JobSecret,
    /// Who may join.
    pub admission: Admission,
    /// The rank whose process binds the root: 0 in jobs made from an address or the environment. `None` with a
    /// unique id: the process that created the id keeps the root, whichever that is.
    pub root_rank: Option<u32>,
    /// Where this rank's own TCP listener may be.
    pub interfaces: InterfaceChoice,
}

impl JoinPlan {
    /// True if this process binds the root itself.
    pub fn hosts_root(&self) -> bool {
        self.root_rank == Some(self.rank)
    }
}

/// Where the root of a job listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootLocation {
    /// An abstract Unix socket: all ranks share a host.
    Unix {
        /// Name without the leading zero byte.
        name: Vec<u8>,
    },
    /// TCP.
    Tcp {
        /// Candidates in the order to try. The root binds the first that is free; a peer that meets somebody
        /// else there (who cannot authenticate) goes on to the next, round and round until its deadline.
        addresses: Vec<SocketAddr>,
    },
}

impl fmt::Display for RootLocation {
    /// For messages: `unix:@name` or up to four addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { name } => write!(f, "unix:@{}", name.escape_ascii()),
            Self::Tcp { addresses } => {
                let shown: Vec<String> = addresses.iter().take(4).map(SocketAddr::to_string).collect();
                write!(f, "tcp:{}", shown.join(", "))?;
                match addresses.len() - shown.len() {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}

/// Who may join a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admission {
    /// Whoever knows the secret, which is random or made from a token.
    Secret,
    /// There is no token, the secret can be guessed: only processes of the same user on the same host, over a
    /// Unix socket whose peer credentials are checked.
    SameUser,
    /// There is no token and the user has accepted it (`WARPWAY_BOOTSTRAP_INSECURE=1`): whoever can reach the
    /// root and derives the same secret from public facts.
    Anyone,
}

/// 32 bytes shared by the ranks of a job and by nobody else; never sent.
///
/// `Debug` does not show it.
#[derive(Clone)]
pub struct JobSecret([u8; 32]);

impl JobSecret {
    /// A secret made of `parts`, in a domain of its own: equal parts in different domains, and parts cut at
    /// different places, give unrelated secrets.
    pub fn derive(domain: &str, parts: &[&[u8]]) -> Self {
        Self(digest(domain, parts))
    }

    /// The pre-shared key of the handshakes.
    pub fn handshake_key(&self) -> [u8; 32] {
        digest("warpway handshake key v1", &[&self.0])
    }

    /// What the job's envelopes carry; tells nothing about the secret.
    pub fn nonce(&self) -> JobNonce {
        let full = digest("warpway job nonce v1", &[&self.0]);
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&full[..16]);
        JobNonce(nonce)
    }
}

impl fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSecret(..)")
    }
}

/// SHA-256 over the domain and the parts, each preceded by its length.
pub(super) fn digest(domain: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in std::iter::once(domain.as_bytes()).chain(parts.iter().copied()) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivations_are_kept_apart() {
        let a = JobSecret::derive("test", &[b"ab", b"c"]);
        let others = [
            JobSecret::derive("test", &[b"a", b"bc"]),
            JobSecret::derive("test", &[b"abc"]),
            JobSecret::derive("test", &[b"ab", b"c", b""]),
            JobSecret::derive("testab", &[b"c"]),
        ];
        for other in &others {
            assert_ne!(a.handshake_key(), other.handshake_key());
            assert_ne!(a.nonce(), other.nonce());
        }
        assert_eq!(a.handshake_key(), JobSecret::derive("test", &[b"ab", b"c"]).handshake_key());
        assert_ne!(a.handshake_key()[..16], a.nonce().0);
        assert_ne!(a.handshake_key(), a.0);
    }

    #[test]
    fn digest_is_sha_256_of_length_prefixed_parts() {
        // printf '\x01\0\0\0\0\0\0\0d\x02\0\0\0\0\0\0\0xy' | sha256sum
        let hex: String = digest("d", &[b"xy"]).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "77b2a56dfd3f5d438b510e84100875a3a8a80805a0e638a2b30014490bfb3fd1");
    }

    #[test]
    fn locations_are_readable() {
        let unix = RootLocation::Unix { name: b"warpway-0-\xff".to_vec() };
        assert_eq!(unix.to_string(), "unix:@warpway-0-\\xff");
        let tcp = |n: u16| {
            let addresses = (1..=n).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect();
            RootLocation::Tcp { addresses }.to_string()
        };
        assert_eq!(tcp(2), "tcp:10.0.0.1:1, 10.0.0.1:2");
        assert_eq!(tcp(17), "tcp:10.0.0.1:1, 10.0.0.1:2, 10.0.0.1:3, 10.0.0.1:4 and 13 more");
    }

    #[test]
    fn secrets_are_not_printed() {
        assert_eq!(format!("{:?}", JobSecret::derive("test", &[b"x"])), "JobSecret(..)");
    }
}
