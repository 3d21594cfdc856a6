//! One side of an authenticated, encrypted byte stream: Noise NNpsk0 with the job's secret. Sans-IO.
//!
//! On the wire: a length (16 bits, little-endian) and a Noise message, again and again. The first message
//! goes from the dialling side to the accepting one, the second back; both have a known length, so that
//! whoever does not speak the protocol is found out by its first two bytes. The accepting side trusts the
//! dialling one only after its first transport message: the first handshake message could be a replay.

use snow::{Builder, HandshakeState, TransportState};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
const PROLOGUE: &[u8] = b"warpway link 1";
const LENGTH_BYTES: usize = 2;
const TAG_BYTES: usize = 16;
/// Ephemeral key and the tag of an empty payload.
const FIRST_MESSAGE: usize = 32 + TAG_BYTES;
/// A greeting is a few bytes.
const MAX_SECOND_MESSAGE: usize = 32 + TAG_BYTES + 64;
/// Plain text in one transport message at most.
pub(super) const MAX_PLAIN: usize = 65_535 - TAG_BYTES;

/// Why a session cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionError {
    /// The bytes are not those of a handshake.
    NotThisProtocol,
    /// The other side does not know the secret.
    Secret,
    /// A transport message was damaged, or out of turn.
    Damaged,
    /// The cryptography refused to work (no random numbers, message too long): a fault of this side.
    Local,
}

impl SessionError {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NotThisProtocol => "it does not speak this protocol",
            Self::Secret => "it does not know the job's secret",
            Self::Damaged => "a message was damaged or out of turn",
            Self::Local => "the cryptographic library failed on this side",
        }
    }
}

/// What `next` has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The bytes so far are incomplete.
    Starved,
    /// Accepting side: the first message was good; the answer has been put into the outbound bytes.
    Answered,
    /// Dialling side: the other side has authenticated itself; the plain text is its greeting.
    Greeted,
    /// A transport message; its plain text has been stored.
    Message,
}

/// See the module's page.
pub(super) struct Session {
    state: State,
    greeting: Vec<u8>,
    inbound: Vec<u8>,
    consumed: usize,
}

enum State {
    Dialling(Box<HandshakeState>),
    Accepting(Box<HandshakeState>),
    Transport(Box<TransportState>),
    /// After an error, and for a moment between two states.
    Broken,
}

impl Session {
    /// The side that dialled; appends its first message to `outbound`.
    pub(super) fn dial(key: &[u8; 32], outbound: &mut Vec<u8>) -> Result<Self, SessionError> {
        let mut handshake = builder(key)?.build_initiator().map_err(|_| SessionError::Local)?;
        let mut message = [0; FIRST_MESSAGE];
        let length = handshake.write_message(&[], &mut message).map_err(|_| SessionError::Local)?;
        push_message(outbound, &message[..length]);
        Ok(Self::new(State::Dialling(Box::new(handshake)), Vec::new()))
    }

    /// The side that was dialled; `greeting` is told to whoever knows the secret.
    pub(super) fn accept(key: &[u8; 32], greeting: Vec<u8>) -> Result<Self, SessionError> {
        let handshake = builder(key)?.build_responder().map_err(|_| SessionError::Local)?;
        Ok(Self::new(State::Accepting(Box::new(handshake)), greeting))
    }

    fn new(state: State, greeting: Vec<u8>) -> Self {
        Self { state, greeting, inbound: Vec::new(), consumed: 0 }
    }

    /// True once messages can be sealed.
    pub(super) fn is_established(&self) -> bool {
        matches!(self.state, State::Transport(_))
    }

