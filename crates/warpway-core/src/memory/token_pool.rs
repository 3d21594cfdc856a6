//! Tokens for semaphores, in pages of registered memory.
//!
//! A token that a peer knows is given out again only when both sides are done with it: the lease here is
//! dropped, and the peer has said (or left) that it will not raise it any more. Free tokens are reused
//! oldest first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use super::{Region, RegisteredMemory, TokenMemory};
use crate::error::{Error, Result};
use crate::health::lock;
use crate::semaphore::TokenSlot;
use crate::token::TOKEN_BYTES;

/// Tokens per page.
pub const TOKENS_PER_PAGE: u64 = 64;

/// See the module's page.
pub struct TokenPool {
    memory: Arc<dyn TokenMemory>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pages: Vec<RegisteredMemory>,
    /// Who uses each token, by number.
    users: Vec<Users>,
    free: VecDeque<u64>,
}

#[derive(Clone, Copy, Default)]
struct Users {
    here: bool,
    peer: Option<u32>,
}

/// One token of the pool, with its number there.
#[derive(Debug, Clone)]
pub struct LeasedToken {
    /// Number in the pool.
    pub number: u64,
    /// The token; its lease gives it back.
    pub slot: TokenSlot,
}

struct Lease {
    pool: Arc<TokenPool>,
    number: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.update(self.number, |users| users.here = false);
    }
}

impl TokenPool {
    /// An empty pool; pages are made when they are needed.
    pub fn new(memory: Arc<dyn TokenMemory>) -> Arc<Self> {
        Arc::new(Self { memory, state: Mutex::default() })
    }

    /// Where its pages come from.
    pub fn memory(&self) -> Arc<dyn TokenMemory> {
        Arc::clone(&self.memory)
    }

    /// A token at zero. `register` is called if a new page is needed.
    ///
    /// # Errors
    /// Those of the allocator and of `register`.
    pub fn lease(
        self: &Arc<Self>,
        register: impl FnOnce(Region) -> Result<RegisteredMemory>,
    ) -> Result<LeasedToken> {
        let mut state = lock(&self.state);
        if state.free.is_empty() {
            let page = register(self.memory.allocate(TOKENS_PER_PAGE * TOKEN_BYTES)?)?;
            let first = state.pages.len() as u64 * TOKENS_PER_PAGE;
            state.pages.push(page);
            state.free.extend(first..first + TOKENS_PER_PAGE);
            let tokens = (first + TOKENS_PER_PAGE) as usize;
            state.users.resize(tokens, Users::default());
        }
        let broken = |what| Error::Internal { place: "TokenPool::lease", what };
        let number = *state.free.front().ok_or_else(|| broken("a fresh page has no token"))?;
        let page = state.pages.get((number / TOKENS_PER_PAGE) as usize);
        let memory = page.cloned().ok_or_else(|| broken("a token has no page"))?;
        let offset = number % TOKENS_PER_PAGE * TOKEN_BYTES;
        // Nobody knows the token now: its users of before have given it up. It stays free if this fails.
        self.memory.reset(&memory, offset)?;
        state.free.pop_front();
        state.users[number as usize] = Users { here: true, peer: None };
        let lease = Arc::new(Lease { pool: Arc::clone(self), number });
        Ok(LeasedToken { number, slot: TokenSlot { memory, offset, lease: Some(lease) } })
    }

    /// From now on `peer` may raise the token.
    pub fn share(&self, number: u64, peer: u32) {
        self.update(number, |users| users.peer = Some(peer));
    }

    /// `peer` will not raise the token any more. Ignored for a token that it was not told of.
    pub fn release(&self, number: u64, peer: u32) {
        self.update(number, |users| {
            if users.peer == Some(peer) {
                users.peer = None;
            }
        });
    }

    /// `peer` has left and will raise no token any more.
    pub fn release_all(&self, peer: u32) {
        let tokens = lock(&self.state).users.len() as u64;
        (0..tokens).for_each(|number| self.release(number, peer));
    }

    /// Tokens that have users, and tokens altogether.
    pub fn usage(&self) -> (u64, u64) {
        let state = lock(&self.state);
        let all = state.users.len() as u64;
        (all - state.free.len() as u64, all)
    }

    fn update(&self, number: u64, change: impl FnOnce(&mut Users)) {
        let mut state = lock(&self.state);
        let Some(users) = state.users.get_mut(number as usize) else { return };
        let was_used = users.here || users.peer.is_some();
        change(users);
        if was_used && !users.here && users.peer.is_none() {
            state.free.push_back(number);
        }
    }
}

impl fmt::Debug for TokenPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, all) = self.usage();
        f.debug_struct("TokenPool").field("used", &used).field("tokens", &all).finish_non_exhaustive()
    }
}
