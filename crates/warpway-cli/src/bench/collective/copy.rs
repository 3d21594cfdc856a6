//! What the memory gives: plain copies by all ranks at once, the floor of every collective.

/// Private buffers that have been touched.
pub(super) struct Copy {
    source: Vec<u8>,
    target: Vec<u8>,
}

impl Copy {
    /// Of so many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        Self { source: vec![0x5a; bytes as usize], target: vec![0xa5; bytes as usize] }
    }

    pub(super) fn run(&mut self, times: u64) {
        for _ in 0..times {
            self.target.copy_from_slice(&self.source);
            std::hint::black_box(&mut self.target);
        }
    }
}
