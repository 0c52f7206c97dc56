//! What the plugin says it speaks is what is understood here: the two share no code.

#[test]
fn the_plugin_speaks_the_versions_that_are_understood() {
    let understood: Vec<&str> = cni::Version::ALL.into_iter().map(cni::Version::name).collect();
    assert_eq!(understood, cni_shim::VERSIONS);
}
