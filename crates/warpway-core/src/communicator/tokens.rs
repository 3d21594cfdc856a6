//! The communicator's pools of tokens: one in host memory, one on its GPU if it has one.

use std::sync::Arc;

use crate::error::{Result, Unavailable};
use crate::memory::{LeasedToken, Region, RegisteredMemory, TokenMemory, TokenPool};
use crate::transport::DeviceKind;

/// Set in the numbers, by which peers give tokens back, of tokens on a GPU.
const ON_GPU: u64 = 1 << 63;

pub(super) struct Tokens {
    host: Arc<TokenPool>,
    gpu: Option<Arc<TokenPool>>,
}

impl Tokens {
    pub(super) fn new(host: Arc<dyn TokenMemory>, gpu: Option<Arc<dyn TokenMemory>>) -> Self {
        Self { host: TokenPool::new(host), gpu: gpu.map(TokenPool::new) }
    }

    /// Empty pools with pages from the same places.
    pub(super) fn like(&self) -> Self {
        Self::new(self.host.memory(), self.gpu.as_ref().map(|pool| pool.memory()))
    }

    /// A token where a waiter on a device of this kind finds it.
    pub(super) fn lease(
        &self,
        waiter: DeviceKind,
        register: impl FnOnce(Region) -> Result<RegisteredMemory>,
    ) -> Result<LeasedToken> {
        if waiter != DeviceKind::Gpu {
            return self.host.lease(register);
        }
        let pool = self.gpu.as_ref().ok_or_else(|| Unavailable {
            what: "a semaphore that kernels wait for".into(),
            why: "this communicator has no memory for tokens on a GPU".into(),
            hint: "make the communicator with a GPU engine, or connect with a CPU endpoint",
        })?;
        let token = pool.lease(register)?;
        Ok(LeasedToken { number: token.number | ON_GPU, ..token })
    }

    pub(super) fn share(&self, number: u64, peer: u32) {
        self.with(number, |pool, number| pool.share(number, peer));
    }

    pub(super) fn release(&self, number: u64, peer: u32) {
        self.with(number, |pool, number| pool.release(number, peer));
    }

    pub(super) fn release_all(&self, peer: u32) {
        self.pools().for_each(|pool| pool.release_all(peer));
    }

    /// Tokens that have users, and tokens altogether.
    pub(super) fn usage(&self) -> (u64, u64) {
        self.pools().map(|pool| pool.usage()).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn pools(&self) -> impl Iterator<Item = &Arc<TokenPool>> {
        std::iter::once(&self.host).chain(&self.gpu)
    }

    /// The pool that a number belongs to; numbers come from peers, too.
    fn with(&self, number: u64, action: impl FnOnce(&TokenPool, u64)) {
        let pool = if number & ON_GPU == 0 { Some(&self.host) } else { self.gpu.as_ref() };
        if let Some(pool) = pool {
            action(pool, number & !ON_GPU);
        }
    }
}
