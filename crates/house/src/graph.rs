//! The dependency graph of one crate, as `cargo tree` resolves it, and how a package came into it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A package as `cargo tree` writes it: name and version. Two versions of one crate are two packages.
type Package = (String, String);

/// Who depends on whom.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    edges: BTreeMap<Package, BTreeSet<Package>>,
}

/// A package that is not allowed, although whatever brought it in is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Intruder {
    /// The crate's name.
    pub(crate) name: String,
    /// From the pure crate to the intruder.
    pub(crate) chain: Vec<String>,
    /// What else that is not allowed comes with it.
    pub(crate) brings: BTreeSet<String>,
}

impl Graph {
    /// Reads `cargo tree --prefix depth --format ' {p}'`: one line `<depth> <name> v<version> …` for each edge. Several
    /// trees in a row, one for each target, are one graph. The error is the line that is not understood.
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
    /// Only these are told apart: what an intruder brings along goes away with it.
    pub(crate) fn intruders(&self, root: &str, allowed: impl Fn(&str) -> bool) -> Vec<Intruder> {
        let mut intruders: Vec<Intruder> = Vec::new();
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
                } else if !intruders.iter().any(|known| known.name == dependency.0) {
                    let brings = self.reachable(dependency).into_iter().filter(|name| !allowed(name)).collect();
                    intruders.push(Intruder { name: dependency.0.clone(), chain, brings });
                }
            }
        }
        intruders
    }

    /// The names of everything below `from`.
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

    fn intruders(allowed: &[&str]) -> Vec<Intruder> {
        Graph::parse(TREE).expect("a tree").intruders("core", |name| allowed.contains(&name))
    }

    #[test]
    fn the_chain_leads_to_the_first_package_that_is_not_allowed() {
        let found = intruders(&["clean", "macros", "tiny", "libc"]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].chain, ["core", "clean", "tokio"]);
        assert_eq!(found[0].brings, BTreeSet::from(["mio".to_owned()]));
    }

    #[test]
    fn every_target_counts() {
        let found = intruders(&["clean", "tokio", "mio", "tiny", "macros"]);
        assert_eq!(found.iter().map(|intruder| intruder.name.as_str()).collect::<Vec<_>>(), ["libc"]);
    }

    #[test]
    fn a_package_behind_an_intruder_and_beside_it_is_told_by_its_own_chain() {
        let found = intruders(&["clean", "macros", "libc"]);
        let chains: Vec<_> = found.iter().map(|intruder| intruder.chain.join(" ")).collect();
        assert_eq!(chains, ["core clean tokio", "core macros tiny"]);
    }

    #[test]
    fn all_allowed_is_quiet() {
        assert_eq!(intruders(&["clean", "tokio", "mio", "tiny", "macros", "libc"]), []);
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        assert_eq!(Graph::parse("0 core v1\n└── x v1").expect_err("not a depth"), "└── x v1");
        assert_eq!(Graph::parse("0 core v1\n2 x v1").expect_err("a level is missing"), "2 x v1");
    }
}
