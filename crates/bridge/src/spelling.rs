//! Misspelt keys: those that one edit, another case or `_` separates from a known one. Others may be newer than we are.

/// The known key that was meant; none if this one is known, or like none of them.
pub(crate) fn meant<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    if key.len() > 64 || known.contains(&key) {
        return None;
    }
    let usual = key.to_lowercase().replace('_', "-");
    let near = |known: &&&str| known.len().abs_diff(usual.len()) <= 1;
    known.iter().filter(near).find(|known| one_edit_apart(&usual, &known.to_lowercase())).copied()
}

/// Whether two words are equal, or differ by one letter or by two neighbours that are swapped.
fn one_edit_apart(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&a[..a.len() - end], &b[..b.len() - end]) {
        ([], [] | [_]) | ([_], [] | [_]) => true,
        ([w, x], [y, z]) => w == z && x == y,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slips_of_the_pen_are_misspelt() {
        let known = ["copy-mac-from", "mtu", "ipv4", "ipv6", "networkConfig"];
        for (key, expected) in [
            ("copy-mac-fron", Some("copy-mac-from")),
            ("copy_mac_from", Some("copy-mac-from")),
            ("copymac-from", Some("copy-mac-from")),
            ("mut", Some("mtu")),
            ("networkconfig", Some("networkConfig")),
            ("ipv4", None),
            ("vendor-option", None),
            ("", None),
        ] {
            assert_eq!(meant(key, &known), expected, "{key}");
        }
    }
}
