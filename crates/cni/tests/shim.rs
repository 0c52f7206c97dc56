//! Plugin and parser support the same CNI versions; they share no code.

#[test]
fn plugin_and_parser_support_the_same_versions() {
    let supported: Vec<&str> = cni::Version::ALL.into_iter().map(cni::Version::name).collect();
    assert_eq!(supported, cni_shim::VERSIONS);
}
