//! The unique id of a job: 128 bytes that one rank makes and its caller hands to all others.
//!
//! Form (version 1, little-endian):
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `WWID` |
//! | 4 | version, 1 |
//! | 5 | flags; bit 0: a token was used |
//! | 6 | number of addresses, 1 to 4 |
//! | 7 | 0 |
//! | 8..24 | random secret |
//! | 24..40 | hash of the token, salted with the secret; 0 without one |
//! | 40..120 | four times: family (4 or 6), 0, port (2 bytes), address (16 bytes; IPv4 in the first four); unused ones 0 |
//! | 120..124 | 0 |
//! | 124..128 | CRC-32C of what precedes |
//!
//! Whoever holds an id may join the job, so it is handed out over a channel that the job trusts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::join::digest;
use super::{Admission, BootstrapError, InterfaceChoice, JobSecret, JoinPlan, RootLocation};
use crate::error::{Result, SystemError};

const MAGIC: [u8; 4] = *b"WWID";
const VERSION: u8 = 1;
const FLAG_TOKEN: u8 = 1;
const ADDRESSES_MAX: usize = 4;
const ADDRESSES_AT: usize = 40;
const ADDRESS_BYTES: usize = 20;
const RESERVED_AT: usize = ADDRESSES_AT + ADDRESSES_MAX * ADDRESS_BYTES;
const CHECKSUM_AT: usize = UniqueId::BYTES - 4;

/// See the module's page. `Debug` shows the addresses, not the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    secret: [u8; 16],
    token_hash: Option<[u8; 16]>,
    addresses: Vec<SocketAddr>,
}

impl UniqueId {
    /// Length of the serialised form.
    pub const BYTES: usize = 128;

    /// A new id with a secret of its own, for a root that listens at `addresses` (1 to 4 that peers can dial).
    /// With a token (`WARPWAY_BOOTSTRAP_TOKEN`), joining takes the same token besides the id.
    ///
    /// # Errors
    /// `bootstrap.id` for no address, more than four, port 0 and unspecified addresses; `system` if the kernel
    /// gives no random bytes.
    pub fn new(addresses: &[SocketAddr], token: Option<&[u8]>) -> Result<Self> {
        if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
            return Err(invalid("an id carries 1 to 4 addresses of the root").into());
        }
        if addresses.iter().any(|a| a.port() == 0 || a.ip().is_unspecified()) {
            return Err(invalid("an address of the root has no port or is unspecified").into());
        }
        let mut secret = [0; 16];
        fill_random(&mut secret)?;
        Ok(Self {
            secret,
            token_hash: token.map(|token| token_hash(&secret, token)),
            // Flow labels and scopes mean nothing on another host.
            addresses: addresses.iter().map(|a| SocketAddr::new(a.ip(), a.port())).collect(),
        })
    }

    /// The serialised form.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = if self.token_hash.is_some() { FLAG_TOKEN } else { 0 };
        bytes[6] = self.addresses.len() as u8;
        bytes[8..24].copy_from_slice(&self.secret);
        bytes[24..40].copy_from_slice(&self.token_hash.unwrap_or_default());
        for (slot, address) in
            bytes[ADDRESSES_AT..RESERVED_AT].chunks_exact_mut(ADDRESS_BYTES).zip(&self.addresses)
        {
            write_address(slot, address);
        }
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the serialised form; accepts exactly what [`to_bytes`](Self::to_bytes) writes.
    ///
    /// # Errors
    /// `bootstrap.id`, saying what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BootstrapError> {
        let Ok(bytes) = <&[u8; Self::BYTES]>::try_from(bytes) else {
            return Err(invalid("it is not 128 bytes long"));
        };
        if bytes[..4] != MAGIC {
            return Err(invalid("it does not begin with \"WWID\"; is it from another library?"));
        }
        if bytes[4] != VERSION {
            return Err(invalid("its version is not 1; all ranks need the same version of Warpway"));
        }
        if bytes[CHECKSUM_AT..] != crc32c::crc32c(&bytes[..CHECKSUM_AT]).to_le_bytes() {
            return Err(invalid("its checksum does not match; it was damaged on the way"));
        }
        let (flags, count) = (bytes[5], usize::from(bytes[6]));
        if flags & !FLAG_TOKEN != 0 || bytes[7] != 0 || bytes[RESERVED_AT..CHECKSUM_AT] != [0; 4] {
            return Err(invalid("reserved bytes are set"));
        }
        if !(1..=ADDRESSES_MAX).contains(&count) {
            return Err(invalid("it does not carry 1 to 4 addresses"));
        }
        let mut slots = bytes[ADDRESSES_AT..RESERVED_AT].chunks_exact(ADDRESS_BYTES);
        let addresses = slots.by_ref().take(count).map(read_address).collect::<Result<_, _>>()?;
        if slots.any(|slot| slot != [0; ADDRESS_BYTES]) {
            return Err(invalid("an unused address is set"));
        }
        let (mut secret, mut token_hash) = ([0; 16], [0; 16]);
        secret.copy_from_slice(&bytes[8..24]);
        token_hash.copy_from_slice(&bytes[24..40]);
        if flags & FLAG_TOKEN == 0 && token_hash != [0; 16] {
            return Err(invalid("it has the hash of a token but no flag that says so"));
        }
        Ok(Self { secret, token_hash: (flags & FLAG_TOKEN != 0).then_some(token_hash), addresses })
    }

    /// Where the root listens, best address first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What the ranks of the job share.
    ///
    /// # Errors
    /// `bootstrap.id` if the id was made with a token and `token` is another or none. A token that the id does
    /// not ask for is ignored.
    pub fn secret(&self, token: Option<&[u8]>) -> Result<JobSecret, BootstrapError> {
        let token = match (self.token_hash, token) {
            (None, _) => &[],
            (Some(_), None) => {
                return Err(invalid("it was made with WARPWAY_BOOTSTRAP_TOKEN, which is not set here"));
            }
            (Some(hash), Some(token)) if hash == token_hash(&self.secret, token) => token,
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "it was made with another WARPWAY_BOOTSTRAP_TOKEN than this process has",
                ));
            }
        };
        Ok(JobSecret::derive("warpway unique id secret v1", &[&self.secret, token]))
    }

    /// The plan of `rank`.
    ///
    /// # Errors
    /// `bootstrap.rank` if rank and size do not fit, `bootstrap.id` as for [`secret`](Self::secret).
    pub fn plan(
        &self,
        rank: u32,
        n_ranks: u32,
        token: Option<&[u8]>,
        interfaces: InterfaceChoice,
    ) -> Result<JoinPlan, BootstrapError> {
        BootstrapError::check_rank(rank, n_ranks)?;
        Ok(JoinPlan {
            rank,
            n_ranks,
            root: RootLocation::Tcp { addresses: self.addresses.clone() },
            secret: self.secret(token)?,
            admission: Admission::Secret,
            root_rank: None,
            interfaces,
        })
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniqueId")
            .field("addresses", &self.addresses)
            .field("token", &self.token_hash.is_some())
            .finish_non_exhaustive()
    }
}

