//! The purity check fails for a copy of the workspace's manifests that is broken in one way after the other.

mod support;

use support::Sandbox;

const CNI: &str = "crates/cni/Cargo.toml";
const BRIDGE: &str = "crates/bridge/Cargo.toml";
const GATEWAY: &str = "crates/gateway/Cargo.toml";
const OBJECTS: &str = "crates/objects/Cargo.toml";
const REACHABILITY: &str = "crates/reachability/Cargo.toml";
const TOPOLOGY: &str = "crates/topology/Cargo.toml";
const NETMODEL: &str = "crates/netmodel/Cargo.toml";

#[test]
fn a_tokio_dependency_is_found() {
    let sandbox = Sandbox::of_the_workspace();
    let clean = sandbox.read(NETMODEL);
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(ok, "{said}");

    sandbox.add_below(NETMODEL, "[dependencies]", "tokio.workspace = true");
    sandbox.refresh_lock_file();
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok, "{said}");
    assert!(said.contains("error[purity] netmodel: tokio is not allowed"), "{said}");
    assert!(said.contains("netmodel → tokio"), "{said}");
    assert!(said.contains("mio"), "tokio's dependencies are listed: {said}");
    assert!(said.contains("remedy: drop the dependency of netmodel on tokio"), "{said}");

    sandbox.write(NETMODEL, &clean);
    sandbox.refresh_lock_file();
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(ok, "{said}");
}

#[test]
fn a_transitive_tokio_dependency_is_found() {
    let sandbox = Sandbox::of_the_workspace();
    sandbox.write("crates/between/src/lib.rs", "//! Nothing.\n");
    sandbox.write(
        "crates/between/Cargo.toml",
        "[package]\nname = \"between\"\nversion = \"0.1.0\"\nedition.workspace = true\n\n[dependencies]\ntokio.workspace = true\n",
    );
    sandbox.add_below(NETMODEL, "[dependencies]", "between = { path = \"../between\" }");
    sandbox.refresh_lock_file();

    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok, "{said}");
    assert!(said.contains("netmodel: between is not allowed"), "a workspace crate must be allowed too: {said}");
    assert!(said.contains("and brings") && said.contains("tokio"), "{said}");

    sandbox.add_below("house.toml", "[pure.netmodel]\nallow = [", "\"between\",");
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok, "{said}");
    assert!(said.contains("netmodel: tokio is not allowed"), "{said}");
    assert!(said.contains("netmodel → between → tokio"), "{said}");
}

#[test]
fn build_dependencies_count_and_dev_dependencies_do_not() {
    let sandbox = Sandbox::of_the_workspace();
    let clean = sandbox.read(NETMODEL);
    sandbox.add_below(NETMODEL, "[dev-dependencies]", "tokio.workspace = true");
    sandbox.refresh_lock_file();
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(ok, "{said}");

    sandbox.write(NETMODEL, &format!("{clean}\n[build-dependencies]\ntokio.workspace = true\n"));
    sandbox.write("crates/netmodel/build.rs", "fn main() {}\n");
    sandbox.refresh_lock_file();
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok, "{said}");
    assert!(said.contains("tokio is not allowed, not even at build time"), "{said}");
}

#[test]
fn only_the_listed_features_must_be_pure() {
    let sandbox = Sandbox::of_the_workspace();
    let manifest = sandbox.read(NETMODEL).replacen(
        "[dependencies]",
        "[features]\ndefault = [\"client\"]\nclient = [\"dep:tokio\"]\n\n[dependencies]\ntokio = { workspace = true, optional = true }",
        1,
    );
    sandbox.write(NETMODEL, &manifest);
    // The other pure crates use the pure features only.
    let pure_part = "netmodel = { path = \"../netmodel\", default-features = false }";
    for user in [BRIDGE, CNI, GATEWAY, OBJECTS, REACHABILITY, TOPOLOGY] {
        let manifest = sandbox.read(user);
        sandbox.write(user, &manifest.replacen("netmodel.workspace = true", pure_part, 1));
    }
    sandbox.refresh_lock_file();
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok && said.contains("netmodel → tokio"), "{said}");

    sandbox.add_below("house.toml", "[pure.netmodel]", "default-features = false");
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(ok, "{said}");

    sandbox.add_below("house.toml", "[pure.netmodel]", "features = [\"client\"]");
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok && said.contains("netmodel → tokio"), "{said}");
}

#[test]
fn policy_and_workspace_name_the_same_crates() {
    let sandbox = Sandbox::of_the_workspace();
    let clean = sandbox.read("house.toml");

    sandbox.write("house.toml", &format!("{clean}\n[pure.nowhere]\nallow = []\n"));
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok && said.contains("[pure.nowhere] names a crate that is not in the workspace"), "{said}");

    sandbox.add_below("house.toml", "planned = [", "\"nowhere\",");
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(ok, "a planned crate may have its policy before it exists: {said}");

    sandbox.write("house.toml", &clean);
    sandbox.add_below("house.toml", "planned = [", "\"bench\",");
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok && said.contains("bench is planned as a pure crate, exists now, and has no policy"), "{said}");

    sandbox.write("house.toml", &clean);
    sandbox.add_below("house.toml", "[pure.netmodel]\nallow = [", "\"left-over\",");
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(ok && said.contains("warning[purity] netmodel: left-over in `allow` is not used"), "{said}");
}

#[test]
fn an_unusable_workspace_is_a_one_line_error() {
    let sandbox = Sandbox::of_the_workspace();
    sandbox.add_below(NETMODEL, "[dependencies]", "tokio.workspace = true");
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok && said.contains("lock"), "a stale lock file is reported: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");

    sandbox.write("house.toml", "targets = 3\n");
    let (ok, said) = sandbox.house(&["purity"]);
    assert!(!ok && said.contains("house.toml: line 1"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