    /// Takes bytes from the stream.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.inbound.drain(..self.consumed);
            self.consumed = 0;
        }
        self.inbound.extend_from_slice(bytes);
    }

    /// The next complete message, if there is one. Replaces the contents of `plain`.
    pub(super) fn next(&mut self, plain: &mut Vec<u8>, outbound: &mut Vec<u8>) -> Result<Step, SessionError> {
        let result = self.advance(plain, outbound);
        if result.is_err() {
            self.state = State::Broken;
        }
        result
    }

    fn advance(&mut self, plain: &mut Vec<u8>, outbound: &mut Vec<u8>) -> Result<Step, SessionError> {
        let unread = &self.inbound[self.consumed..];
        let Some((head, rest)) = unread.split_at_checked(LENGTH_BYTES) else { return Ok(Step::Starved) };
        let length = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let in_range = match self.state {
            State::Accepting(_) => length == FIRST_MESSAGE,
            State::Dialling(_) => (FIRST_MESSAGE..=MAX_SECOND_MESSAGE).contains(&length),
            State::Transport(_) => length >= TAG_BYTES,
            State::Broken => false,
        };
        if !in_range {
            return Err(match self.state {
                State::Transport(_) | State::Broken => SessionError::Damaged,
                _ => SessionError::NotThisProtocol,
            });
        }
        let Some(message) = rest.get(..length) else { return Ok(Step::Starved) };
        plain.resize(length, 0);
        let step = match std::mem::replace(&mut self.state, State::Broken) {
            State::Accepting(mut handshake) => {
                handshake.read_message(message, plain).map_err(|_| SessionError::Secret)?;
                let mut answer = [0; MAX_SECOND_MESSAGE];
                let written =
                    handshake.write_message(&self.greeting, &mut answer).map_err(|_| SessionError::Local)?;
                push_message(outbound, &answer[..written]);
                self.state = transport(*handshake)?;
                plain.clear();
                Step::Answered
            }
            State::Dialling(mut handshake) => {
                let read = handshake.read_message(message, plain).map_err(|_| SessionError::Secret)?;
                plain.truncate(read);
                self.state = transport(*handshake)?;
                Step::Greeted
            }
            State::Transport(mut cipher) => {
                let read = cipher.read_message(message, plain).map_err(|_| SessionError::Damaged)?;
                plain.truncate(read);
                self.state = State::Transport(cipher);
                Step::Message
            }
            State::Broken => return Err(SessionError::Damaged),
        };
        self.consumed += LENGTH_BYTES + length;
        Ok(step)
    }

    /// Appends `plain` to `outbound` as one transport message.
    pub(super) fn seal(&mut self, plain: &[u8], outbound: &mut Vec<u8>) -> Result<(), SessionError> {
        let State::Transport(cipher) = &mut self.state else { return Err(SessionError::Local) };
        if plain.len() > MAX_PLAIN {
            return Err(SessionError::Local);
        }
        let start = outbound.len();
        let length = plain.len() + TAG_BYTES;
        outbound.extend_from_slice(&(length as u16).to_le_bytes());
        outbound.resize(start + LENGTH_BYTES + length, 0);
        match cipher.write_message(plain, &mut outbound[start + LENGTH_BYTES..]) {
            Ok(_) => Ok(()),
            Err(_) => {
                outbound.truncate(start);
                Err(SessionError::Local)
            }
        }
    }
}

fn builder(key: &[u8; 32]) -> Result<Builder<'_>, SessionError> {
    let parameters = PATTERN.parse().map_err(|_| SessionError::Local)?;
    Builder::new(parameters)
        .psk(0, key)
        .and_then(|builder| builder.prologue(PROLOGUE))
        .map_err(|_| SessionError::Local)
}

fn transport(handshake: HandshakeState) -> Result<State, SessionError> {
    let state = handshake.into_transport_mode().map_err(|_| SessionError::Local)?;
    Ok(State::Transport(Box::new(state)))
}

