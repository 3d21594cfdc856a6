//! Little-endian encoding of the bootstrap's own messages, and a bounds-checked decoder.
//!
//! Nothing a peer says about a length is believed before it has been compared with what is there.

/// Longest text in a message; longer ones are cut where they are encoded.
const MAX_TEXT: usize = 4096;

/// A message that does not decode; the text says which part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Appends fields to a buffer.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// A message that begins with `kind`.
    pub(super) fn new(kind: u8) -> Self {
        Self { bytes: vec![kind] }
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(super) fn optional_u32(&mut self, value: Option<u32>) -> &mut Self {
        match value {
            Some(value) => self.u8(1).u32(value),
            None => self.u8(0),
        }
    }

    /// Length (16 bits) and text, cut at a character boundary if it is too long.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        let mut end = text.len().min(MAX_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16).raw(&text.as_bytes()[..end])
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// Takes fields from a buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn raw(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Malformed("message too short"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn optional_u32(&mut self) -> Result<Option<u32>, Malformed> {
        match self.u8()? {
            0 => Ok(None),
            1 => Ok(Some(self.u32()?)),
            _ => Err(Malformed("presence byte")),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let length = usize::from(self.u16()?);
        if length > MAX_TEXT {
            return Err(Malformed("text too long"));
        }
        String::from_utf8(self.raw(length)?.to_vec()).map_err(|_| Malformed("text is not UTF-8"))
    }

    /// What has not been taken.
    pub(super) fn rest(self) -> &'a [u8] {
        self.bytes
    }

    /// Every byte must have been taken.
    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Malformed("trailing bytes")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let text = "ü".repeat(MAX_TEXT);
        let bytes = Encoder::new(9).text(&text).u8(7).finish();
        let mut decoder = Decoder::new(&bytes[1..]);
        assert_eq!(decoder.text().unwrap(), "ü".repeat(MAX_TEXT / 2));
        assert_eq!(decoder.u8(), Ok(7));
        assert_eq!(decoder.end(), Ok(()));
        let odd = format!("x{text}");
        let bytes = Encoder::new(9).text(&odd).finish();
        assert_eq!(Decoder::new(&bytes[1..]).text().unwrap().len(), MAX_TEXT - 1);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = Encoder::default()
            .u8(1)
            .u16(2)
            .u32(3)
            .i32(-4)
            .u64(5)
            .optional_u32(Some(6))
            .text("seven")
            .finish();
        let decode = |bytes: &[u8]| {
            let mut d = Decoder::new(bytes);
            let all = (d.u8()?, d.u16()?, d.u32()?, d.i32()?, d.u64()?, d.optional_u32()?, d.text()?);
            d.end().map(|()| all)
        };
        assert_eq!(decode(&bytes), Ok((1, 2, 3, -4, 5, Some(6), "seven".into())));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length}");
        }
    }
}
