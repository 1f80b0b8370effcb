//! The wire format of Protocol Buffers, the subset that an ONNX file needs: fields are a tag and a value, messages are
//! bytes with their length.

/// A message being written.
#[derive(Debug, Clone, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// A whole number.
    pub(super) fn int(mut self, field: u32, value: i64) -> Self {
        self.tag(field, 0);
        self.varint(value as u64);
        self
    }

    /// Bytes, or text.
    pub(super) fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Self {
        self.tag(field, 2);
        self.varint(value.as_ref().len() as u64);
        self.0.extend_from_slice(value.as_ref());
        self
    }

    /// A message within this one.
    pub(super) fn message(self, field: u32, value: Message) -> Self {
        self.bytes(field, value.0)
    }

    /// The bytes.
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_by_hand() {
        // The examples of the encoding's documentation: 150 in field 1, "testing" in field 2.
        assert_eq!(Message::default().int(1, 150).finish(), [0x08, 0x96, 0x01]);
        let text = Message::default().bytes(2, "testing").finish();
        assert_eq!(text, [0x12, 7, b't', b'e', b's', b't', b'i', b'n', b'g']);
        let nested = Message::default().message(3, Message::default().int(1, 150)).finish();
        assert_eq!(nested, [0x1a, 3, 0x08, 0x96, 0x01]);
        assert_eq!(Message::default().int(1, -1).finish().len(), 11);
    }
}