fn push_message(outbound: &mut Vec<u8>, message: &[u8]) {
    outbound.extend_from_slice(&(message.len() as u16).to_le_bytes());
    outbound.extend_from_slice(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides after the handshake; the bytes travel in pieces of `piece` bytes.
    fn pair(piece: usize) -> (Session, Session) {
        let key = [7; 32];
        let (mut to_b, mut to_a, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        let mut a = Session::dial(&key, &mut to_b).unwrap();
        let mut b = Session::accept(&key, b"hello".to_vec()).unwrap();
        let mut last = Step::Starved;
        for bytes in to_b.chunks(piece) {
            assert_eq!(last, Step::Starved);
            b.feed(bytes);
            last = b.next(&mut plain, &mut to_a).unwrap();
        }
        assert_eq!(last, Step::Answered);
        a.feed(&to_a);
        assert_eq!(a.next(&mut plain, &mut Vec::new()).unwrap(), Step::Greeted);
        assert_eq!(plain, b"hello");
        (a, b)
    }

    #[test]
    fn messages_of_awkward_sizes_in_awkward_pieces() {
        let (mut a, mut b) = pair(1);
        for size in [0, 1, 3, 17, 4095, MAX_PLAIN] {
            let message: Vec<u8> = (0..size).map(|i| (i * 31 + size) as u8).collect();
            let (mut wire, mut plain) = (Vec::new(), vec![0xaa; 5]);
            a.seal(&message, &mut wire).unwrap();
            let (first, second) = wire.split_at(wire.len() / 2);
            b.feed(first);
            assert_eq!(b.next(&mut plain, &mut Vec::new()), Ok(Step::Starved));
            b.feed(second);
            assert_eq!(b.next(&mut plain, &mut Vec::new()), Ok(Step::Message));
            assert_eq!(plain, message);
            assert_eq!(b.next(&mut plain, &mut Vec::new()), Ok(Step::Starved));
        }
        assert_eq!(a.seal(&vec![0; MAX_PLAIN + 1], &mut Vec::new()), Err(SessionError::Local));
    }

    #[test]
    fn strangers_are_found_out_by_two_bytes_and_wrong_secrets_by_one_message() {
        let mut plain = Vec::new();
        let mut b = Session::accept(&[7; 32], Vec::new()).unwrap();
        b.feed(b"GE");
        assert_eq!(b.next(&mut plain, &mut Vec::new()), Err(SessionError::NotThisProtocol));

        let mut wire = Vec::new();
        let _ = Session::dial(&[8; 32], &mut wire).unwrap();
        let mut b = Session::accept(&[7; 32], Vec::new()).unwrap();
        b.feed(&wire);
        let mut answer = Vec::new();
        assert_eq!(b.next(&mut plain, &mut answer), Err(SessionError::Secret));
        assert!(answer.is_empty(), "a stranger gets no answer");
        assert_eq!(b.next(&mut plain, &mut answer), Err(SessionError::Damaged));
    }

    #[test]
    fn a_replayed_first_message_gets_no_further() {
        let key = [7; 32];
        let (mut first, mut plain) = (Vec::new(), Vec::new());
        let mut a = Session::dial(&key, &mut first).unwrap();
        let (mut answer, mut wire) = (Vec::new(), Vec::new());
        let mut b = Session::accept(&key, Vec::new()).unwrap();
        b.feed(&first);
        b.next(&mut plain, &mut answer).unwrap();
        a.feed(&answer);
        a.next(&mut plain, &mut Vec::new()).unwrap();
        a.seal(b"hello", &mut wire).unwrap();

        let mut other = Session::accept(&key, Vec::new()).unwrap();
        other.feed(&first);
        other.feed(&wire);
        assert_eq!(other.next(&mut plain, &mut Vec::new()), Ok(Step::Answered));
        assert_eq!(other.next(&mut plain, &mut Vec::new()), Err(SessionError::Damaged));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (mut a, _) = pair(50);
        let mut wire = Vec::new();
        a.seal(b"payload", &mut wire).unwrap();
        for bit in 0..(wire.len() - 2) * 8 {
            let (mut a, mut b) = pair(50);
            let mut wire = Vec::new();
            a.seal(b"payload", &mut wire).unwrap();
            wire[2 + bit / 8] ^= 1 << (bit % 8);
            b.feed(&wire);
            assert_eq!(b.next(&mut Vec::new(), &mut Vec::new()), Err(SessionError::Damaged));
        }
    }
}
