//! Who is there: a Noise handshake (NNpsk0) with a key that only ranks of the job can derive, followed by
//! a confirmation, so that neither side reads anything else from a stranger or from a replayed greeting.
//!
//! ```text
//! dialer   → greeting      72 bytes: ephemeral key, encrypted identity
//! acceptor → answer        48 bytes: ephemeral key, tag
//! dialer   → confirmation  16 bytes: tag under the session key
//! ```
//!
//! Operations follow in the clear: the handshake keeps strangers out, it does not hide the data. No I/O here.

use snow::{Builder, HandshakeState, TransportState};

pub(crate) const GREETING_BYTES: usize = 32 + Identity::BYTES + 16;
pub(crate) const ANSWER_BYTES: usize = 32 + 16;
pub(crate) const CONFIRMATION_BYTES: usize = 16;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const PROLOGUE: &[u8] = b"warpway tcp 1";

/// Which two endpoints a link joins, as the dialer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// Job rank of the dialer.
    pub(crate) from: u32,
    /// Job rank of the acceptor.
    pub(crate) to: u32,
    /// Endpoint of the dialer.
    pub(crate) from_endpoint: u64,
    /// Endpoint of the acceptor.
    pub(crate) to_endpoint: u64,
}

impl Identity {
    const BYTES: usize = 24;

    fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.from.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.to.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.from_endpoint.to_le_bytes());
        bytes[16..].copy_from_slice(&self.to_endpoint.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, c4, c5, c6, c7, d @ ..] = *bytes;
        Self {
            from: u32::from_le_bytes([a0, a1, a2, a3]),
            to: u32::from_le_bytes([b0, b1, b2, b3]),
            from_endpoint: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            to_endpoint: u64::from_le_bytes(d),
        }
    }
}

/// The other side does not know the key, or is not what it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// From the Noise implementation.
    #[error("authentication failed: {0}")]
    Noise(#[from] snow::Error),
    /// A message of another length than the protocol's.
    #[error("a handshake message of unexpected length")]
    Length,
}

fn builder(key: &[u8; 32]) -> Result<Builder<'_>, snow::Error> {
    Builder::new(PATTERN.parse()?).psk(0, key)?.prologue(PROLOGUE)
}

/// The dialer's side.
pub(crate) struct Initiator(HandshakeState);

impl Initiator {
    /// Also gives the greeting to send.
    pub(crate) fn new(
        key: &[u8; 32],
        identity: &Identity,
    ) -> Result<(Self, [u8; GREETING_BYTES]), HandshakeError> {
        let mut state = builder(key)?.build_initiator()?;
        let mut greeting = [0; GREETING_BYTES];
        let length = state.write_message(&identity.encode(), &mut greeting)?;
        if length == GREETING_BYTES { Ok((Self(state), greeting)) } else { Err(HandshakeError::Length) }
    }

    /// Checks the answer and gives the confirmation to send; the acceptor is authentic then.
    pub(crate) fn finish(
        mut self,
        answer: &[u8; ANSWER_BYTES],
    ) -> Result<[u8; CONFIRMATION_BYTES], HandshakeError> {
        self.0.read_message(answer, &mut [])?;
        let mut confirmation = [0; CONFIRMATION_BYTES];
        let length = self.0.into_transport_mode()?.write_message(&[], &mut confirmation)?;
        if length == CONFIRMATION_BYTES { Ok(confirmation) } else { Err(HandshakeError::Length) }
    }
}

/// The acceptor's side after the greeting.
pub(crate) struct Responder(TransportState);

impl Responder {
    /// Checks the greeting; gives the dialer's claim and the answer to send. The claim must not be acted
    /// upon before [`finish`](Self::finish): the greeting may be a replay.
    pub(crate) fn new(
        key: &[u8; 32],
        greeting: &[u8; GREETING_BYTES],
    ) -> Result<(Self, Identity, [u8; ANSWER_BYTES]), HandshakeError> {
        let mut state = builder(key)?.build_responder()?;
        let mut identity = [0; Identity::BYTES];
        if state.read_message(greeting, &mut identity)? != Identity::BYTES {
            return Err(HandshakeError::Length);
        }
        let mut answer = [0; ANSWER_BYTES];
        if state.write_message(&[], &mut answer)? != ANSWER_BYTES {
            return Err(HandshakeError::Length);
        }
        Ok((Self(state.into_transport_mode()?), Identity::decode(&identity), answer))
    }

    /// Checks the confirmation; the dialer is authentic and present then.
    pub(crate) fn finish(&mut self, confirmation: &[u8; CONFIRMATION_BYTES]) -> Result<(), HandshakeError> {
        self.0.read_message(confirmation, &mut [])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity =
        Identity { from: 1, to: 70_000, from_endpoint: u64::MAX, to_endpoint: 1 << 40 };

    #[test]
    fn ranks_of_one_job_meet() {
        let (initiator, greeting) = Initiator::new(&[7; 32], &IDENTITY).unwrap();
        let (mut responder, identity, answer) = Responder::new(&[7; 32], &greeting).unwrap();
        assert_eq!(identity, IDENTITY);
        let confirmation = initiator.finish(&answer).unwrap();
        responder.finish(&confirmation).unwrap();
    }

    #[test]
    fn another_key_a_changed_byte_and_a_replay_are_refused() {
        let (initiator, greeting) = Initiator::new(&[7; 32], &IDENTITY).unwrap();
        assert!(Responder::new(&[8; 32], &greeting).is_err());
        for i in 0..GREETING_BYTES {
            let mut damaged = greeting;
            damaged[i] ^= 1;
            assert!(Responder::new(&[7; 32], &damaged).is_err(), "byte {i}");
        }
        let (_, _, answer) = Responder::new(&[7; 32], &greeting).unwrap();
        // The same greeting once more: a new ephemeral key answers, so the old confirmation is worthless.
        let (mut second, _, _) = Responder::new(&[7; 32], &greeting).unwrap();
        let confirmation = initiator.finish(&answer).unwrap();
        assert!(second.finish(&confirmation).is_err());
    }
}
