//! Durations in rules, divided so that an alert that waits for a quarter of an hour fires in seconds. The expressions stay as
//! they are: only ranges and offsets change.

/// A range needs at least this much for a few samples, in milliseconds.
const SHORTEST_RANGE_MS: u64 = 10_000;

/// Milliseconds of a Prometheus duration such as `1h30m`; `None` if it is none.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum = 0;
    while !rest.is_empty() {
        let digits = rest.find(|sign: char| !sign.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|sign: char| sign.is_ascii_digit()).unwrap_or(rest.len());
        let length = match &rest[..unit] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        sum += number * length;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(sum)
}

fn text(milliseconds: u64) -> String {
    if milliseconds.is_multiple_of(1000) { format!("{}s", milliseconds / 1000) } else { format!("{milliseconds}ms") }
}

/// A duration divided by `factor`; anything else stays as it is.
pub(super) fn compress(duration: &str, factor: u32, shortest: u64) -> String {
    match milliseconds(duration) {
        Some(length) => text((length / u64::from(factor.max(1))).max(shortest.min(length))),
        None => duration.to_owned(),
    }
}

/// An expression with its ranges (`[5m]`) and offsets (`offset 5m`) divided by `factor`. Strings are not touched.
pub(super) fn compress_expression(expression: &str, factor: u32) -> String {
    let mut result = String::new();
    let mut rest = expression;
    while let Some(sign) = rest.chars().next() {
        let end = match sign {
            '"' | '\'' | '`' => string_end(rest, sign),
            '[' => match rest.find(']') {
                Some(end) => {
                    let parts: Vec<String> =
                        rest[1..end].split(':').map(|part| compress(part, factor, SHORTEST_RANGE_MS)).collect();
                    result.push_str(&format!("[{}]", parts.join(":")));
                    rest = &rest[end + 1..];
                    continue;
                }
                None => 1,
            },
            _ if sign.is_alphanumeric() || sign == '_' => {
                let word = rest.find(|sign: char| !(sign.is_alphanumeric() || sign == '_')).unwrap_or(rest.len());
                if &rest[..word] == "offset" {
                    let value = rest[word..].trim_start();
                    let length = value.find(|sign: char| !sign.is_alphanumeric()).unwrap_or(value.len());
                    result.push_str(&format!("offset {}", compress(&value[..length], factor, 0)));
                    rest = &value[length..];
                    continue;
                }
                word
            }
            _ => sign.len_utf8(),
        };
        result.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    result
}

/// The end of a string that starts `text`.
fn string_end(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, sign) in text.char_indices().skip(1) {
        if sign == quote && !escaped {
            return at + sign.len_utf8();
        }
        escaped = sign == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_divided() {
        assert_eq!(milliseconds("1h30m"), Some(5_400_000));
        assert_eq!(milliseconds("250ms"), Some(250));
        for bad in ["", "m", "5", "5x", "five", "-5m"] {
            assert_eq!(milliseconds(bad), None, "{bad}");
        }
        assert_eq!(compress("15m", 60, 0), "15s");
        assert_eq!(compress("1m", 90, 0), "666ms");
        assert_eq!(compress("1m", 60, 5000), "5s", "not below the shortest");
        assert_eq!(compress("2s", 60, 5000), "2s", "nothing becomes longer");
        assert_eq!(compress("soon", 60, 0), "soon");
    }

    #[test]
    fn ranges_and_offsets_are_divided_and_nothing_else() {
        let expression = r#"sum by (stage) (rate(a_bucket{le="5.0", text="[5m] offset 1h \" x"}[30m])) > 60
            and max_over_time(b[1h:10m]) offset 35m > 0.144 or c{d='[1h]'} unless on () e offset 1d"#;
        assert_eq!(
            compress_expression(expression, 60),
            r#"sum by (stage) (rate(a_bucket{le="5.0", text="[5m] offset 1h \" x"}[30s])) > 60
            and max_over_time(b[60s:10s]) offset 35s > 0.144 or c{d='[1h]'} unless on () e offset 1440s"#
        );
        assert_eq!(compress_expression("my_offset > 5 and rate(x[5m", 60), "my_offset > 5 and rate(x[5m");
    }
}
