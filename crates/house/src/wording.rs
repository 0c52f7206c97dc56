//! Words that no committed file may contain: they are true on one machine, or tie us to one host.

/// A forbidden word in a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slip {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// What is wrong, naming the word.
    pub(crate) problem: String,
    /// What to write instead.
    pub(crate) remedy: &'static str,
}

/// Package registries, written in two parts so that this file passes its own check.
const REGISTRIES: [(&str, &str); 8] = [
    ("crates", "io"),
    ("npmjs", "org"),
    ("npmjs", "com"),
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("proxy.golang", "org"),
    ("sum.golang", "org"),
    ("rubygems", "org"),
];

/// Folders that exist on somebody's machine only; the flag says whether the folder's bare name is harmless.
const PRIVATE_FOLDERS: [(&str, bool); 4] = [("home", true), ("Users", true), ("root", true), ("work", false)];

/// All slips in a text.
pub(crate) fn slips(text: &str) -> Vec<Slip> {
    let mut slips = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        if let Some(host) = registry(line) {
            slips.push(Slip {
                line: line_number,
                problem: format!("names the package registry {host}"),
                remedy: "leave the host to the reader's own configuration: name the package alone",
            });
        }
        if let Some(folder) = private_folder(line) {
            slips.push(Slip {
                line: line_number,
                problem: format!("has an absolute path below {folder}"),
                remedy: "write the path relative to the workspace, or take it from an option or the environment",
            });
        }
    }
    slips
}

fn registry(line: &str) -> Option<String> {
    let line = line.to_ascii_lowercase();
    let hosts = REGISTRIES.iter().map(|(name, domain)| format!("{name}.{domain}"));
    hosts.into_iter().find(|host| {
        line.match_indices(host.as_str()).any(|(start, _)| {
            let before = line[..start].chars().next_back();
            let after = line[start + host.len()..].chars().next();
            !before.is_some_and(continues_a_word) && !after.is_some_and(char::is_alphanumeric)
        })
    })
}

fn private_folder(line: &str) -> Option<String> {
    PRIVATE_FOLDERS.iter().find_map(|(folder, bare_is_harmless)| {
        let path = format!("/{folder}");
        line.match_indices(&path).find_map(|(start, _)| {
            let before = line[..start].chars().next_back();
            let mut rest = line[start + path.len()..].chars();
            let after = rest.next();
            // `crates/work`, `$dir/root` and `https://home/` go on from something: not absolute paths.
            let absolute = before.is_none_or(|sign| sign.is_whitespace() || "\"'`=:([<,|@".contains(sign));
            let ends = match after {
                Some('/') => !bare_is_harmless || rest.next().is_some_and(|sign| !sign.is_whitespace()),
                Some(sign) => !bare_is_harmless && !continues_a_word(sign) && sign != '.',
                None => !bare_is_harmless,
            };
            (absolute && ends).then(|| path.clone())
        })
    })
}

fn continues_a_word(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '-' || sign == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forbidden words are put together here, for the same reason as above.
    fn path(folder: &str, rest: &str) -> String {
        format!("/{folder}{rest}")
    }

    #[test]
    fn a_registry_is_found_with_its_line() {
        let text = format!("fine\nsee https://index.{}.io/x", "crates");
        let found = slips(&text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert_eq!(registry(&format!("Crates{}IO", '.')), Some(format!("crates{}io", '.')));
    }

    #[test]
    fn what_only_looks_like_a_registry_passes() {
        for text in ["crates.iota", "mycrates.iox", "crates/io", "golang.org/x/net", "registry.k8s.io/pause"] {
            assert_eq!(slips(text), [], "{text}");
        }
    }

    #[test]
    fn private_folders_are_found() {
        for text in [
            path("home", "/someone/x"),
            path("root", "/.kube/config"),
            path("work", "/main"),
            path("Users", "/someone"),
            format!("unix:{}", path("work", "/db.sock")),
            format!("FILE=\"{}\"", path("root", "/x")),
        ] {
            assert_eq!(slips(&text).len(), 1, "{text}");
        }
    }

    #[test]
    fn relative_paths_and_other_words_pass() {
        for text in [
            path("home", ""),
            path("root", ""),
            path("rootfs", "/x"),
            path("workspace", "/x"),
            path("homes", "/x"),
            format!("crates{}", path("work", "/x")),
            format!("$dir{}", path("root", "/x")),
            format!("https:/{}", path("home", "/x")),
        ] {
            assert_eq!(slips(&text), [], "{text}");
        }
    }
}
