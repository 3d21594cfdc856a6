//! Elements that find mistakes in arithmetic.

/// Numbers without a pattern.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// All codes (pairs of codes of bytes), and for wider types infinities, NaN of several payloads, both zeros, subnormal numbers,
/// numbers near one, and anything.
pub(crate) fn element(size: usize, source: usize, index: usize, random: &mut Random) -> u64 {
    const HALVES: [u64; 13] =
        [0x7c00, 0xfc00, 0x7e01, 0x8000, 0, 1, 0x8001, 0x7f80, 0xff80, 0x7fc1, 0x80, 0x7bff, 0x7f7f];
    const FLOATS: [u64; 10] = [
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0001,
        0xffc0_0001,
        1 << 31,
        0,
        1,
        0x8000_0001,
        0x0080_0000,
        0x7f7f_ffff,
    ];
    let drawn = random.next();
    let pick = (drawn >> 8) as usize;
    match (size, source, drawn % 4) {
        (1, 0, _) | (2, 0, _) => index as u64,
        (1, 1, _) => index as u64 >> 8,
        (2, _, 0) => HALVES[pick % HALVES.len()],
        (2, _, 1) => index as u64 ^ (drawn >> 40 & 0x80ff),
        (4, _, 0) => FLOATS[pick % FLOATS.len()],
        (4, _, 1) => 0x3f00_0000 + (drawn >> 41),
        (8, _, 0) => FLOATS[pick % FLOATS.len()] << 32 | (drawn >> 60 & 1),
        (8, _, 1) => 0x3fe0_0000_0000_0000 + (drawn >> 12),
        _ => drawn >> 5,
    }
}
