//! The dependency graph of one crate, as `cargo tree` resolves it, and the chain that leads to a package.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A package as `cargo tree` writes it: name and version. Two versions of one crate are two packages.
type Package = (String, String);

/// Packages, each with its direct dependencies.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    edges: BTreeMap<Package, BTreeSet<Package>>,
}

/// A package that is not allowed, although its dependent is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Disallowed {
    /// Without its version.
    pub(crate) name: String,
    /// From the pure crate to this package.
    pub(crate) chain: Vec<String>,
    /// Its own dependencies that are not allowed either.
    pub(crate) brings: BTreeSet<String>,
}

impl Graph {
    /// Reads `cargo tree --prefix depth --format ' {p}'`: one line `<depth> <name> v<version> …` for each edge. Several
    /// trees in a row, one for each target, are one graph. The error is the line that cannot be parsed.
    pub(crate) fn parse(tree: &str) -> Result<Self, String> {
        let mut graph = Self::default();
        let mut path: Vec<Package> = Vec::new();
        for line in tree.lines().filter(|line| !line.trim().is_empty()) {
            let mut words = line.split_whitespace();
            let depth = words.next().and_then(|word| word.parse::<usize>().ok());
            let (Some(depth), Some(name), Some(version)) = (depth, words.next(), words.next()) else {
                return Err(line.to_owned());
            };
            if depth > path.len() {
                return Err(line.to_owned());
            }
            path.truncate(depth);
            let package = (name.to_owned(), version.to_owned());
            graph.edges.entry(package.clone()).or_default();
            if let Some(parent) = path.last() {
                graph.edges.entry(parent.clone()).or_default().insert(package.clone());
            }
            path.push(package);
        }
        Ok(graph)
    }

    /// The names of all packages.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.edges.keys().map(|(name, _)| name.as_str()).collect()
    }

    /// The packages that are not allowed and that an allowed one (or `root`) depends on, nearest first.
    ///
    /// Only these are returned: what one of them brings in goes away with it.
    pub(crate) fn disallowed(&self, root: &str, allowed: impl Fn(&str) -> bool) -> Vec<Disallowed> {
        let mut disallowed: Vec<Disallowed> = Vec::new();
        let mut seen: BTreeSet<&Package> = BTreeSet::new();
        let mut queue: VecDeque<(&Package, Vec<String>)> = VecDeque::new();
        for package in self.edges.keys().filter(|(name, _)| name == root) {
            seen.insert(package);
            queue.push_back((package, vec![root.to_owned()]));
        }
        while let Some((package, chain)) = queue.pop_front() {
            for dependency in self.edges.get(package).into_iter().flatten().filter(|next| seen.insert(next)) {
                let mut chain = chain.clone();
                chain.push(dependency.0.clone());
                if allowed(&dependency.0) {
                    queue.push_back((dependency, chain));
                } else if !disallowed.iter().any(|known| known.name == dependency.0) {
                    let brings = self.reachable(dependency).into_iter().filter(|name| !allowed(name)).collect();
                    disallowed.push(Disallowed { name: dependency.0.clone(), chain, brings });
                }
            }
        }
        disallowed
    }

    /// Names of all direct and indirect dependencies of `from`.
    fn reachable(&self, from: &Package) -> BTreeSet<String> {
        let mut seen = BTreeSet::from([from]);
        let mut stack = vec![from];
        while let Some(package) = stack.pop() {
            stack.extend(self.edges.get(package).into_iter().flatten().filter(|next| seen.insert(next)));
        }
        seen.into_iter().filter(|package| *package != from).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "\
0 core v0.1.0 (path)
1 clean v1.0.0
2 tokio v1.2.3
3 mio v1.0.0
3 tiny v1.0.0
1 macros v2.0.0 (proc-macro)
2 tiny v1.0.0 (*)

0 core v0.1.0 (path)
1 clean v1.0.0 (*)
1 libc v0.2.0
";

    fn disallowed(allowed: &[&str]) -> Vec<Disallowed> {
        Graph::parse(TREE).expect("a tree").disallowed("core", |name| allowed.contains(&name))
    }

    #[test]
    fn the_chain_leads_to_the_first_package_that_is_not_allowed() {
        let found = disallowed(&["clean", "macros", "tiny", "libc"]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].chain, ["core", "clean", "tokio"]);
        assert_eq!(found[0].brings, BTreeSet::from(["mio".to_owned()]));
    }

    #[test]
    fn packages_of_every_target_are_checked() {
        let found = disallowed(&["clean", "tokio", "mio", "tiny", "macros"]);
        assert_eq!(found.iter().map(|disallowed| disallowed.name.as_str()).collect::<Vec<_>>(), ["libc"]);
    }

    #[test]
    fn a_package_reached_by_two_chains_is_reported_with_the_allowed_one() {
        let found = disallowed(&["clean", "macros", "libc"]);
        let chains: Vec<_> = found.iter().map(|disallowed| disallowed.chain.join(" ")).collect();
        assert_eq!(chains, ["core clean tokio", "core macros tiny"]);
    }

    #[test]
    fn no_finding_if_everything_is_allowed() {
        assert_eq!(disallowed(&["clean", "tokio", "mio", "tiny", "macros", "libc"]), []);
    }

    #[test]
    fn a_malformed_tree_is_rejected() {
        assert_eq!(Graph::parse("0 core v1\n└── x v1").expect_err("not a depth"), "└── x v1");
        assert_eq!(Graph::parse("0 core v1\n2 x v1").expect_err("a level is missing"), "2 x v1");
    }
}