/// Random bytes from the kernel.
pub(super) fn fill_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(0);
        SystemError { call: "getrandom".into(), errno, hint: None }.into()
    })
}

fn invalid(why: &'static str) -> BootstrapError {
    BootstrapError::UniqueId { why }
}

fn token_hash(secret: &[u8; 16], token: &[u8]) -> [u8; 16] {
    let full = digest("warpway unique id token v1", &[secret, token]);
    let mut hash = [0; 16];
    hash.copy_from_slice(&full[..16]);
    hash
}

fn write_address(slot: &mut [u8], address: &SocketAddr) {
    slot[2..4].copy_from_slice(&address.port().to_le_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            slot[0] = 4;
            slot[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            slot[0] = 6;
            slot[4..20].copy_from_slice(&ip.octets());
        }
    }
}

fn read_address(slot: &[u8]) -> Result<SocketAddr, BootstrapError> {
    let mut octets = [0; 16];
    octets.copy_from_slice(&slot[4..20]);
    let ip: IpAddr = match slot[0] {
        4 if octets[4..] == [0; 12] => Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).into(),
        6 => Ipv6Addr::from(octets).into(),
        _ => return Err(invalid("an address is neither IPv4 nor IPv6")),
    };
    let port = u16::from_le_bytes([slot[2], slot[3]]);
    if slot[1] != 0 || port == 0 || ip.is_unspecified() {
        return Err(invalid("an address has no port or is unspecified"));
    }
    Ok(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Checksum repaired, so that the checks behind it are reached.
    fn sealed(mut bytes: [u8; 128]) -> [u8; 128] {
        let checksum = crc32c::crc32c(&bytes[..124]);
        bytes[124..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn the_form_is_fixed() {
        let id = UniqueId {
            secret: *b"0123456789abcdef",
            token_hash: None,
            addresses: vec![address("192.0.2.7:4660"), address("[2001:db8::1]:1")],
        };
        let mut expected = [0; 128];
        expected[..24].copy_from_slice(b"WWID\x01\x00\x02\x000123456789abcdef");
        expected[40..48].copy_from_slice(&[4, 0, 0x34, 0x12, 192, 0, 2, 7]);
        expected[60..64].copy_from_slice(&[6, 0, 1, 0]);
        expected[64..80].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(id.to_bytes(), sealed(expected));
    }

    #[test]
    fn every_flipped_bit_and_every_other_length_is_refused() {
        let id = UniqueId::new(&[address("10.1.2.3:29500"), address("[fd00::2]:29501")], Some(b"t")).unwrap();
        let bytes = id.to_bytes();
        assert_eq!(UniqueId::from_bytes(&bytes).unwrap(), id);
        for bit in 0..1024 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(UniqueId::from_bytes(&damaged).unwrap_err().id(), "bootstrap.id", "bit {bit}");
        }
        for length in (0..128).chain([129, 256]) {
            let mut other = bytes.to_vec();
            other.resize(length, 0);
            assert_eq!(UniqueId::from_bytes(&other).unwrap_err().id(), "bootstrap.id", "length {length}");
        }
    }

    #[test]
    fn foreign_ids_say_so() {
        let why = |bytes: &[u8]| UniqueId::from_bytes(bytes).unwrap_err().to_string();
        assert!(why(&[0; 128]).contains("another library"));
        let mut newer = UniqueId::new(&[address("10.1.2.3:1")], None).unwrap().to_bytes();
        newer[4] = 2;
        assert!(why(&sealed(newer)).contains("version"));
    }

    #[test]
    fn addresses_that_nobody_can_dial_are_refused() {
        let one = address("10.0.0.1:1");
        for bad in [vec![], vec![one; 5], vec![address("0.0.0.0:1")], vec![one, address("[::1]:0")]] {
            assert_eq!(UniqueId::new(&bad, None).unwrap_err().id(), "bootstrap.id", "{bad:?}");
        }
    }

    #[test]
    fn ids_and_tokens_are_kept_apart() {
        let make = |token| UniqueId::new(&[address("10.0.0.1:1")], token).unwrap();
        let (a, b) = (make(None), make(None));
        let key = |id: &UniqueId, token| id.secret(token).map(|s| s.handshake_key());
        assert_ne!(key(&a, None).unwrap(), key(&b, None).unwrap(), "each id has a secret of its own");
        assert_eq!(key(&a, Some(b"unused")).unwrap(), key(&a, None).unwrap());

        let with = make(Some(b"right"));
        let read = UniqueId::from_bytes(&with.to_bytes()).unwrap();
        assert_eq!(key(&read, Some(b"right")).unwrap(), key(&with, Some(b"right")).unwrap());
        for wrong in [None, Some(&b"wrong"[..]), Some(b"")] {
            assert_eq!(key(&read, wrong).unwrap_err().id(), "bootstrap.id");
        }
        let mut stripped = with.to_bytes();
        stripped[5] = 0;
        assert!(UniqueId::from_bytes(&sealed(stripped)).is_err(), "the token cannot be edited away");
        assert!(!format!("{with:?}").contains("secret"));
    }

    #[test]
    fn a_plan_needs_a_rank_below_the_size() {
        let id = UniqueId::new(&[address("10.0.0.1:1")], None).unwrap();
        let plan = |rank, n_ranks| id.plan(rank, n_ranks, None, InterfaceChoice::default());
        assert_eq!(plan(2, 3).unwrap().rank, 2);
        for (rank, n_ranks) in [(3, 3), (0, 0), (u32::MAX, 1), (0, (1 << 20) + 1), (0, u32::MAX)] {
            assert_eq!(plan(rank, n_ranks).unwrap_err().id(), "bootstrap.rank");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(
            ips in prop::collection::vec(any::<IpAddr>(), 1..=4),
            port in 1..=u16::MAX,
            token in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        ) {
            prop_assume!(ips.iter().all(|ip| !ip.is_unspecified()));
            let addresses: Vec<_> = ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
            let id = UniqueId::new(&addresses, token.as_deref()).unwrap();
            let read = UniqueId::from_bytes(&id.to_bytes()).unwrap();
            prop_assert_eq!(read.addresses(), &addresses[..]);
            prop_assert_eq!(
                read.secret(token.as_deref()).unwrap().nonce(), id.secret(token.as_deref()).unwrap().nonce());
            prop_assert_eq!(read, id);
        }

        /// Also behind a valid checksum: whatever is accepted is written back bit for bit, and nothing panics.
        #[test]
        fn the_form_is_canonical(
            edits in prop::collection::vec((5usize..124, any::<u8>()), 0..6),
            cut in 0usize..200,
            noise in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = UniqueId::new(&[address("10.0.0.1:1")], Some(b"t")).unwrap().to_bytes();
            for (at, value) in edits {
                bytes[at] = value;
            }
            let bytes = sealed(bytes);
            if let Ok(id) = UniqueId::from_bytes(&bytes) {
                prop_assert_eq!(id.to_bytes(), bytes);
            }
            prop_assert!(UniqueId::from_bytes(&noise).is_err());
            let mixed: Vec<u8> = bytes.iter().copied().take(cut.min(127)).chain(noise).collect();
            if let Ok(id) = UniqueId::from_bytes(&mixed) {
                prop_assert_eq!(&id.to_bytes()[..], &mixed[..]);
            }
        }
    }
}
