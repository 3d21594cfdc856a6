//! What the memory gives: plain copies by all ranks at once, the floor of every collective.

/// Larger copies are no faster.
const MOST: u64 = 64 << 20;

/// Private buffers that have been touched.
pub(super) struct Copy {
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Copy {
    /// Of so many bytes, or the most that are worth while.
    pub(super) fn new(bytes: u64) -> Self {
        let len = bytes_of(bytes) as usize;
        Self { source: vec![0x5a; len], target: vec![0xa5; len] }
    }

    pub(super) fn run(&mut self, times: u64) {
        for _ in 0..times {
            self.target.copy_from_slice(&self.source);
            std::hint::black_box(&mut self.target);
        }
    }
}

/// How many bytes are copied for a case of so many.
pub(super) fn bytes_of(bytes: u64) -> u64 {
    bytes.min(MOST)
}
