#[test]
fn none() {}
