//! Base64, as JSON carries bytes.

/// The bytes of a text; none if it is no base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let digits = &text[..text.len() - padding];
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in digits.chunks(4) {
        let mut block = 0_u32;
        for byte in chunk {
            block = block << 6 | u32::from(value(*byte)?);
        }
        block <<= 6 * (4 - chunk.len());
        let [_, one, two, three] = block.to_be_bytes();
        bytes.extend_from_slice(&[one, two, three][..chunk.len() - 1]);
    }
    Some(bytes)
}

fn value(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn the_examples_of_the_standard_and_what_is_none() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(decode(coded).as_deref(), Some(plain.as_bytes()));
        }
        for odd in ["Z", "Zg=", "Zg===", "====", "Z===", "Zm9-", "Zg==Zg=="] {
            assert_eq!(decode(odd), None, "{odd}");
        }
    }
}
