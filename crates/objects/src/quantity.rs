//! Quantities as Kubernetes writes them, such as `10M`, `1.5Gi` or `2e6`.

/// Longer numbers are refused.
const MOST_DIGITS: usize = 24;

/// A quantity as an integer, rounded up; None if invalid or too large.
pub(super) fn parse(text: &str) -> Option<u128> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > MOST_DIGITS || fraction.contains('.') {
        return None;
    }
    let digits: u128 = digits.parse().ok()?;
    let (times, tens) = scale(suffix)?;
    let tens = tens.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_u128.checked_pow(tens.unsigned_abs())?;
    let value = digits.checked_mul(times)?;
    if tens < 0 { Some(value.div_ceil(power)) } else { value.checked_mul(power) }
}

/// A suffix as a factor and a power of ten.
fn scale(suffix: &str) -> Option<(u128, i32)> {
    const DECIMAL: [(&str, i32); 10] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some((_, tens)) = DECIMAL.into_iter().find(|(known, _)| *known == suffix) {
        return Some((1, tens));
    }
    if let Some(index) = BINARY.into_iter().position(|known| known == suffix) {
        return Some((1 << (10 * (index + 1)), 0));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((1, exponent.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_as_in_the_api() {
        for (text, value) in [
            ("10M", 10_000_000),
            ("1G", 1_000_000_000),
            ("500k", 500_000),
            ("1.5Ki", 1536),
            ("2e6", 2_000_000),
            ("2E+3", 2000),
            ("1E", 1_000_000_000_000_000_000),
            ("0", 0),
            ("100m", 1),
            (".5k", 500),
            ("1500000u", 2),
            ("+7", 7),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        for text in
            ["", "M", ".", "-1M", "10 M", "10MB", "1.2.3", "ten", "1e", "1e99", "1K", "9999999999999999999999999"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
